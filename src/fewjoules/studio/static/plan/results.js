// What was planned: the result line, tables, figures, and the file and command that plan the same.
import { copy, element, figure, figureFrame, save, table } from "../base.js";

let kinds = []; // of joules
let marks = []; // that say where a price comes from
const parts = {};

// A number with four significant digits.
export function number(given) {
  if (given === null || given === undefined) return "unknown";
  if (given === 0 || (Math.abs(given) >= 1e-3 && Math.abs(given) < 1e4)) return String(Number(given.toPrecision(4)));
  return Math.abs(given) >= 1e4 && Math.abs(given) < 1e7 ? Math.round(given).toLocaleString("en") : given.toExponential(3);
}

const gapText = (gap) => (gap === null ? "-" : gap <= 0 ? "0" : gap.toExponential(0));

// Make the places of all results once: the result line in head, and the element of all others, which is returned.
export function drawResults(head, known) {
  kinds = Object.keys(known.kinds);
  marks = known.marks;
  const legend = Object.entries(known.kinds);
  parts.line = element("p", { class: "line", id: "result", role: "status", "aria-live": "polite" }, "No plan yet.");
  parts.wrong = element("p", { class: "wrong", id: "wrong", role: "alert" });
  parts.cards = element("dl", { class: "cards" });
  parts.speed = element("p", { class: "notice", id: "speed" });
  parts.groupTable = element("div", { class: "wide" });
  parts.groups = figureFrame("joules-by-group", "Joules by group and kind", "Of the whole training, all devices of a group together.", legend);
  parts.split = element("div");
  parts.ridge = figureFrame("ridge", "Joules for each H", "The least energy with the best sparsity at each number of local steps, where a plan keeps all constraints. The mark is the plan.");
  parts.schemes = figureFrame("schemes", "What each scheme would cost", "", legend);
  parts.schemeTable = element("div");
  parts.constraints = element("section", { class: "figure", id: "constraints" });
  parts.remarks = element("section", { class: "figure", id: "remarks" });
  parts.reproduce = element("section", { class: "figure", id: "reproduce" });
  const body = element("div", { class: "grid" },
    parts.groupTable,
    element("div", { class: "stack" }, parts.ridge, parts.constraints),
    element("div", { class: "stack" }, parts.groups, parts.split),
    element("div", { class: "stack" }, parts.schemes, parts.schemeTable),
    element("div", { class: "stack" }, parts.remarks, parts.reproduce));
  parts.body = element("div", { class: "results" }, parts.cards, parts.speed, body);
  head.replaceChildren(element("h1", {}, "Plan"), parts.line, parts.wrong);
  return parts.body;
}

// Grey all results, until each part arrives, or tell that all have arrived.
export function setStale(stale) {
  for (const one of Object.values(owned()).flat()) one.classList.toggle("stale", stale);
  parts.body.setAttribute("aria-busy", String(stale));
}

// What each part of the answer draws.
function owned() {
  const { cards, speed, groupTable, groups, split, reproduce, ridge, schemes, schemeTable, constraints, remarks } = parts;
  return { plan: [cards, speed, groupTable, groups, split, reproduce], ridge: [ridge], schemes: [schemes, schemeTable], constraints: [constraints], remarks: [remarks] };
}

export function showError(sentence) {
  parts.wrong.textContent = sentence;
}

