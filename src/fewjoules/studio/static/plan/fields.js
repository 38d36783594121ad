// Inputs that edit one value of the scenario each, with a label, a slider where it helps, and room for an error.
import { element } from "../base.js";

let count = 0;

// Return round numbers from low to high in steps of 1, 2, 5.
export function series(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-9; power++) {
    for (const lead of [1, 2, 5]) {
      const one = Number(`${lead}e${power}`);
      if (one >= low * (1 - 1e-9) && one <= high * (1 + 1e-9)) found.push(one);
    }
  }
  return found;
}

export function shortNumber(number) {
  if (number === 0 || (Math.abs(number) >= 1e-3 && Math.abs(number) < 1e7)) return Number(number.toPrecision(6)).toLocaleString("en");
  return number.toExponential(2).replace("e+", "e").replace(".00e", "e");
}

function parsed(text, whole) {
  const trimmed = text.trim().replaceAll(",", "");
  if (trimmed === "") return undefined;
  const number = Number(trimmed);
  return Number.isFinite(number) && (!whole || Number.isInteger(number)) ? number : trimmed; // the planner says what is wrong
}

// Make a field. path is the dotted key, get and set read and write its value; sliderValues make a slider, whose right
// end removes the value if optional.
export function numberField({ path, label, unit = "", get, set, whole = false, sliderValues = null, optional = false, none = "none", placeholder = "" }) {
  const id = `field-${++count}`;
  const now = get();
  const input = element("input", { id, inputmode: whole ? "numeric" : "decimal", autocomplete: "off", spellcheck: "false", size: "8", "data-path": path, "aria-describedby": `${id}-wrong`, placeholder: placeholder || (optional ? none : "") });
  input.value = now === undefined ? "" : String(now);
  let slide = null;
  input.addEventListener("input", () => {
    set(parsed(input.value, whole));
    if (slide) place(slide, get());
  });
  const parts = [element("label", { for: id }, label, unit ? element("span", { class: "unit" }, ` (${unit})`) : null), input];
  if (sliderValues) {
    slide = slider(label, sliderValues, optional, none, (chosen) => {
      input.value = chosen === undefined ? "" : String(chosen);
      set(chosen);
    });
    place(slide, now);
    parts.push(slide);
  }
  parts.push(element("span", { class: "wrong", id: `${id}-wrong`, "data-wrong": path }));
  return element("div", { class: "field" }, ...parts);
}

function slider(label, values, optional, none, chosen) {
  const made = element("input", { type: "range", min: "0", max: String(values.length - (optional ? 0 : 1)), step: "1", "aria-label": `${label}, slider` });
  made.values = values;
  made.none = none;
  made.addEventListener("input", () => {
    const at = Number(made.value);
    made.setAttribute("aria-valuetext", at < values.length ? shortNumber(values[at]) : none);
    chosen(at < values.length ? values[at] : undefined);
  });
  return made;
}

// Move a slider to the value nearest to a number.
function place(slide, number) {
  let at = Number(slide.max);
  if (typeof number === "number") {
    at = slide.values.findIndex((one) => one >= number * (1 - 1e-9));
    if (at < 0) at = slide.values.length - 1;
  }
  slide.value = String(at);
  slide.setAttribute("aria-valuetext", typeof number === "number" ? shortNumber(number) : slide.none);
}

export function textField({ path, label, get, set, attributes = {} }) {
  const id = `field-${++count}`;
  const input = element("input", { id, autocomplete: "off", spellcheck: "false", "data-path": path, "aria-describedby": `${id}-wrong`, ...attributes });
  input.value = get() ?? "";
  input.addEventListener("input", () => set(input.value));
  return element("div", { class: "field" }, element("label", { for: id }, label), input, element("span", { class: "wrong", id: `${id}-wrong`, "data-wrong": path }));
}

export function choiceField({ path, label, options, get, set }) {
  const id = `field-${++count}`;
  const select = element("select", { id, "data-path": path, "aria-describedby": `${id}-wrong` }, ...options.map(([name, words]) => element("option", { value: name }, words)));
  select.value = get() ?? "";
  select.addEventListener("change", () => set(select.value));
  return element("div", { class: "field" }, element("label", { for: id }, label), select, element("span", { class: "wrong", id: `${id}-wrong`, "data-wrong": path }));
}

// Show an error beside the field it is about, or beside the nearest one that is on the page.
export function markWrong(sentence, path) {
  for (const place of document.querySelectorAll("[data-wrong]")) place.textContent = "";
  for (const input of document.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  if (!sentence || !path) return;
  for (let parts = path.split("."); parts.length > 0; parts.pop()) {
    const start = parts.join(".");
    const found = [...document.querySelectorAll("[data-wrong]")].find((one) => one.dataset.wrong === start || one.dataset.wrong.startsWith(`${start}.`));
    if (!found) continue;
    found.textContent = sentence;
    const input = [...document.querySelectorAll("[data-path]")].find((one) => one.dataset.path === found.dataset.wrong);
    if (input) input.setAttribute("aria-invalid", "true");
    for (let fold = found.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    return;
  }
}
