// The scenario that is being edited, and its address.

export const state = { scenario: {}, name: "fleet.toml", folder: "", prices: {}, origin: null };

export function value(path) {
  return path.reduce((table, key) => (table === null || table === undefined ? undefined : table[key]), state.scenario);
}

// Set a value below the scenario, making tables on the way; undefined removes it.
export function change(path, set) {
  let table = state.scenario;
  for (const key of path.slice(0, -1)) {
    if (typeof table[key] !== "object" || table[key] === null) {
      if (set === undefined) return;
      table[key] = {};
    }
    table = table[key];
  }
  const last = path.at(-1);
  if (set === undefined) delete table[last];
  else table[last] = set;
  state.origin = null;
}

export function setPrice(kind, price) {
  if (price === 1) delete state.prices[kind];
  else state.prices[kind] = price;
  state.origin = null;
}

export function load(given, origin) {
  Object.assign(state, { scenario: given.scenario, name: given.name, folder: given.folder, prices: given.prices ?? {}, origin });
}

// What a plan is asked for with.
export function posted() {
  return { scenario: state.scenario, name: state.name, folder: state.folder, prices: state.prices };
}

async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

// Return the address of what is shown: the file it came from, or all of it once it is edited.
export async function address() {
  if (state.origin !== null) return `/plan?${new URLSearchParams(state.origin)}`;
  const packed = await through(new TextEncoder().encode(JSON.stringify(posted())), new CompressionStream("deflate-raw"));
  let text = "";
  for (const byte of packed) text += String.fromCharCode(byte);
  return `/plan#s=${btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

// Return what an address holds; null if it holds nothing, an error if it was cut or damaged.
export async function fromAddress(hash) {
  if (!hash.startsWith("#s=")) return null;
  try {
    const text = atob(hash.slice(3).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = await through(Uint8Array.from(text, (letter) => letter.charCodeAt(0)), new DecompressionStream("deflate-raw"));
    const given = JSON.parse(new TextDecoder().decode(bytes));
    if (typeof given.scenario !== "object" || given.scenario === null) throw new Error("no scenario");
    return given;
  } catch {
    throw new Error("The address is cut off or damaged: it holds no scenario that can be read.");
  }
}
