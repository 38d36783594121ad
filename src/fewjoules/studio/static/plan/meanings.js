// What the words of the page mean, for whoever meets them here first.
import { element } from "../base.js";

const WORDS = {
  "H, local steps": "Training steps that a device takes between two messages.",
  Sparsity: "At sparsity 50 a device sends the largest fiftieth of its update and keeps the rest for later messages.",
  Round: "All devices take H steps, send their updates, and receive the new model.",
  "Proved gap": "The part of the joules that any other plan within the limits could save at most, under the same rounds law.",
  "Rounds law": "How many rounds training takes, depending on H and sparsity. Pilot runs of fewjoules tune measure it.",
  "Uplink, downlink": "Sending updates, and receiving the model.",
  Tail: "What the radio spends while it stays awake after a message.",
  "Compute, codec": "Training steps, and selecting, encoding and decoding updates.",
  flexible: "The plan of least energy, with a sparsity for each device.",
  unified: "The best plan with one sparsity for all devices.",
  "greedy, synchronous": "Least energy in each single round; a message after every step, with planned sparsities.",
  "dense, fedavg": "Everything is sent, after every step or after a planned number of steps.",
  fewest: "The plan of a tuned recipe: optimiser, step size and kind of values are chosen too.",
};

export function drawMeanings() {
  const terms = Object.entries(WORDS).flatMap(([word, meaning]) => [element("dt", {}, word), element("dd", {}, meaning)]);
  return element("details", { class: "meanings" }, element("summary", {}, "What the words mean"), element("dl", {}, ...terms));
}
