// What the views of runs share: watching, sections of figures, tables with CSV, commands, and numbers as text.

import { copy, element, figure, figureFrame, save, table } from "../base.js";

const WATCH_MS = 1000;

export const folderAddress = (page, folder) => `/runs/${page}?${new URLSearchParams({ folder })}`;

export function number(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e4)) return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 20 });
  return size >= 1e4 && size < 1e7 ? Math.round(value).toLocaleString("en") : value.toExponential(3);
}

export function bits(value) {
  if (value === null || value === undefined) return "-";
  const units = ["bit", "kbit", "Mbit", "Gbit", "Tbit", "Pbit"];
  const place = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(value, 1)) / 3)));
  return `${Number((value / 1000 ** place).toPrecision(4))} ${units[place]}`;
}

export function date(seconds) {
  if (!seconds) return "-";
  const told = new Date(seconds * 1000);
  const two = (part) => String(part).padStart(2, "0");
  return `${told.getFullYear()}-${two(told.getMonth() + 1)}-${two(told.getDate())} ${two(told.getHours())}:${two(told.getMinutes())}`;
}

export const stateMark = (state) => element("span", { class: `state ${state}` }, state);

// Ask an address again and again and pass on what changed; goesOn tells whether to ask once more.
export function watch(address, show, goesOn, every = WATCH_MS) {
  let tag = null;
  async function once() {
    try {
      const response = await fetch(address(), { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (response.status !== 304) {
        const kind = response.headers.get("Content-Type") || "";
        const answer = kind.startsWith("application/json") ? await response.json() : { error: await response.text() };
        if (!response.ok) throw new Error(answer.error || `The studio answered ${response.status}.`);
        tag = response.headers.get("ETag");
        await show(answer, null);
        if (!goesOn(answer)) return;
      }
    } catch (error) {
      const words = error instanceof TypeError ? "The studio does not answer; is it still running?" : error.message;
      await show(null, words);
      tag = null;
    }
    setTimeout(once, document.hidden ? 5 * every : every);
  }
  return once();
}

// A paragraph that a screen reader reads out when its text changes.
export function announcer() {
  const place = element("p", { class: "visually-hidden", "aria-live": "polite" });
  let said = "";
  let last = 0;
  return {
    place,
    say(text) {
      if (text === said || Date.now() - last < 5000) return;
      said = text;
      last = Date.now();
      place.textContent = text;
    },
  };
}

const slug = (title) => title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "");

// Draw sections in a place; what is there already is drawn anew, so that nothing jumps while a run is watched.
export function drawSections(place, sections, prefix = "") {
  const wanted = new Set();
  for (const section of sections) {
    const id = `${prefix}${slug(section.title)}`;
    wanted.add(id);
    let group = document.getElementById(id);
    if (!group || group.dataset.panels !== String(section.panels.length)) {
      const made = newGroup(id, section);
      if (group) group.replaceWith(made);
      else place.append(made);
      group = made;
    }
    group.querySelector(".section-caption").textContent = section.caption;
    section.panels.forEach(({ figure: drawn, words }, place) => figure(document.getElementById(`${id}-${place + 1}`), drawn, words));
    const numbers = group.querySelector(".numbers");
    const open = numbers.querySelector("details")?.open;
    numbers.replaceChildren(...(section.numbers ? [numbersTable(section, id, open)] : []));
  }
  for (const child of [...place.children]) if (!wanted.has(child.id)) child.remove();
  [...wanted].forEach((id, number) => {
    const group = document.getElementById(id);
    if (place.children[number] !== group) place.insertBefore(group, place.children[number]);
  });
}

function newGroup(id, section) {
  const many = section.panels.length > 1;
  const frames = section.panels.map((panel, place) => {
    const title = many ? panelTitle(section, panel, place) : section.title;
    return figureFrame(`${id}-${place + 1}`, title, "", many ? [] : section.legend);
  });
  const heading = many || !frames.length ? [element("h2", {}, section.title)] : [];
  const legend = many && section.legend.length ? [legendOf(section.legend)] : [];
  const panels = element("div", { class: many ? "panels many" : "panels" }, ...frames);
  panels.querySelectorAll("h2").forEach((title, place) => {
    if (many) title.classList.add(section.panels[place].figure.layout.title ? "visually-hidden" : "small");
  });
  const caption = element("p", { class: "caption section-caption" }, section.caption);
  const group = element("div", { class: "group", id }, ...heading, caption, ...legend, panels, element("div", { class: "numbers" }));
  if (!many && frames.length) frames[0].querySelector(".figure-head").after(caption);
  for (const empty of group.querySelectorAll(".figure > .caption:not(.section-caption)")) empty.remove();
  group.dataset.panels = String(section.panels.length);
  return group;
}

function panelTitle(section, panel, place) {
  const told = panel.figure.layout.title?.text;
  const axis = panel.figure.layout.xaxis?.title?.text;
  return told ? decoded(told) : axis ? `by ${axis}` : `${section.title} ${place + 1}`;
}

// Titles of figures are HTML in which names are escaped; a heading needs the text itself.
const decoded = (text) => new DOMParser().parseFromString(text, "text/html").documentElement.textContent;

function legendOf(entries) {
  return element("p", { class: "legend" }, ...entries.map(([words, colour]) => element("span", {}, swatch(colour), words)));
}

export function swatch(colour) {
  const made = element("span", { class: "swatch" });
  made.style.background = colour === "@ink" ? "var(--ink)" : colour;
  return made;
}

function numbersTable(section, id, open) {
  const made = dataTable(section.title, section.numbers.titles, section.numbers.rows, `${id}.csv`);
  if (!section.panels.length) made.querySelector("caption").classList.add("visually-hidden");
  return section.panels.length ? element("details", { open: Boolean(open) }, element("summary", {}, "The numbers as a table"), made) : made;
}

// A table with a button that saves it as CSV.
export function dataTable(caption, titles, rows, name, attributes = {}) {
  const button = element("button", { type: "button", class: "quiet", "aria-label": `Save ${caption} as CSV`, onclick: () => save(csvOf([titles, ...rows]), name, "text/csv;charset=utf-8") }, "CSV");
  return element("div", { class: "data" }, element("div", { class: "exports" }, button), table(caption, titles, rows, attributes));
}

export function csvOf(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    const safe = /^[=+@\t\r]|^-(?![\d.]|$)/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
}

// The commands that repeat or continue what a view shows.
export function commandList(commands) {
  const entries = Object.entries(commands);
  if (!entries.length) return element("div");
  const lines = entries.map(([what, command]) => {
    const button = element("button", { type: "button", class: "quiet", "aria-label": `Copy: ${what}` }, "Copy");
    button.addEventListener("click", () => copy(command, button));
    return element("div", { class: "command" }, element("p", {}, what), element("pre", { tabindex: "0" }, element("code", {}, command)), button);
  });
  return element("section", { class: "commands panel", "aria-label": "Commands" }, element("h2", {}, "Commands"), element("p", { class: "caption" }, "To be run in the folder of the studio."), ...lines);
}

export const remarkList = (sentences) => element("ul", { class: "remarks" }, ...sentences.map((one) => element("li", {}, one)));

export function facts(entries) {
  const rows = entries.map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)));
  return element("table", { class: "facts" }, element("caption", {}, "How this was made"), element("tbody", {}, ...rows));
}

export function scenarioText(text) {
  return text ? element("details", {}, element("summary", {}, "The scenario file"), element("pre", { tabindex: "0" }, text)) : element("div");
}

export const wrongLine = () => element("p", { class: "wrong", role: "alert", hidden: true });

export function showWrong(place, words) {
  place.hidden = !words;
  if (place.textContent !== (words || "")) place.textContent = words || "";
}
