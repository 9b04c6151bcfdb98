import { histogram, redraw, scatter } from "../charts.js";
import { benchmarks, labelNote, meta } from "../data.js";
import { cell, column, numeric, table } from "../grid.js";
import { NONE, choose, clear, count, csv, h, interval, number, save, signed, small, table as plainTable } from "../dom.js";
import { address, among, finite, go, keep } from "../state.js";
import { STATUSES, coverageOf, filtered, load, logged, statusOf } from "../select.js";

const BINS = 40;
const PRINTED = 60;
const SORTED = ["concept", "label", "status", "adjusted", "q", "n_eff", "n", "chi_model", "shrunk", "coverage", "coverage_status", "label_score", "label_source", "cluster"];

function filterOf(params, rows) {
  const range = (text) => {
    const found = (text ?? "").split("~").map(Number);
    return found.length === 2 && found.every(Number.isFinite) ? found : null;
  };
  const measure = rows.calibrated ? "adjusted" : "chi_model";
  const sort = among(params.sort, SORTED.flatMap((key) => [key, `-${key}`]), rows.calibrated ? "status" : measure);
  return {
    q: params.q ?? "", status: among(params.status, rows.columns.status_names), coverage: among(params.coverage, [...rows.columns.coverage_names, "missing"]), support: finite(params.n, 0),
    maxQ: finite(params.maxq, 1), cluster: params.cluster ?? "", plain: params.structural !== "1",
    cov: range(params.cov), perf: range(params.perf), measure,
    sort: sort.replace(/^-/, ""), descending: sort.startsWith("-"),
  };
}

export async function concepts(state) {
  const { observer, subject, params } = state;
  const benchmark = benchmarks.includes(params.b) ? params.b : "";
  const rows = await load(observer, subject, benchmark);
  const filter = filterOf(params, rows);
  // Unless asked otherwise, what has too little support to say anything about is not on top of the list.
  const unasked = params.n === undefined && !filter.status && !filter.coverage && !filter.q;
  if (unasked) filter.support = meta.about.min_n_eff;
  const view = { rows, filter, order: filtered(rows, filter), benchmark };
  const root = h("section", { class: "view", "aria-labelledby": "concepts-title" });
  const said = h("p", { class: "said", role: "status" });
  const grid = gridOf(view);
  const charts = chartRow(view, refresh);
  const chips = h("div", { class: "chips" });
  root.append(
    h("h1", { id: "concepts-title", tabindex: "-1" }, "Concepts"),
    h("p", { class: "lead" }, `What ${meta.subjects[subject].name} does on each concept`, benchmark ? ` of ${benchmark}` : "", ". A row opens the concept's page with questions. ",
      rows.calibrated ? "Worst first: gaps by size (small samples drawn towards 0), then the surest of what is not told from chance (status typical). Adjusted: score minus that of comparable items, chance-corrected; 0 is as expected." : "Lowest first, by raw chi_model, not calibrated."),
    bar(view, refresh, state),
    chips,
    charts.element,
    said,
    grid.element,
    print(view),
  );
  refresh();
  return { root, shown: grid.show };

  function refresh() {
    view.order = filtered(rows, filter);
    const { n_gap: gaps, strengths } = tally(view);
    clear(said, `${count(view.order.length)} of ${count(rows.n)} concepts`, rows.calibrated ? `; ▼ ${gaps} gaps, ▲ ${strengths} strengths among them` : "");
    clear(chips, ranges(filter, refresh));
    charts.update();
    grid.update();
  }
}

function tally({ rows, order }) {
  let [n_gap, strengths] = [0, 0];
  for (const place of order) {
    const status = statusOf(rows, place);
    if (status === "gap") n_gap++;
    else if (status === "strength") strengths++;
  }
  return { n_gap, strengths };
}

