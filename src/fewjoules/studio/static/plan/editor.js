// The form: model, limits, prices, rounds laws and groups of the scenario.
import { element } from "../base.js";
import { change, setPrice, state, value } from "./state.js";
import { choiceField, numberField, series, shortNumber, textField } from "./fields.js";

const MOST_GROUPS = 40;
const PRICES = { bit: "Price of a bit", step: "Price of a step", tail: "Price of a tail" };
const LAWS = {
  "power-law": { tau: 1500, c: 0.01, a: 0.5, q: 0.6 },
  paper: { alpha: 1e-4, beta: 1e4 },
  bound: { smoothness: 1, sigma: 1, gradient_bound: 1, initial_gap: 1, batch: 32, epsilon: 0.1 },
};
const RADIO = [
  ["radio.power_watts", "Power while sending", "W"],
  ["radio.bandwidth_hertz", "Bandwidth", "Hz"],
  ["radio.mean_snr_db", "Mean signal to noise", "dB"],
];
const COSTS = [
  ["joules_per_bit", "Bit sent", "J"],
  ["seconds_per_bit", "Bit sent", "s"],
  ["message_joules", "Message, whatever its length", "J"],
  ["message_seconds", "Message, whatever its length", "s"],
  ["downlink_joules_per_bit", "Bit received", "J"],
  ["downlink_seconds_per_bit", "Bit received", "s"],
  ["tail_watts", "Tail of the radio", "W"],
  ["tail_seconds", "Tail of the radio", "s"],
  ["promotion_joules", "Waking the radio", "J"],
  ["joules_per_step", "Local step", "J"],
  ["seconds_per_step", "Local step", "s"],
  ["joules_per_sample", "Sample of a step", "J"],
  ["seconds_per_sample", "Sample of a step", "s"],
  ["joules_per_flop", "Operation of a step", "J"],
  ["seconds_per_flop", "Operation of a step", "s"],
  ["codec_joules_per_parameter", "Codec, a parameter", "J"],
  ["codec_joules_per_entry", "Codec, an entry", "J"],
];

let changed = () => {};
let rebuild = () => {};
let profiles = {};
let completed = []; // each device with what its profile adds

// Draw the form into an element; onChange is called after each edit.
export function drawEditor(form, known, onChange) {
  profiles = known;
  changed = onChange;
  rebuild = () => {
    form.replaceChildren(limitsPart("limits", "Limits"), pricesPart(), groupsPart(), ...lawParts(), modelPart());
  };
  rebuild();
}

function bound(path, after = () => {}) {
  return {
    path: path.join("."),
    get: () => value(path),
    set: (given) => {
      change(path, given);
      after();
      changed();
    },
  };
}

function part(title, ...children) {
  return element("fieldset", {}, element("legend", {}, title), ...children);
}

function limitsPart(table, title) {
  const at = table.split(".");
  const steps = value([...at, "local_steps"]);
  const fields = Array.isArray(steps) ? [listedSteps([...at, "local_steps"])] : [
    numberField({ ...bound([...at, "local_steps", "min"]), label: "Least H", whole: true }),
    numberField({ ...bound([...at, "local_steps", "max"]), label: "Most H", unit: "local steps", whole: true, sliderValues: series(1, 1000) }),
  ];
  return part(
    title,
    ...fields,
    numberField({ ...bound([...at, "sparsity", "min"]), label: "Least sparsity" }),
    numberField({ ...bound([...at, "sparsity", "max"]), label: "Most sparsity", unit: "one entry in so many is sent", sliderValues: series(1, 10_000) }),
    numberField({ ...bound([...at, "round_seconds"]), label: "Deadline of a round", unit: "s", optional: true, sliderValues: series(0.001, 10_000) }),
  );
}

function listedSteps(path) {
  const own = bound(path);
  return textField({
    path: own.path,
    label: "H to choose from",
    get: () => value(path).join(", "),
    set: (text) => own.set(text.split(",").map((one) => (one.trim() === "" || Number.isNaN(Number(one)) ? one.trim() : Number(one)))),
  });
}

function pricesPart() {
  const fields = Object.entries(PRICES).map(([kind, label]) =>
    numberField({
      path: `prices.${kind}`,
      label,
      unit: "times",
      get: () => state.prices[kind] ?? 1,
      set: (given) => {
        setPrice(kind, given ?? 1);
        changed();
      },
      sliderValues: series(0.01, 100),
    }),
  );
  return part("Prices of all groups", ...fields);
}

function lawParts() {
  const made = [];
  if (value(["recipe", "limits"])) made.push(limitsPart("recipe.limits", "Limits of the recipe"));
  if (value(["recipe", "rounds"])) made.push(lawPart(["recipe", "rounds"], `Rounds law of the recipe ${value(["recipe", "name"])}`));
  made.push(lawPart(["rounds"], value(["recipe"]) ? "Rounds law of the other schemes" : "Rounds law"));
  return made;
}

