// The ledger of a run: filters and sorting in the address, one page of rows at a time, and the sums of all of them.

import { ask, copy, element } from "../base.js";
import { announcer, folderAddress, number, showWrong, wrongLine } from "./parts.js";

const FILTERS = ["device", "group", "from", "to", "kind"];
const WORDS = { round: "round", device: "device", name: "name", group: "group", delivered: "arrived" };

export async function show(main) {
  const query = new URLSearchParams(location.search);
  const folder = query.get("folder") || "";
  const said = announcer();
  const wrong = wrongLine();
  const groups = element("datalist", { id: "groups" });
  const inputs = {
    device: element("input", { id: "device", placeholder: "3, 5-8 or a name", size: "14" }),
    group: element("input", { id: "group", list: "groups", size: "12" }),
    from: element("input", { id: "from", inputmode: "numeric", size: "6" }),
    to: element("input", { id: "to", inputmode: "numeric", size: "6" }),
    kind: element("select", { id: "kind" }, element("option", { value: "" }, "all kinds")),
  };
  const words = { device: "Device", group: "Group", from: "From round", to: "to round", kind: "Joules of" };
  const form = element("form", { class: "tools" }, ...FILTERS.map((key) => element("span", { class: "field" }, element("label", { for: key }, words[key]), inputs[key])), element("button", { type: "submit" }, "Filter"), element("button", { type: "reset" }, "Clear"), groups);
  const count = element("p", { class: "notice", id: "count", "aria-live": "polite" });
  const sums = element("dl", { class: "sums", "aria-label": "Sums of the rows that are filtered" });
  const table = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ledger" });
  const pager = element("nav", { class: "pager", "aria-label": "Pages" });
  const file = element("a", { class: "button", download: "ledger.csv" }, "CSV of these rows");
  const code = element("code");
  const copyButton = element("button", { type: "button", class: "quiet", "aria-label": "Copy the line of Python" }, "Copy");
  copyButton.addEventListener("click", () => copy(code.textContent, copyButton));
  const command = element("section", { class: "commands panel" }, element("h2", {}, "The same rows in Python"), element("div", { class: "command" }, element("pre", { tabindex: "0" }, code), copyButton));
  const where = element("p", { class: "where" }, element("span", {}, folder || "."), element("a", { href: folderAddress("run", folder) }, "Run"), element("a", { href: "/runs" }, "All runs"));
  main.replaceChildren(where, element("h1", {}, "Ledger"), form, wrong, said.place, count, sums, element("div", { class: "tools" }, file, pager), table, command);

  let filled = false;
  async function draw(focus = null) {
    for (const key of FILTERS) inputs[key].value = query.get(key) || "";
    history.replaceState(null, "", `/runs/ledger?${query}`);
    table.classList.add("stale");
    let view;
    try {
      view = await ask(`/api/runs/ledger?${query}`);
    } catch (error) {
      showWrong(wrong, error.message);
      return;
    } finally {
      table.classList.remove("stale");
    }
    showWrong(wrong, null);
    if (!filled) {
      groups.replaceChildren(...view.groups.map((one) => element("option", { value: one })));
      inputs.kind.append(...view.kinds.map((one) => element("option", { value: one }, one)));
      inputs.kind.value = query.get("kind") || "";
      filled = true;
    }
    const more = view.state === "finished" ? "" : "; the run is not finished, and the ledger is written with each checkpoint";
    count.textContent = `${view.total.toLocaleString("en")} rows${more}`;
    drawSums(view);
    table.replaceChildren(rowsTable(view));
    drawPager(view);
    const wanted = new URLSearchParams(query);
    for (const key of ["page", "size", "sort", "order"]) wanted.delete(key);
    file.setAttribute("href", `/api/runs/ledger.csv?${wanted}`);
    code.textContent = view.command;
    if (focus) document.getElementById(focus)?.focus();
  }

  function drawSums(view) {
    const joules = Object.entries(view.sums).filter(([name]) => name.endsWith("_joules") && !name.startsWith("planned"));
    const total = joules.reduce((sum, [, value]) => sum + value, 0);
    const all = joules.length > 1 ? [["all joules", total], ...Object.entries(view.sums)] : Object.entries(view.sums);
    sums.replaceChildren(...all.flatMap(([name, value]) => [element("div", {}, element("dt", {}, name.replaceAll("_", " ")), element("dd", { "data-sum": name, "data-value": String(value) }, number(value)))]));
  }

  function rowsTable(view) {
    const heads = view.columns.map((name, place) => {
      const sorted = query.get("sort") === name || (!query.get("sort") && name === "round");
      const falling = sorted && query.get("order") === "falling";
      const unit = view.units[place] && view.units[place] !== "1" && !name.endsWith(view.units[place]) ? ` (${view.units[place]})` : "";
      const title = (WORDS[name] ?? name.replaceAll("_", " ")) + unit;
      const button = element("button", { type: "button", class: "sort", id: `sort-${name}`, onclick: () => sortBy(name) }, title, element("span", { "aria-hidden": "true" }, sorted ? (falling ? " ▾" : " ▴") : ""));
      return element("th", { scope: "col", class: name === "name" || name === "group" || name.endsWith("_mark") ? "text" : null, "aria-sort": sorted ? (falling ? "descending" : "ascending") : null }, button);
    });
    const text = (value) => (value === null ? "-" : typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "number" && !Number.isInteger(value) ? number(value) : typeof value === "number" ? value.toLocaleString("en") : value);
    const rows = view.rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", typeof cell === "string" ? { class: "text", title: cell } : {}, text(cell)))));
    return element("table", { class: "ledger" }, element("caption", {}, `Ledger of ${folder || "."}`), element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
  }

  function drawPager(view) {
    const to = (page, title, id) => element("button", { type: "button", id, disabled: page < 1 || page > view.pages || page === view.page, onclick: () => (query.set("page", page), draw(id)) }, title);
    const size = element("select", { "aria-label": "Rows on a page", onchange: (event) => (query.set("size", event.target.value), query.delete("page"), draw()) }, ...view.sizes.map((one) => element("option", { value: one }, `${one} rows`)));
    size.value = query.get("size") || "50";
    pager.replaceChildren(to(1, "First", "first"), to(view.page - 1, "Previous", "before"), element("span", {}, `Page ${view.page.toLocaleString("en")} of ${view.pages.toLocaleString("en")}`), to(view.page + 1, "Next", "next"), to(view.pages, "Last", "last"), size);
  }

  function sortBy(name) {
    const rising = query.get("sort") === name && query.get("order") !== "falling";
    query.set("sort", name);
    if (rising) query.set("order", "falling");
    else query.delete("order");
    query.delete("page");
    draw(`sort-${name}`);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    for (const key of FILTERS) {
      const value = inputs[key].value.trim();
      if (value) query.set(key, value);
      else query.delete(key);
    }
    query.delete("page");
    draw();
  });
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    for (const key of [...FILTERS, "page"]) query.delete(key);
    draw();
  });
  inputs.kind.addEventListener("change", () => form.requestSubmit());
  await draw();
}
