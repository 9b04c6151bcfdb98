// The concepts of one observer and subject as rows to search, filter and sort: whole columns, never an object a row.

import { benchmarks, block, labelOf } from "./data.js";

export const STATUSES = { gap: "▼ gap", strength: "▲ strength", typical: "typical", unsupported: "unsupported", undefined: "undefined", "": "not tested" };

export async function load(observer, subject, benchmark = "") {
  const [concepts, whole] = await Promise.all([block(`concepts-${observer}`), block(`performance-${observer}-${subject}`)]);
  const n = concepts.concept.length;
  const columns = { ...whole, coverage: concepts.coverage, coverage_status: concepts.coverage_status, coverage_names: concepts.coverage_status_names, n_items: concepts.n_items };
  // In one order: p and shrunk are of the whole suite only; a benchmark has q and adjusted in their place.
  columns.evidence = { size: whole.shrunk, sure: whole.p };
  if (benchmark) {
    const [cells, parts] = await Promise.all([block(`cells-${observer}`), block(`parts-${observer}-${subject}`)]);
    const from = benchmarks.indexOf(benchmark) * n;
    const part = (values) => values.subarray(from, from + n);
    for (const name of ["chi_model", "ci_low", "ci_high", "adjusted", "adjusted_low", "adjusted_high", "n_eff", "q", "n", "status"]) columns[name] = part(parts[name]);
    columns.status_names = parts.status_names;
    columns.evidence = { size: columns.adjusted, sure: columns.q };
    columns.coverage = part(cells.coverage);
    columns.n_items = part(cells.n_items);
    columns.coverage_status = part(cells.coverage_status);
    columns.coverage_names = cells.coverage_status_names;
  }
  const calibrated = columns.status_names.length > 1;
  const labels = concepts.label.map((_text, place) => labelOf(concepts, place));
  return { n, concepts, columns, calibrated, labels, lower: labels.map((text) => text.toLowerCase()), sorted: new Map() };
}

export const statusOf = (rows, place) => rows.columns.status_names[rows.columns.status[place]];
export const coverageOf = (rows, place) => {
  const name = rows.columns.coverage_names[rows.columns.coverage_status[place]];
  return name === "" && rows.columns.coverage[place] === 0 ? "missing" : name;
};

// Places in the order of a column, undefined ones last whichever way it goes; kept, because a search asks again and again.
export function ordered(rows, key, descending) {
  const name = `${key} ${descending}`;
  if (!rows.sorted.has(name)) {
    const order = Uint32Array.from({ length: rows.n }, (_, place) => place);
    const sign = descending ? -1 : 1;
    if (key === "label") {
      const collator = new Intl.Collator("en");
      order.sort((a, b) => sign * collator.compare(rows.lower[a], rows.lower[b]) || a - b);
    } else {
      const values = key === "concept" ? rows.concepts.concept : key === "status" ? worstFirst(rows) : key === "coverage_status" ? ranks(rows) : key === "label_source" || key === "cluster" ? Float32Array.from(rows.concepts[key], (code) => code || NaN) : rows.columns[key] ?? rows.concepts[key];
      order.sort((a, b) => {
        const [x, y] = [values[a], values[b]];
        if (x !== x || y !== y) return (x !== x) - (y !== y) || a - b;
        return sign * (x - y) || (key === "status" && sign * (rows.columns.adjusted[a] - rows.columns.adjusted[b])) || a - b;
      });
    }
    rows.sorted.set(name, order);
  }
  return rows.sorted.get(name);
}

function ranks(rows) {
  const order = ["missing", "dead", "unexercised", "under", "typical", "over", "undecided"];
  return Float32Array.from({ length: rows.n }, (_, place) => { const found = order.indexOf(coverageOf(rows, place)); return found < 0 ? NaN : found; });
}

// The order of the whole report: what is told from chance at its end, by size after shrinkage; between the ends the rest,
// the surest to be worse first and the surest to be better last. What was not tested has no place in it.
function worstFirst({ n, columns }) {
  const { size, sure } = columns.evidence;
  const names = columns.status_names;
  return Float64Array.from({ length: n }, (_, place) => {
    const status = names[columns.status[place]];
    if (status === "gap") return -10 + size[place];
    if (status === "strength") return 10 + size[place];
    return status === "typical" ? (columns.adjusted[place] < 0 ? sure[place] - 1 : 1 - sure[place]) : NaN;
  });
}

export function matches(rows, filter) {
  const words = filter.q.toLowerCase().split(/\s+/).filter(Boolean);
  const { columns, concepts, lower } = rows;
  const measure = columns[filter.measure];
  const ids = words.map((word) => (/^#?\d+$/.test(word) ? Number(word.replace("#", "")) : -1));
  return (place) => {
    for (let k = 0; k < words.length; k++) if (!lower[place].includes(words[k]) && concepts.concept[place] !== ids[k]) return false;
    if (filter.status && statusOf(rows, place) !== filter.status) return false;
    if (filter.coverage && coverageOf(rows, place) !== filter.coverage) return false;
    if (filter.support > 0 && !(columns.n_eff[place] >= filter.support)) return false;
    if (filter.maxQ < 1 && !(columns.q[place] <= filter.maxQ)) return false;
    if (filter.cluster && concepts.cluster_names[concepts.cluster[place]] !== filter.cluster) return false;
    if (filter.plain && concepts.structural[place]) return false;
    if (filter.cov && !(logged(columns.coverage[place]) >= filter.cov[0] && logged(columns.coverage[place]) <= filter.cov[1])) return false;
    if (filter.perf && !(measure[place] >= filter.perf[0] && measure[place] <= filter.perf[1])) return false;
    return true;
  };
}

export const logged = (value) => (value > 0 ? Math.log10(value) : NaN);

export function filtered(rows, filter) {
  const keep = matches(rows, filter);
  return ordered(rows, filter.sort, filter.descending).filter(keep);
}
