// A comparison: of a folder of fewjoules compare, or of the runs that the address names.

import { element, save, table } from "../base.js";
import { announcer, bits, commandList, csvOf, drawSections, folderAddress, number, remarkList, showWrong, stateMark, swatch, watch, wrongLine } from "./parts.js";

export async function show(main) {
  const query = new URLSearchParams(location.search);
  const said = announcer();
  const wrong = wrongLine();
  const place = { headline: element("h1", {}, "Comparison"), where: element("p", { class: "where" }), remarks: element("div"), ranking: element("div"), members: element("div"), figures: element("div", { class: "figures" }), ongoing: element("div", { class: "figures" }), below: element("div", { class: "below" }) };
  main.replaceChildren(place.where, place.headline, wrong, said.place, place.remarks, place.ranking, place.figures, place.ongoing, place.members, place.below);

  function draw(view) {
    place.headline.textContent = view.ranking ? view.ranking.headline : "No run of this comparison is finished yet.";
    const mark = view.state ? [stateMark(view.state)] : [];
    place.where.replaceChildren(...mark, element("span", {}, view.folder === null ? `${view.runs.length} chosen runs` : view.folder || "."), element("a", { href: "/runs" }, "All runs"));
    place.remarks.replaceChildren(remarkList(view.ranking?.remarks ?? []));
    place.ranking.replaceChildren(...(view.ranking ? [rankingTable(view.ranking)] : []));
    drawSections(place.figures, view.sections);
    drawSections(place.ongoing, view.ongoing.map((one) => ({ ...one, title: `Still training: ${one.title.toLowerCase()}` })), "ongoing-");
    place.members.replaceChildren(members(view));
    place.below.replaceChildren(commandList(view.commands));
    said.say(place.headline.textContent);
  }

  await watch(
    () => `/api/runs/compare?${query}`,
    (view, words) => {
      showWrong(wrong, words);
      if (view) draw(view);
    },
    (view) => view.state === "running" || view.state === "stopped" || view.runs.some((run) => run.state === "running"),
  );
}

function rankingTable(ranking) {
  const rows = ranking.rows.map(([first, ...cells], place) => [element("span", {}, swatch(ranking.colours[place]), first), ...cells]);
  const made = table("What the runs took", ranking.titles, rows, { class: "ranking" });
  made.querySelectorAll("tbody tr").forEach((row, place) => row.classList.add(...(ranking.missed[place] ? ["missed"] : place === ranking.best ? ["best"] : [])));
  const button = element("button", { type: "button", class: "quiet", "aria-label": "Save the comparison as CSV", onclick: () => save(csvOf([ranking.titles, ...ranking.rows]), "comparison.csv", "text/csv;charset=utf-8") }, "CSV");
  return element("div", { class: "data" }, element("div", { class: "exports" }, button), made);
}

function members(view) {
  const rows = view.runs.map((row) => [
    element("a", { href: folderAddress("run", row.folder) }, row.folder || "."),
    view.names[row.folder] ?? row.scheme,
    stateMark(row.state),
    row.problem ?? (row.rounds === null ? "-" : row.rounds.toLocaleString("en")),
    row.metric ?? "-",
    number(row.joules),
    bits(row.bits),
    number(row.seconds),
  ]);
  return table("Each run", ["folder", "name", "state", "rounds", "result", "joules", "bits", "seconds"], rows, { class: "members" });
}