const show = {
  plan(part) {
    const { plan } = part;
    const seconds = plan.seconds === null ? "in unknown time" : `in ${number(plan.seconds)} s`;
    parts.line.textContent = `${plan.scheme}: H = ${plan.local_steps}, ${number(plan.rounds)} rounds, ${number(plan.joules)} J ${seconds}; proved gap ${gapText(plan.gap)}.`;
    const cards = {
      "H, local steps": String(plan.local_steps), rounds: number(plan.rounds), joules: number(plan.joules),
      seconds: number(plan.seconds), "proved gap": gapText(plan.gap), devices: part.devices.toLocaleString("en"),
    };
    parts.cards.replaceChildren(...Object.entries(cards).map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
    const stands = part.each > 1 ? `, with ${part.devices === part.each ? "one device that stands" : `${(part.devices / part.each).toLocaleString("en")} devices that stand`} for ${part.each.toLocaleString("en")} equal ones${part.devices === part.each ? "" : " each"}` : "";
    parts.speed.textContent = `Planned ${part.devices.toLocaleString("en")} devices in ${number(part.milliseconds)} ms${stands}.`;
    showGroups(part);
    showSplit(part.joules);
    figure(parts.groups, part.figure, part.words);
    showReproduce(part);
  },
  ridge: (part) => figure(parts.ridge, part.figure, part.words),
  schemes(part) {
    const rows = part.schemes.map((one) => [one.scheme, String(one.local_steps), number(one.rounds), number(one.joules), number(one.seconds), gapText(one.gap), one.times === null ? "-" : one.times.toFixed(2)]);
    parts.schemeTable.replaceChildren(table("Schemes", ["scheme", "H", "rounds", "joules", "seconds", "proved gap", "x least"], rows));
    figure(parts.schemes, part.figure, part.words);
  },
  constraints(part) {
    const rows = part.constraints.map((one) => [one.constraint, number(one.with), number(one.without), one.without > 0 ? `${Math.max(0, 100 * (one.with / one.without - 1)).toFixed(2)} %` : "-", String(one.H)]);
    const none = element("p", { class: "notice" }, "No deadline and no battery limits this plan. Set one to see what it costs.");
    const found = rows.length ? table("Joules with and without", ["constraint", "with", "without", "more by", "H without"], rows) : none;
    parts.constraints.replaceChildren(element("h2", {}, "What a constraint costs"), found);
  },
  remarks(part) {
    parts.remarks.replaceChildren(element("h2", {}, "What is proved, and what is not"), element("ul", {}, ...part.remarks.map((one) => element("li", {}, one))));
  },
};

export function showPart(part) {
  if (part.error) {
    if (part.part !== "plan") showError(part.error);
    return;
  }
  show[part.part](part);
  for (const one of owned()[part.part]) one.classList.remove("stale");
}

function showGroups(part) {
  const total = part.plan.joules;
  const rows = part.groups.map((one) => {
    const joules = Object.values(one.joules).reduce((sum, kind) => sum + kind, 0);
    return [one.name, one.count.toLocaleString("en"), number(one.sparsity), one.entries.toLocaleString("en"), number(joules / one.count), number(joules), total > 0 ? `${((100 * joules) / total).toFixed(1)} %` : "-"];
  });
  if (part.plan.downlink_sparsity !== null) rows.push(["server", "", number(part.plan.downlink_sparsity), Math.max(1, Math.round(part.parameters / part.plan.downlink_sparsity)).toLocaleString("en"), "", "", ""]);
  parts.groupTable.replaceChildren(table("The plan by group", ["group", "devices", "sparsity", "entries sent", "J a device", "J in all", "share"], rows));
}

function showSplit(joules) {
  const given = marks.filter((mark) => Object.values(joules).some((split) => split[mark] > 0));
  const rows = kinds.filter((kind) => joules[kind]).map((kind) => [kind, ...given.map((mark) => (joules[kind][mark] ? number(joules[kind][mark]) : "")), number(Object.values(joules[kind]).reduce((sum, one) => sum + one, 0))]);
  parts.split.replaceChildren(table("Joules by kind, and where their prices come from", ["kind", ...given, "all"], rows));
}

function showReproduce(part) {
  const open = parts.reproduce.querySelector("details")?.open ?? false;
  const button = (words, act) => {
    const made = element("button", { type: "button", onclick: () => act(made) }, words);
    return made;
  };
  parts.reproduce.replaceChildren(
    element("h2", {}, "The same in a terminal"),
    element("p", {}, "Save the scenario, then run ", element("code", { id: "command" }, part.command)),
    element("p", { class: "buttons" },
      button("Save the scenario", () => save(part.toml, part.file, "application/toml")),
      button("Copy the command", (made) => copy(part.command, made)),
      button("Copy the address", (made) => copy(location.href, made))),
    element("details", { open }, element("summary", {}, "The scenario"), element("pre", { id: "toml", tabindex: "0" }, part.toml)),
  );
}
