// What the views share: elements whose text is never HTML, tables, figures with exports, requests and the theme.

const THEMES = {
  light: { "@ink": "#1d2127", "@grid": "#dfe3e8", "@paper": "#ffffff" },
  // dark colours of schemes get lighter ones of the same hue
  dark: { "@ink": "#e6e9ed", "@grid": "#343a42", "@paper": "#15181c", "#882255": "#d9739f", "#0072B2": "#4aa8e0", "#332288": "#9a8fe8" },
};
const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
const shown = new Map(); // figures on the page by the element that holds them

// Make an element; children are elements or text, and attributes that begin with "on" are listeners.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Make a table with a caption; the first cell of each row names it. Cells are text or elements.
export function table(caption, titles, rows, attributes = {}) {
  const head = element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)));
  const body = rows.map(([first, ...cells]) =>
    element("tr", {}, element("th", { scope: "row" }, first), ...cells.map((cell) => element("td", {}, cell))),
  );
  const made = element("table", attributes, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made);
}

// Ask the studio; throw an Error with its one sentence where it refuses. The answer's other keys are in error.answer.
export async function ask(address, posted = null, signal = null) {
  const options = posted === null ? { signal } : { signal, method: "POST", body: JSON.stringify(posted), headers: { "Content-Type": "application/json" } };
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The studio does not answer; is it still running?");
  }
  const kind = response.headers.get("Content-Type") || "";
  const answer = kind.startsWith("application/json") ? await response.json() : { error: await response.text() };
  if (!response.ok) throw Object.assign(new Error(answer.error || `The studio answered ${response.status}.`), { answer });
  return answer;
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemDark.matches;
}

function coloured(value, theme) {
  if (Array.isArray(value)) return value.map((one) => coloured(one, theme));
  if (value === null || typeof value !== "object") return Object.hasOwn(theme, value) ? theme[value] : value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, key.endsWith("color") || typeof one === "object" ? coloured(one, theme) : one]));
}

// Draw a figure made by Python (Plotly JSON) in an element that figureFrame made. words describe it in a sentence.
export function figure(frame, drawn, words) {
  shown.set(frame, { drawn, words });
  frame.hidden = false;
  const place = frame.querySelector(".plot");
  place.setAttribute("aria-label", words);
  frame.querySelector(".words").textContent = words;
  redraw(frame);
}

function redraw(frame) {
  const { drawn } = shown.get(frame);
  const { data, layout } = coloured(drawn, isDark() ? THEMES.dark : THEMES.light);
  layout.font = { ...layout.font, family: getComputedStyle(document.body).fontFamily };
  window.Plotly.react(frame.querySelector(".plot"), data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
}

// Make the frame of a figure: heading, caption, legend (a list of [name, colour]), the plot, its words and exports.
export function figureFrame(name, title, caption = "", legend = []) {
  const entries = legend.map(([words, colour]) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = colour;
    return element("span", {}, swatch, words);
  });
  const frame = element("section", { class: "figure", id: name, "aria-labelledby": `${name}-title` });
  frame.append(
    element("div", { class: "figure-head" }, element("h2", { id: `${name}-title` }, title), exportMenu(name, frame)),
    element("p", { class: "caption" }, caption),
    element("p", { class: "legend" }, ...entries),
    element("div", { class: "plot", role: "img" }),
    element("details", { class: "alternative" }, element("summary", {}, "In words"), element("p", { class: "words" })),
  );
  return frame;
}

function exportMenu(name, frame) {
  const one = (format) =>
    element("button", { type: "button", class: "quiet", "aria-label": `Save ${name} as ${format.toUpperCase()}`, onclick: () => exportFigure(frame, name, format) }, format.toUpperCase());
  return element("div", { class: "exports", role: "group", "aria-label": `Save ${name}` }, one("png"), one("svg"));
}

async function exportFigure(frame, name, format) {
  const { drawn } = shown.get(frame);
  const { data, layout } = coloured(drawn, THEMES.light);
  const look = { ...layout, paper_bgcolor: "#ffffff", font: { ...layout.font, family: "Arial, sans-serif" } };
  const size = { format, width: 900, height: layout.height || 380, scale: format === "png" ? 2 : 1 };
  const made = await window.Plotly.toImage({ data, layout: look }, size);
  const bytes = await (format === "svg" ? svgBytes(made) : pngBytes(made));
  save(bytes, `${name}.${format}`);
}

function svgBytes(address) {
  return new Blob([decodeURIComponent(address.slice(address.indexOf(",") + 1))], { type: "image/svg+xml" });
}

function pngBytes(address) {
  const text = atob(address.slice(address.indexOf(",") + 1));
  return new Blob([Uint8Array.from(text, (letter) => letter.charCodeAt(0))], { type: "image/png" });
}

// Let the browser save text or bytes as a file.
export function save(content, name, type = "text/plain;charset=utf-8") {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// Copy text and say so on the button.
export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Cannot copy";
  }
  setTimeout(() => (button.textContent = before), 1500);
}

function showTheme() {
  const button = document.getElementById("theme");
  button.setAttribute("aria-pressed", String(isDark()));
  for (const frame of shown.keys()) if (frame.isConnected) redraw(frame);
}

function toggleTheme() {
  const chosen = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem("fewjoules-theme", chosen);
  } catch {
    // storage is switched off: the choice lasts as long as the page
  }
  showTheme();
}

document.getElementById("theme").addEventListener("click", toggleTheme);
systemDark.addEventListener("change", showTheme);
showTheme();
