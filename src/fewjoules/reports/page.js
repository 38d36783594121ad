"use strict";
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const themes = {
  light: { "@ink": "#1d2127", "@grid": "#dfe3e8", "@paper": "#ffffff" },
  dark: { "@ink": "#e6e9ed", "@grid": "#343a42", "@paper": "#15181c" },
};
const font = getComputedStyle(document.body).fontFamily;

function draw(theme) {
  for (const place of document.querySelectorAll("[data-figure]")) {
    const text = document.getElementById(place.dataset.figure).textContent;
    const coloured = (key, value) => (key.endsWith("color") && Object.hasOwn(theme, value) ? theme[value] : value);
    const figure = JSON.parse(text, coloured);
    figure.layout.font.family = font;
    Plotly.react(place, figure.data, figure.layout, { responsive: true, displaylogo: false, displayModeBar: false });
  }
}

const current = () => (dark.matches ? themes.dark : themes.light);
draw(current());
dark.addEventListener("change", () => draw(current()));
window.addEventListener("beforeprint", () => draw(themes.light));
window.addEventListener("afterprint", () => draw(current()));
