// A tuning: what it believes after each pilot, the ranking so far, and every pilot.

import { element } from "../base.js";
import { announcer, commandList, dataTable, drawSections, remarkList, scenarioText, showWrong, stateMark, watch, wrongLine } from "./parts.js";

export async function show(main) {
  const folder = new URLSearchParams(location.search).get("folder") || "";
  const said = announcer();
  const wrong = wrongLine();
  const place = { headline: element("h1", {}, "Tuning"), where: element("p", { class: "where" }, folder), remarks: element("div"), tables: element("div"), figures: element("div", { class: "figures" }), below: element("div", { class: "below" }) };
  main.replaceChildren(place.where, place.headline, wrong, said.place, place.remarks, place.tables, place.figures, place.below);

  function draw(view) {
    place.headline.textContent = view.headline;
    place.where.replaceChildren(stateMark(view.state), element("span", {}, view.folder || "."), element("a", { href: "/runs" }, "All runs"));
    place.remarks.replaceChildren(remarkList(view.remarks));
    const tables = [];
    if (view.ranking?.rows.length) tables.push(dataTable("Optimisers and step sizes so far, the best first", view.ranking.titles, view.ranking.rows, "ranking.csv"));
    if (view.law) tables.push(dataTable("The rounds law of the recipe", view.law.titles, view.law.rows, "law.csv"));
    place.tables.replaceChildren(...tables);
    drawSections(place.figures, view.sections);
    place.below.replaceChildren(commandList(view.commands), scenarioText(view.scenario));
    document.title = `${view.folder || "."} - FewJoules studio`;
    said.say(`${view.state}. ${view.headline}`);
  }

  await watch(
    () => `/api/runs/tuning?${new URLSearchParams({ folder })}`,
    (view, words) => {
      showWrong(wrong, words);
      if (view) draw(view);
    },
    (view) => view.state !== "finished",
  );
}