function bar(view, refresh, state) {
  const { filter, rows } = view;
  let timer = 0;
  const typed = (name, key, read) => (event) => {
    filter[name] = read(event.target.value);
    clearTimeout(timer);
    timer = setTimeout(() => keep({ [key]: event.target.value }), 200);
    refresh();
  };
  const names = (list, words) => [["", "any"], ...list.filter((name) => name !== "").map((name) => [name, words?.[name] ?? name])];
  const coverageNames = [...new Set([...rows.columns.coverage_names, "missing"])];
  return h(
    "form",
    { class: "bar", role: "search", "aria-label": "Filter concepts", onsubmit: (event) => event.preventDefault() },
    h("label", { class: "field wide" }, h("span", {}, "Search label or number"),
      h("input", { type: "search", id: "search", value: filter.q, placeholder: "e.g. money, or 872", oninput: typed("q", "q", String) })),
    choose("Benchmark", [["", "whole suite"], ...benchmarks.map((name) => [name, name])], view.benchmark, (value) => go("concepts", { ...state.params, b: value, cov: "", perf: "" })),
    rows.calibrated && choose("Status", names(rows.columns.status_names, STATUSES), filter.status, (value) => { filter.status = value; keep({ status: value }); refresh(); }),
    choose("Coverage", names(coverageNames), filter.coverage, (value) => { filter.coverage = value; keep({ coverage: value }); refresh(); }),
    h("label", { class: "field narrow" }, h("span", {}, "n_eff at least"), h("input", { type: "number", min: 0, step: 5, value: filter.support, oninput: typed("support", "n", (text) => Number(text) || 0) })),
    rows.calibrated && h("label", { class: "field narrow" }, h("span", {}, "q at most"), h("input", { type: "number", min: 0, max: 1, step: 0.01, value: filter.maxQ, oninput: typed("maxQ", "maxq", (text) => (text === "" ? 1 : Number(text))) })),
    rows.concepts.structural_known && h("label", { class: "check" }, h("input", { type: "checkbox", checked: !filter.plain, onchange: (event) => { filter.plain = !event.target.checked; keep({ structural: event.target.checked ? "1" : "" }); refresh(); } }), "structural too"),
    h("div", { class: "buttons" },
      h("button", { type: "button", onclick: () => save("concepts.csv", "text/csv", csv(exported(view))) }, "CSV"),
      h("button", { type: "button", onclick: () => save("concepts.json", "application/json", asJson(view)) }, "JSON"),
      h("button", { type: "button", onclick: () => go("concepts") }, "Reset")),
  );
}

function ranges(filter, refresh) {
  const chip = (key, text) => filter[key] && h("button", { type: "button", class: "chip", onclick: () => { filter[key] = null; keep({ [key]: "" }); refresh(); } }, `${text} ${number(filter[key][0])} to ${number(filter[key][1])} ✕`);
  const cluster = filter.cluster && h("button", { type: "button", class: "chip", onclick: () => { filter.cluster = ""; keep({ cluster: "" }); refresh(); } }, `cluster ${filter.cluster} ✕`);
  return [chip("cov", "log10 coverage"), chip("perf", filter.measure), cluster];
}

function binned(values, places, low, high) {
  const bins = new Uint32Array(BINS);
  const scale = BINS / (high - low || 1);
  for (const place of places) {
    const value = values(place);
    // The ends are those of the supported concepts; what lies beyond has too little support to be drawn at all.
    if (value >= low && value <= high) bins[Math.min(BINS - 1, Math.floor((value - low) * scale))]++;
  }
  return bins;
}

