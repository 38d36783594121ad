// The list of all folders of results: sorted and filtered here, chosen by checkboxes for a comparison.

import { element } from "../base.js";
import { announcer, bits, date, folderAddress, number, showWrong, stateMark, watch, wrongLine } from "./parts.js";

const COLUMNS = [
  ["folder", "Folder", (row) => row.folder],
  ["state", "State", (row) => row.state],
  ["kind", "Kind", (row) => row.kind],
  ["scenario", "Scenario", (row) => row.scenario],
  ["scheme", "Scheme", (row) => row.scheme],
  ["rounds", "Rounds", (row) => row.rounds],
  ["metric", "Result", (row) => row.metric_value],
  ["joules", "Joules", (row) => row.joules],
  ["bits", "Bits", (row) => row.bits],
  ["seconds", "Seconds", (row) => row.seconds],
  ["changed", "Changed", (row) => row.changed],
];
const PAGE_OF = { run: "run", comparison: "compare", tuning: "tuning" };
const MOST_SHOWN = 500;

export async function show(main) {
  const query = new URLSearchParams(location.search);
  const state = { find: query.get("find") || "", kind: query.get("kind") || "", sort: query.get("sort") || "changed", order: query.get("order") || "falling", chosen: new Set(query.getAll("run")), rows: [], root: "", complete: true };
  const find = element("input", { type: "search", id: "find", value: state.find, placeholder: "folder, scenario, scheme, state", autocomplete: "off" });
  const kind = element("select", { id: "kind" }, ...["", "run", "comparison", "tuning"].map((one) => element("option", { value: one, selected: one === state.kind }, one ? `${one}s` : "all kinds")));
  const compare = element("a", { id: "compare", class: "button", role: "button" }, "Compare");
  const said = announcer();
  const wrong = wrongLine();
  const count = element("p", { class: "notice", id: "count" });
  const head = element("tr");
  const body = element("tbody");
  const caption = element("caption", {}, "Runs, comparisons and tunings");
  const table = element("table", { class: "runs" }, caption, element("thead", {}, head), body);
  const tools = element("div", { class: "tools" }, element("label", { for: "find" }, "Find"), find, element("label", { for: "kind" }, "Show"), kind, compare, element("a", { class: "button", href: "/api/runs/runs.csv", download: "runs.csv" }, "CSV"));
  main.replaceChildren(element("h1", {}, "Runs"), tools, wrong, count, said.place, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" }, table));

  function address() {
    const told = new URLSearchParams();
    for (const key of ["find", "kind"]) if (state[key]) told.set(key, state[key]);
    if (state.sort !== "changed" || state.order !== "falling") (told.set("sort", state.sort), told.set("order", state.order));
    for (const one of state.chosen) told.append("run", one);
    history.replaceState(null, "", told.size ? `/runs?${told}` : "/runs");
  }

  function drawHead() {
    const heads = COLUMNS.map(([key, title]) => {
      const sorted = state.sort === key;
      const button = element("button", { type: "button", class: "sort", onclick: () => sortBy(key) }, title, element("span", { "aria-hidden": "true" }, sorted ? (state.order === "falling" ? " ▾" : " ▴") : ""));
      return element("th", { scope: "col", "aria-sort": sorted ? (state.order === "falling" ? "descending" : "ascending") : null }, button);
    });
    head.replaceChildren(element("th", { scope: "col" }, element("span", { class: "visually-hidden" }, "Compare")), ...heads);
  }

  function sortBy(key) {
    state.order = state.sort === key && state.order === "rising" ? "falling" : "rising";
    state.sort = key;
    draw();
    address();
    head.querySelectorAll("button.sort")[COLUMNS.findIndex(([one]) => one === key)].focus();
  }

  function wanted() {
    const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => [row.folder, row.kind, row.scenario, row.scheme, row.state, row.metric, row.problem].join(" ").toLowerCase();
    return state.rows.filter((row) => (!state.kind || row.kind === state.kind) && words.every((word) => text(row).includes(word)));
  }

  function sorted(rows) {
    const value = COLUMNS.find(([key]) => key === state.sort)?.[2] ?? COLUMNS[0][2];
    const sign = state.order === "falling" ? -1 : 1;
    return rows.toSorted((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === b) return one.folder < other.folder ? -1 : 1;
      if (a === null || a === "") return 1;
      if (b === null || b === "") return -1;
      return sign * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
    });
  }

  function draw() {
    drawHead();
    const rows = sorted(wanted());
    const focused = document.activeElement?.dataset?.folder;
    body.replaceChildren(...rows.slice(0, MOST_SHOWN).map(line));
    if (focused !== undefined) body.querySelector(`[data-folder="${CSS.escape(focused)}"]`)?.focus();
    const more = rows.length > MOST_SHOWN ? `; the first ${MOST_SHOWN} are shown, find narrows them` : "";
    const rest = state.complete ? "" : "; not every folder was looked at: start the studio in a smaller one";
    count.textContent = state.rows.length ? `${rows.length} of ${state.rows.length} folders of results below ${state.root}${more}${rest}` : `No results below ${state.root} yet${rest}. fewjoules train, compare and tune make some.`;
    drawChosen();
  }

  function drawChosen() {
    const known = new Set(state.rows.map((row) => row.folder));
    for (const one of state.chosen) if (!known.has(one)) state.chosen.delete(one);
    const told = new URLSearchParams([...state.chosen].map((one) => ["run", one]));
    if (state.chosen.size) compare.setAttribute("href", `/runs/compare?${told}`);
    else compare.removeAttribute("href");
    compare.setAttribute("aria-disabled", String(!state.chosen.size));
    compare.textContent = state.chosen.size ? `Compare ${state.chosen.size} chosen` : "Compare: tick runs";
  }

  function line(row) {
    const name = row.folder || ".";
    const box = element("input", { type: "checkbox", "aria-label": `Compare ${name}`, checked: state.chosen.has(row.folder), disabled: row.kind === "tuning" || row.state === "damaged", "data-folder": row.folder });
    box.checked = state.chosen.has(row.folder);
    box.addEventListener("change", () => {
      if (box.checked) state.chosen.add(row.folder);
      else state.chosen.delete(row.folder);
      drawChosen();
      address();
      said.say(`${state.chosen.size} chosen`);
    });
    const link = element("a", { href: folderAddress(PAGE_OF[row.kind], row.folder), title: name }, name);
    const first = element("th", { scope: "row" }, link);
    if (row.problem) {
      const problem = element("td", { colspan: "6", class: "problem" }, row.problem);
      return element("tr", { class: "damaged" }, element("td", {}, box), first, element("td", {}, stateMark(row.state)), element("td", {}, row.kind), element("td", { class: "text", title: row.scenario }, row.scenario), problem, element("td", {}, date(row.changed)));
    }
    const rounds = row.kind === "tuning" && row.rounds !== null ? `${row.rounds} pilots` : row.rounds === null ? "-" : row.rounds.toLocaleString("en");
    const cells = [stateMark(row.state), row.kind, row.scenario, row.scheme, rounds, row.metric ?? "-", number(row.joules), bits(row.bits), number(row.seconds), date(row.changed)];
    return element("tr", {}, element("td", {}, box), first, ...cells.map((cell, place) => element("td", place === 2 || place === 3 ? { class: "text", title: cell } : {}, cell)));
  }

  find.addEventListener("input", () => ((state.find = find.value), draw(), address(), said.say(count.textContent)));
  kind.addEventListener("change", () => ((state.kind = kind.value), draw(), address()));
  await watch(
    () => "/api/runs",
    (answer, words) => {
      showWrong(wrong, words);
      if (!answer) return;
      Object.assign(state, { rows: answer.rows, root: answer.root, complete: answer.complete });
      draw();
    },
    () => true,
    2000,
  );
}
