// The data in the page: one JSON element with names and headlines, and compressed blocks of columns, unpacked when they are wanted.

const UNDEFINED = 65535;

export const meta = JSON.parse(document.getElementById("meta").textContent);

const waiting = new Map();

export function block(name) {
  if (!waiting.has(name)) waiting.set(name, unpack(name));
  return waiting.get(name);
}

async function unpack(name) {
  const element = document.getElementById(`block-${name}`);
  if (!element) return null;
  const packed = bytes(element.textContent);
  element.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const columns = { ...header.values };
  for (const [key, column] of Object.entries(header.columns)) columns[key] = read(buffer, 4 + size + column.at, column);
  for (const [key, column] of Object.entries(header.columns)) if (column.names) columns[`${key}_names`] = column.names;
  return columns;
}

function bytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) found[k] = raw.charCodeAt(k);
  return found;
}

function read(buffer, at, column) {
  if (column.form === "u8") return new Uint8Array(buffer, at, column.n);
  if (column.form === "u32") return new Uint32Array(buffer, at, column.n);
  const codes = new Uint16Array(buffer, at, column.n);
  if (column.form === "u16") return codes;
  const values = new Float32Array(column.n);
  const { low, step } = column;
  if (column.form === "linear") for (let k = 0; k < codes.length; k++) values[k] = codes[k] === UNDEFINED ? NaN : low + codes[k] * step;
  else
    for (let k = 0; k < codes.length; k++)
      values[k] = codes[k] === UNDEFINED ? NaN : codes[k] === 0 ? 0 : Math.exp(low + (codes[k] - 1) * step);
  return values;
}

export const benchmarks = meta.benchmarks.map((entry) => entry.slug);

export function accuracyOf(subject, benchmark) {
  return meta.subjects[subject].accuracy.find((row) => row.benchmark === benchmark);
}

export const SUITE = "(suite)";

// What a label is worth: "(?)" where its words do not pick out held-out contexts, as in the rest of the report.
export function labelOf(concepts, place) {
  const text = concepts.label[place];
  if (!text || text === "(no contexts)") return "(no label)";
  const source = concepts.label_source_names[concepts.label_source[place]];
  if (source === "tokens") return `“${text}”`;
  const score = concepts.label_score[place];
  return Number.isFinite(score) && score >= 0.6 ? text : `${text} (?)`;
}

export function labelNote(concepts, place) {
  const source = concepts.label_source_names[concepts.label_source[place]];
  const score = concepts.label_score[place];
  if (!source) return "no text to name it by";
  if (source === "tokens") return "no label yet: the pieces of text on which it fires most";
  const worth = Number.isFinite(score) ? `detection score ${score.toFixed(2)} (0.5 is chance, 1 perfect)` : "without a detection score";
  return `label from ${source}, ${worth}`;
}

const places = new Map();

// Where a concept stands in the columns of its observer.
export async function placeOf(observer, concept) {
  if (!places.has(observer)) {
    const { concept: all } = await block(`concepts-${observer}`);
    places.set(observer, new Map(Array.from(all, (number, place) => [number, place])));
  }
  return places.get(observer).get(concept);
}
