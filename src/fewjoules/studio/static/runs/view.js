// The runs view: each address has its own module.

const views = {
  "/runs": "./list.js",
  "/runs/run": "./run.js",
  "/runs/tuning": "./tuning.js",
  "/runs/compare": "./compare.js",
  "/runs/ledger": "./ledger.js",
};
const { show } = await import(views[location.pathname]);
await show(document.getElementById("main"));
