import { heatmap, intervals } from "../charts.js";
import { SUITE, accuracyOf, benchmarks, block, labelOf, meta } from "../data.js";
import { choose, clear, count, csv, h, interval, number, percent, save, small, table } from "../dom.js";
import { address, keep } from "../state.js";

const FIRST = 40;

export async function missingOf(observer) {
  const [concepts, cells] = await Promise.all([block(`concepts-${observer}`), block(`cells-${observer}`)]);
  const n = concepts.concept.length;
  const alive = (place) => concepts.coverage_status_names[concepts.coverage_status[place]] !== "dead";
  const lists = benchmarks.map((_name, k) => {
    const found = [];
    for (let place = 0; place < n; place++) if (cells.coverage[k * n + place] === 0 && alive(place)) found.push(place);
    return found;
  });
  const whole = [];
  for (let place = 0; place < n; place++) if (concepts.coverage[place] === 0 && alive(place)) whole.push(place);
  let dead = 0;
  for (let place = 0; place < n; place++) if (!alive(place)) dead++;
  return { concepts, cells, n, lists, whole, dead };
}

export async function benchmarksView(state) {
  const { observer, subject, params } = state;
  const found = await missingOf(observer);
  const gaps = h("h2", {}, "What is missing");
  const root = h("section", { class: "view", "aria-labelledby": "benchmarks-title" },
    h("h1", { id: "benchmarks-title", tabindex: "-1" }, "Benchmarks: what each exercises, and what it misses"),
    h("p", { class: "lead" }, "A concept is missing in a benchmark where no item of it makes the concept fire. A benchmark with less text misses more for that alone: look at its tokens."),
    summary(found, subject),
    h("h2", {}, `Accuracy of ${meta.subjects[subject].name}`),
    intervals("Accuracy by benchmark with intervals; a tick is a blind guess", meta.subjects[subject].accuracy.map((row) => ({ name: row.benchmark === SUITE ? "whole suite" : row.benchmark, value: row.accuracy ?? NaN, low: row.low ?? NaN, high: row.high ?? NaN, mark: row.chance, note: `${count(row.n)} items; a blind guess ${percent(row.chance)}` })), { name: `mean score with ${percent(meta.about.confidence, 0)} interval (a tick is a blind guess)`, format: (value) => percent(value, 0) }),
    gaps,
    missing(found, params),
    h("h2", {}, "Overlap"),
    overlap(observer, params));
  // A link that asks for one benchmark's gaps lands on them.
  return { root, aim: () => params.miss && gaps.scrollIntoView() };
}

function summary(found, subject) {
  const rows = meta.benchmarks.map((entry, k) => {
    const row = accuracyOf(subject, entry.slug);
    return [entry.slug, entry.kind ?? "—", count(entry.n_items), count(entry.n_tokens), `${percent(row?.accuracy ?? NaN)} (${interval(row?.low ?? NaN, row?.high ?? NaN, percent)})`, percent(row?.chance ?? NaN), count(found.lists[k].length), percent(found.lists[k].length / found.n)];
  });
  return table("Benchmarks", ["benchmark", "kind", ["items", "num"], ["tokens", "num"], [`accuracy (${percent(meta.about.confidence, 0)} interval)`, "num"], ["blind guess", "num"], ["concepts missing", "num"], ["share", "num"]], rows);
}