function extent(values, n) {
  let [low, high] = [Infinity, -Infinity];
  for (let place = 0; place < n; place++) {
    const value = values(place);
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low < high ? [low, high] : [low === Infinity ? 0 : low - 0.5, low === Infinity ? 1 : low + 0.5];
}

function chartRow(view, refresh) {
  const { rows, filter } = view;
  const { columns } = rows;
  const every = Uint32Array.from({ length: rows.n }, (_, place) => place);
  const spread = (key, values, name, title) => {
    const [low, high] = extent((place) => (columns.n_eff[place] >= meta.about.min_n_eff ? values(place) : NaN), rows.n);
    return histogram(`${title}. Drag to keep a range.`, {
      low, high, bins: BINS, name, format: (value) => number(value, 1), all: binned(values, every, low, high), range: filter[key],
      chosen: () => binned(values, view.order, low, high),
      brushed: (range) => {
        filter[key] = range;
        keep({ [key]: range ? range.map((value) => value.toFixed(4)).join("~") : "" });
        refresh();
      },
    });
  };
  const cov = spread("cov", (place) => logged(columns.coverage[place]), "log10 coverage (0: average concept)", "Distribution of coverage");
  const perf = spread("perf", (place) => columns[filter.measure][place], filter.measure === "adjusted" ? "adjusted score" : "chi_model", "Distribution of performance");
  const point = (test) => Array.from(view.order.filter(test), (place) => [logged(columns.coverage[place]), columns[filter.measure][place], place]).filter(([x, y]) => x === x && y === y);
  const both = scatter("Coverage against performance, a dot a concept", () => [
    { tone: "bar", symbol: "circle", points: point((place) => !["gap", "strength"].includes(statusOf(rows, place))) },
    { tone: "gap", symbol: "triangle", points: point((place) => statusOf(rows, place) === "gap") },
    { tone: "strength", symbol: "diamond", points: point((place) => statusOf(rows, place) === "strength") },
  ], {
    xName: "log10 coverage", yName: filter.measure, open: (place) => go("concept", {}, rows.concepts.concept[place]),
    describe: (place) => `#${rows.concepts.concept[place]} ${rows.labels[place].slice(0, 60)}\n${filter.measure} ${signed(columns[filter.measure][place])}`,
  });
  let timer = 0;
  const box = h("details", { class: "charts", open: innerWidth > 700 }, h("summary", {}, "Distributions: drag across one to keep a range, click beside it to drop it; click a dot for its concept"),
    h("div", { class: "thirds" },
      h("figure", {}, h("figcaption", {}, "Number of concepts by coverage"), cov), h("figure", {}, h("figcaption", {}, "Number of concepts by performance"), perf), h("figure", {}, h("figcaption", {}, "Coverage against performance, a dot a concept"), both)));
  return {
    element: box,
    update: () => {
      clearTimeout(timer);
      timer = setTimeout(() => [cov, perf, both].forEach(redraw), 80);
    },
  };
}

function tableColumns(view) {
  const { rows, filter } = view;
  const { columns, concepts } = rows;
  const phone = innerWidth < 700;
  const status = (place) => { const name = statusOf(rows, place); return cell(STATUSES[name] ?? name, `status ${name}`); };
  const fixed = { sortable: false };
  return [
    column("concept", "#", phone ? 74 : 76, (p) => h("a", { href: address("concept", {}, concepts.concept[p]), tabindex: "-1" }, `#${concepts.concept[p]}`)),
    column("label", "label", phone ? 124 : 280, (p) => cell(rows.labels[p], "label", labelNote(concepts, p))),
    rows.calibrated && !phone && column("status", "status", 112, status, { toolTip: "Gap and strength are told from chance (q below alpha); ascending: worst first" }),
    filter.measure === "adjusted" && numeric("adjusted", "adjusted", 92, (p) => signed(columns.adjusted[p]), { toolTip: "Score minus that of items of the same benchmark and about the same length, chance-corrected: 0 is as expected" }),
    filter.measure === "adjusted" && numeric("span", "95% interval".replace("95", String(meta.about.confidence * 100)), 150, (p) => interval(columns.adjusted_low[p], columns.adjusted_high[p]), fixed),
    rows.calibrated && phone && column("status", "status", 112, status, {}),
    rows.calibrated && numeric("q", "q", 84, (p) => small(columns.q[p]), { toolTip: "p by permutation, corrected for looking at all concepts" }),
    numeric("n_eff", "n_eff", 74, (p) => count(columns.n_eff[p]), { toolTip: "How many equally weighted items its items are worth" }),
    numeric("n", "items", 70, (p) => count(columns.n[p])),
    numeric("chi_model", "chi_model", 98, (p) => number(columns.chi_model[p]), { toolTip: "Mean score on its items, weighted by saliency; not set against comparable items" }),
    numeric("span_raw", "its interval", 124, (p) => interval(columns.ci_low[p], columns.ci_high[p], number), fixed),
    numeric("coverage", "coverage", 92, (p) => small(columns.coverage[p]), { toolTip: "1 is an average concept, 0 never fires" }),
    column("coverage_status", "coverage status", 146, (p) => coverageOf(rows, p) || NONE),
    numeric("label_score", "label score", 104, (p) => number(concepts.label_score[p]), { toolTip: "How well the label picks out the concept's contexts: 0.5 is chance, 1 perfect" }),
    column("label_source", "label source", 116, (p) => concepts.label_source_names[concepts.label_source[p]] || NONE),
    column("cluster", "cluster", 120, (p) => concepts.cluster_names[concepts.cluster[p]] || NONE),
  ].filter(Boolean);
}

function gridOf(view) {
  const { filter, rows } = view;
  return table("Concepts", view, () => tableColumns(view), {
    sort: { id: filter.sort, ascending: !filter.descending },
    sorted: (id, ascending) => {
      filter.sort = id;
      filter.descending = !ascending;
      keep({ sort: (ascending ? "" : "-") + id });
      view.order = filtered(rows, filter);
    },
    open: (place) => go("concept", { b: view.benchmark }, rows.concepts.concept[place]),
  });
}

const EXPORTED = ["status", "adjusted", "adjusted_low", "adjusted_high", "p", "q", "n_eff", "n", "chi_model", "ci_low", "ci_high", "shrunk", "finding", "coverage", "coverage_status"];

function exported(view) {
  const { rows } = view;
  const value = (key, place) => {
    if (key === "status") return statusOf(rows, place);
    if (key === "coverage_status") return coverageOf(rows, place);
    if (key === "finding") return rows.columns.finding_names[rows.columns.finding[place]];
    const found = rows.columns[key][place];
    return Number.isFinite(found) ? Number(found.toPrecision(4)) : null;
  };
  const keys = view.benchmark ? EXPORTED.filter((key) => !["p", "shrunk", "finding"].includes(key)) : EXPORTED;
  const { concepts } = rows;
  const score = (place) => (Number.isFinite(concepts.label_score[place]) ? Number(concepts.label_score[place].toPrecision(4)) : null);
  return [
    ["concept", "label", "label_source", "label_score", "cluster", ...keys],
    ...Array.from(view.order, (place) => [
      concepts.concept[place], concepts.label[place], concepts.label_source_names[concepts.label_source[place]], score(place), concepts.cluster_names[concepts.cluster[place]],
      ...keys.map((key) => value(key, place)),
    ]),
  ];
}

function asJson(view) {
  const [names, ...rows] = exported(view);
  return JSON.stringify(rows.map((row) => Object.fromEntries(names.map((name, k) => [name, row[k] === "" ? null : row[k]]))), null, 1) + "\n";
}

// Paper has no scroll bar: the first rows of what is shown, as a plain table made when the page is printed.
let printed = () => {};
addEventListener("beforeprint", () => printed());

function print(view) {
  const box = h("div", { class: "print-only" });
  printed = () => {
    const { rows, filter } = view;
    const { columns } = rows;
    const names = ["#", "label", "status", filter.measure, "q", "n_eff", "coverage"];
    const line = (p) => [rows.concepts.concept[p], rows.labels[p], statusOf(rows, p), signed(columns[filter.measure][p]), small(columns.q[p]), count(columns.n_eff[p]), small(columns.coverage[p])];
    clear(box, plainTable("Concepts", names, Array.from(view.order.subarray(0, PRINTED), line)));
  };
  return box;
}