function lawPart(path, title) {
  const kind = value([...path, "kind"]);
  const forget = () => {
    change([...path, "intervals"], undefined); // they belong to the constants that were fitted
    change([...path, "correlations"], undefined);
  };
  const constants = Object.keys(LAWS[kind] ?? {}).map((name) => numberField({ ...bound([...path, name], forget), label: name }));
  const choice = choiceField({
    path: [...path, "kind"].join("."),
    label: "Kind",
    options: [...(kind === undefined ? [["", "none"]] : []), ...Object.keys(LAWS).map((name) => [name, name])],
    get: () => kind,
    set: (chosen) => {
      change(path, { kind: chosen, ...LAWS[chosen] });
      rebuild();
      changed();
    },
  });
  const body = [choice, ...constants, element("p", { class: "notice" }, "Intervals of a fit are dropped when a constant is edited.")];
  return element("fieldset", {}, element("legend", {}, title), element("details", {}, element("summary", {}, kind ? `Constants of the ${kind} law` : "None"), ...body));
}

function modelPart() {
  const own = value(["model", "architecture"]);
  const parameters = bound(["model", "parameters"], () => {
    for (const key of ["architecture", "width", "depth", "heads", "context"]) change(["model", key], undefined);
  });
  const operations = { ...bound(["model", "flops_per_sample"]), label: "Operations of a sample", unit: "in a training step", optional: true };
  return part(
    "Model",
    own ? element("p", { class: "notice" }, `Architecture ${own}. A number of parameters takes its place.`) : null,
    numberField({ ...parameters, label: "Parameters", whole: true, placeholder: own ? "of the network" : "" }),
    numberField({ ...operations, none: own ? "of the network" : "not stated" }),
    numberField({ ...bound(["model", "value_bits"]), label: "Bits of a value", whole: true, optional: true, none: "32" }),
  );
}

function groupsPart() {
  const groups = state.scenario.device ?? [];
  const shown = groups.slice(0, MOST_GROUPS).map((_, place) => groupPart(place, groups.length));
  const more = groups.length - shown.length;
  const add = element("button", {
    type: "button",
    onclick: () => {
      const names = new Set(groups.map((one) => one.name));
      let number = groups.length + 1;
      while (names.has(`group-${number}`)) number += 1;
      state.scenario.device = [...groups, { name: `group-${number}`, count: 10, profile: "wifi-phone" }];
      state.origin = null;
      rebuild();
      changed();
    },
  }, "Add a group");
  const rest = more > 0 ? element("p", { class: "notice" }, `${more.toLocaleString("en")} more groups are planned; edit them in the file.`) : null;
  return part("Groups of devices", ...shown, rest, add);
}

function groupPart(place, count) {
  const at = ["device", place];
  const entry = value(at);
  const remove = element("button", {
    type: "button",
    class: "quiet",
    "aria-label": `Remove ${entry.name ?? "this group"}`,
    onclick: () => {
      state.scenario.device = state.scenario.device.filter((_, other) => other !== place);
      state.origin = null;
      rebuild();
      changed();
    },
  }, "Remove");
  const details = element("details", { ontoggle: () => details.open && !details.filled && fill() }, element("summary", {}, "Profile and costs"));
  const fill = () => {
    details.filled = true;
    details.append(...costFields(at));
    fillPlaceholders(place);
  };
  return element("div", { class: "group", role: "group", "aria-label": `Group ${place + 1}` },
    element("div", { class: "group-head" },
      textField({ ...bound([...at, "name"]), label: "Name", attributes: { maxlength: "200" } }),
      count > 1 ? remove : null),
    numberField({ ...bound([...at, "count"]), label: "Devices", whole: true, optional: false, sliderValues: series(1, 1_000_000) }),
    numberField({ ...bound([...at, "battery_joules"]), label: "Battery of each", unit: "J", optional: true, sliderValues: series(0.01, 1e6) }),
    details,
  );
}

function costFields(at) {
  const entry = value(at);
  const names = [["", "own costs"], ...Object.keys(profiles).map((name) => [name, name])];
  if (entry.profile && !(entry.profile in profiles)) names.push([entry.profile, entry.profile]);
  const profile = choiceField({
    path: [...at, "profile"].join("."),
    label: "Profile",
    options: names,
    get: () => entry.profile ?? "",
    set: (chosen) => {
      change([...at, "profile"], chosen === "" ? undefined : chosen);
      changed();
    },
  });
  const radio = entry.radio !== undefined;
  const hidden = radio ? ["joules_per_bit", "seconds_per_bit", "message_joules", "message_seconds"] : [];
  const rows = [...(radio ? RADIO : []), ...COSTS.filter(([key]) => !hidden.includes(key))];
  const fields = rows.map(([key, label, unit]) => numberField({ ...bound([...at, ...key.split(".")]), label, unit, optional: true, none: "not stated" }));
  const words = element("p", { class: "notice" }, "Grey numbers are those of the profile; what is typed takes their place.");
  return [profile, words, element("div", { class: "costs" }, ...fields)];
}

// Show in empty fields what the profiles give.
export function showCompleted(devices) {
  completed = devices;
  devices.forEach((_, place) => fillPlaceholders(place));
}

function fillPlaceholders(place) {
  for (const input of document.querySelectorAll(`.costs [data-path^="device.${place}."]`)) {
    const keys = input.dataset.path.split(".").slice(2);
    const given = keys.reduce((table, key) => table?.[key], completed[place]);
    input.placeholder = typeof given === "number" ? shortNumber(given) : "not stated";
  }
}