function missing(found, params) {
  const { concepts, cells, n, lists, whole, dead } = found;
  const box = h("div");
  let chosen = benchmarks.includes(params.miss) ? params.miss : SUITE;
  const rate = (place) => concepts.reference_rate[place];
  const draw = () => {
    const list = chosen === SUITE ? whole : lists[benchmarks.indexOf(chosen)];
    // First what one would most expect to be met: the concepts that fire most elsewhere.
    const order = [...list].sort((a, b) => (rate(b) || 0) - (rate(a) || 0) || a - b);
    const under = [];
    if (chosen === SUITE) for (let place = 0; place < n; place++) if (["under", "unexercised"].includes(concepts.coverage_status_names[concepts.coverage_status[place]]) && concepts.coverage[place] > 0) under.push(place);
    under.sort((a, b) => (concepts.log_ratio[a] || 0) - (concepts.log_ratio[b] || 0) || a - b);
    const others = (place) => benchmarks.filter((_name, k) => cells.coverage[k * n + place] > 0).length;
    const row = (place) => [h("a", { href: address("concept", {}, concepts.concept[place]) }, `#${concepts.concept[place]}`), labelOf(concepts, place), small(rate(place) * 1000), `${others(place)} of ${benchmarks.length}`];
    const columns = ["concept", "label", ["fires per 1,000 reference tokens", "num"], ["benchmarks that have it", "num"]];
    clear(box,
      h("p", { class: "said" }, `${chosen === SUITE ? "The whole suite" : chosen} misses ${count(order.length)} of ${count(n)} concepts (${count(dead)} dead ones aside, which fire nowhere in the reference corpus either); those that fire most often there first${order.length > FIRST ? `, ${FIRST} of them shown` : ""}. `,
        h("button", { type: "button", onclick: () => save(`missing-${chosen}.csv`, "text/csv", csv([["concept", "label", "reference_rate"], ...order.map((place) => [concepts.concept[place], concepts.label[place], Number(rate(place).toPrecision(4))])])) }, "CSV of all")),
      order.length ? table("Missing concepts", columns, order.slice(0, FIRST).map(row)) : null,
      chosen === SUITE && under.length ? [h("h3", {}, "Exercised, but much less than in ordinary text"), h("p", { class: "said" }, `${count(under.length)} concepts fire less here than in the reference corpus at equal tokens (interval below the threshold); the furthest first${under.length > FIRST ? `, ${FIRST} of them shown` : ""}. Log2 ratio: −1 is half as often. `, h("a", { href: address("concepts", { coverage: "under", n: 0 }) }, "All in the table")),
        table("Under-exercised concepts", ["concept", "label", ["log2 ratio", "num"], ["interval", "num"]], under.slice(0, FIRST).map((place) => [h("a", { href: address("concept", {}, concepts.concept[place]) }, `#${concepts.concept[place]}`), labelOf(concepts, place), number(concepts.log_ratio[place], 1), interval(concepts.log_ratio_low[place], concepts.log_ratio_high[place], (value) => number(value, 1))]))] : null);
  };
  draw();
  return [h("div", { class: "bar" }, choose("Missing in", [[SUITE, "the whole suite"], ...benchmarks.map((name, k) => [name, `${name} (${count(lists[k].length)})`])], chosen, (value) => { chosen = value; keep({ miss: value === SUITE ? "" : value }); draw(); })), box];
}

function overlap(observer, params) {
  const rows = meta.observers[observer].overlap;
  if (benchmarks.length < 2) return h("p", {}, "One benchmark: nothing to overlap with.");
  const known = new Map(rows.map((row) => [`${row.benchmark} ${row.other}`, row]));
  const box = h("div");
  let kind = params.overlap === "contained" ? "contained" : "jaccard";
  const words = {
    jaccard: "Jaccard: concepts that fire in both, over those that fire in either.",
    contained: "Contained: of the concepts that fire in the row's benchmark, the share that the column's covers. Read across a row: 100 means the other benchmark exercises everything this one does.",
  };
  const draw = () => {
    const value = (y, x) => known.get(`${benchmarks[y]} ${benchmarks[x]}`)?.[kind] ?? NaN;
    const all = rows.map((row) => row[kind]).filter(Number.isFinite);
    clear(box, h("p", { class: "said" }, words[kind]), heatmap(`Overlap of benchmarks (${kind})`, benchmarks, value, { name: kind, low: Math.min(...all), high: Math.max(...all) }),
      h("details", {}, h("summary", {}, "The same as a table"), table("Overlap", ["", ...benchmarks.map((name) => [name, "num"])], benchmarks.map((name, y) => [name, ...benchmarks.map((_other, x) => (x === y ? "" : percent(value(y, x), 0)))]))));
  };
  draw();
  return [h("div", { class: "bar" }, choose("Measure", [["jaccard", "in common (Jaccard)"], ["contained", "contained in the other"]], kind, (value) => { kind = value; keep({ overlap: value }); draw(); })), box];
}
