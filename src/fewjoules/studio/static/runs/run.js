// One run: curves that grow while it trains, predicted beside measured, and what repeats or continues it.

import { element } from "../base.js";
import { announcer, commandList, dataTable, drawSections, facts, folderAddress, remarkList, scenarioText, showWrong, stateMark, watch, wrongLine } from "./parts.js";

export async function show(main) {
  const folder = new URLSearchParams(location.search).get("folder") || "";
  const said = announcer();
  const wrong = wrongLine();
  const place = { headline: element("h1", {}, "Run"), where: element("p", { class: "where" }), remarks: element("div"), predicted: element("section", { class: "predicted" }), figures: element("div", { class: "figures" }), below: element("div", { class: "below" }) };
  main.replaceChildren(place.where, place.headline, wrong, said.place, place.remarks, place.predicted, place.figures, place.below);

  function draw(view) {
    place.headline.textContent = view.headline;
    const parent = view.parent === null ? [] : [" in ", element("a", { href: folderAddress("compare", view.parent) }, view.parent || ".")];
    place.where.replaceChildren(stateMark(view.state), element("span", {}, view.folder || ".", ...parent), element("a", { href: folderAddress("ledger", view.folder) }, "Ledger"), element("a", { href: "/runs" }, "All runs"));
    place.remarks.replaceChildren(remarkList(view.remarks));
    const rows = view.predicted.rows;
    const note = element("p", { class: "caption" }, rows.length ? "What the plan predicted up to its target, beside what was measured so far. Joules by kind and message bits are those of rounds that the ledger on disk has." : "This run has no plan, so nothing was predicted.");
    place.predicted.replaceChildren(...(rows.length ? [dataTable(view.state === "finished" ? "Predicted and measured" : "Predicted and measured so far", view.predicted.titles, rows, "predicted.csv")] : []), note);
    drawSections(place.figures, view.sections);
    place.below.replaceChildren(commandList(view.commands), facts(view.facts), scenarioText(view.scenario));
    document.title = `${view.folder || "."} - FewJoules studio`;
    said.say(`${view.state}. ${view.headline}`);
  }

  await watch(
    () => `/api/runs/run?${new URLSearchParams({ folder })}`,
    (view, words) => {
      showWrong(wrong, words);
      if (view) draw(view);
      else if (!place.figures.childElementCount) place.where.replaceChildren(element("span", {}, folder || "."), element("a", { href: "/runs" }, "All runs"));
    },
    (view) => view.state !== "finished",
  );
}
