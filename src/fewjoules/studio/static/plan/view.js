// The plan view: the form on one side, what follows from it on the other.
import { ask, element } from "../base.js";
import { drawEditor, showCompleted } from "./editor.js";
import { markWrong } from "./fields.js";
import { drawResults, setStale, showError, showPart } from "./results.js";
import { address, fromAddress, load, posted, state } from "./state.js";
import { drawMeanings } from "./meanings.js";

const WAIT = 60; // milliseconds after an edit, in which further edits join it
let timer = null;
let asking = null;
let sources = { files: [], profiles: {}, kinds: {}, marks: [] };

const picker = element("select", { id: "source" });
const form = element("form", { class: "editor", "aria-label": "Scenario", onsubmit: (event) => event.preventDefault() });
const head = element("div", { class: "head", id: "head" });

function drawPage() {
  const side = element("aside", { class: "side", "aria-label": "What to plan" },
    element("div", { class: "field source" }, element("label", { for: "source" }, "Scenario"), picker), form);
  document.getElementById("main").replaceChildren(element("div", { class: "plan" }, side, element("div", { class: "right" }, head, drawResults(head, sources), drawMeanings())));
  picker.addEventListener("change", () => picker.value && choose(JSON.parse(picker.value)));
}

function drawPicker() {
  const option = (origin, words) => element("option", { value: JSON.stringify(origin) }, words);
  const files = sources.files.map((name) => option({ file: name }, name));
  const examples = [option({ example: "embedded" }, "four groups of phones (embedded)"), ...Object.keys(sources.profiles).map((name) => option({ example: name }, `100 devices: ${name}`))];
  const groups = [element("optgroup", { label: "Examples" }, ...examples)];
  if (files.length) groups.unshift(element("optgroup", { label: "Files" }, ...files));
  picker.replaceChildren(element("option", { value: "" }, "edited"), ...groups);
}

function showSource() {
  picker.options[0].textContent = `${state.name}, edited`;
  const wanted = state.origin === null ? "" : JSON.stringify(state.origin);
  if (picker.value !== wanted) picker.value = [...picker.options].some((one) => one.value === wanted) ? wanted : "";
}

async function choose(origin) {
  try {
    load(await ask(`/api/plan/source?${new URLSearchParams(origin)}`), origin);
  } catch (error) {
    showError(error.message);
    setStale(true);
    return;
  }
  drawEditor(form, sources.profiles, edited);
  edited();
}

function edited() {
  setStale(true);
  showSource();
  clearTimeout(timer);
  timer = setTimeout(plan, WAIT);
}

async function plan() {
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  history.replaceState(null, "", await address());
  try {
    let failed = false;
    for await (const part of answered(mine.signal)) {
      if (mine !== asking) return;
      if (part.part === "plan") {
        failed = Boolean(part.error);
        showError(part.error ?? "");
        markWrong(part.error, part.field);
        if (!failed) showCompleted(part.completed);
      }
      showPart(part);
    }
    if (!failed) setStale(false);
  } catch (error) {
    if (error.name === "AbortError") return;
    showError(error.message);
    markWrong(error.message, null);
  }
}

// Yield the parts of the plan as they arrive, one line of JSON each.
async function* answered(signal) {
  let response;
  try {
    response = await fetch("/api/plan", { method: "POST", body: JSON.stringify(posted()), headers: { "Content-Type": "application/json" }, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The studio does not answer; is it still running?");
  }
  if (!response.ok) {
    const kind = response.headers.get("Content-Type") ?? "";
    throw new Error(kind.startsWith("application/json") ? (await response.json()).error : await response.text());
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

async function start() {
  let given = null;
  let failure = "";
  try {
    sources = await ask("/api/plan/sources");
    given = await fromAddress(location.hash);
  } catch (error) {
    failure = error.message;
  }
  drawPage();
  drawPicker();
  showError(failure);
  if (given !== null) {
    load(given, null);
    drawEditor(form, sources.profiles, edited);
    edited();
    return;
  }
  if (failure) return;
  const query = new URLSearchParams(location.search);
  if (query.has("file")) await choose({ file: query.get("file") });
  else if (query.has("example") || sources.files.length !== 1) await choose({ example: query.get("example") ?? "embedded" });
  else await choose({ file: sources.files[0] });
}

start();
window.addEventListener("hashchange", async () => {
  if (location.hash.startsWith("#s=")) location.reload();
  else history.replaceState(null, "", await address()); // the skip link has replaced the scenario in the address
});
