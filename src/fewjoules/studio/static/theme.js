// Runs before the page is drawn, so that a dark page does not flash white.
"use strict";
try {
  const chosen = localStorage.getItem("fewjoules-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch {
  // storage is switched off: the system's theme is used
}
