import { FREE, FREELY, FREE_KEYS, apart, apartLine, chosenPair } from "../apart.js";
import { block, labelNote, meta } from "../data.js";
import { choose, clear, count, csv, h, interval, number, save, signed, small } from "../dom.js";
import { cell, column, numeric, table } from "../grid.js";
import { load } from "../select.js";
import { address, among, go, keep } from "../state.js";

const WORDS = { ahead: "▲ ahead", behind: "▼ behind", typical: "typical", unsupported: "unsupported", undefined: "undefined" };

const PAIRED = (alpha) => `Difference: mean score on the concept's items, second minus first, with interval and q. Relative: the same against comparable items of the same benchmark and length; ahead or behind where its q < ${alpha}.`;

export async function compare(state) {
  const { observer, subject, params } = state;
  const pairs = meta.observers[observer].changes ?? [];
  const subjects = Object.keys(meta.observers[observer].subjects);
  const root = h("section", { class: "view", "aria-labelledby": "compare-title" }, h("h1", { id: "compare-title", tabindex: "-1" }, "Compare"));
  if (!pairs.length && subjects.length < 2) {
    root.append(h("p", { class: "lead" }, "This run has one subject and was opened beside no other run."), how(true));
    return { root };
  }
  const rows = await load(observer, subject);
  const free = subjects.length > 1 && (params.pair === FREE || !pairs.length);
  const k = free ? FREE : /^\d+$/.test(params.pair ?? "") && Number(params.pair) < pairs.length ? Number(params.pair) : 0;
  const pair = free ? chosenPair(subjects, params) : pairs[k];
  const changes = free ? await apart(observer, pair, rows) : await block(`changes-${observer}-${k}`);
  const view = { order: new Uint32Array(0) };
  const key = params.sort ?? (free ? changes.main : "relative_p");
  const shown = free ? [["", "all supported"], ["apart", "intervals apart"]] : [["", "all supported"], ["any", "only significant"], ["ahead", "ahead only"], ["behind", "behind only"], ["changed", "difference significant"]];
  const filter = { q: params.q ?? "", kind: among(params.kind, shown.map(([name]) => name)), id: key.replace(/^-/, ""), ascending: !key.startsWith("-") };
  const columns = columnsOf(changes, rows, free);
  if (!columns.some((column) => column.id === filter.id)) filter.id = free ? changes.main : "relative_p";
  const said = h("p", { class: "said", role: "status" });
  const grid = table("Concepts compared", view, () => columns, {
    sort: { id: filter.id, ascending: filter.ascending },
    sorted: (id, ascending) => { Object.assign(filter, { id, ascending }); keep({ sort: (ascending ? "" : "-") + id }); choosePlaces(); },
    open: (place) => go("concept", {}, rows.concepts.concept[place]),
  });
  const names = { first: nameOf(pair.first, pair.first_run), second: nameOf(pair.second, pair.second_run) };
  const refresh = () => { choosePlaces(); clear(said, `${count(view.order.length)} of ${count(rows.n)} concepts.`); grid.update(); };
  const to = (changes_) => go("compare", { ...params, sort: "", kind: "", ...changes_ });
  const listed = [...pairs.map((entry, n) => [String(n), `${nameOf(entry.first, entry.first_run)} → ${nameOf(entry.second, entry.second_run)}`]), ...(subjects.length > 1 ? [[FREE, "any two subjects…"]] : [])];
  root.append(
    h("p", { class: "lead" }, `From ${names.first} to ${names.second}. `, free ? FREELY : PAIRED(meta.about.alpha)),
    free ? apartLine(changes, names) : headline(changes),
    h("form", { class: "bar", role: "search", onsubmit: (event) => event.preventDefault() },
      listed.length > 1 && choose("Pair", listed, String(k), (value) => to({ pair: value })),
      free && ["first", "second"].map((end) => choose(end === "first" ? "First" : "Second", subjects.map((slug) => [slug, meta.subjects[slug].name]), pair[end], (value) => to({ first: pair.first, second: pair.second, [end]: value }))),
      h("label", { class: "field wide" }, h("span", {}, "Search label or number"), h("input", { type: "search", value: filter.q, oninput: (event) => { filter.q = event.target.value; keep({ q: filter.q }); refresh(); } })),
      choose("Show", shown, filter.kind, (value) => { filter.kind = value; keep({ kind: value }); refresh(); }),
      h("button", { type: "button", onclick: () => save("compare.csv", "text/csv", csv(exported())) }, "CSV")),
    said, grid.element, how());
  refresh();
  return { root, shown: grid.show };

  function choosePlaces() {
    const words = filter.q.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (let place = 0; place < rows.n; place++) {
      const status = free ? "" : changes.status_names[changes.status[place]];
      const significant = status === "ahead" || status === "behind";
      const kept = free ? changes.supported(place) && (!filter.kind || changes.side(place) !== 0) : filter.kind === "any" ? significant : filter.kind === "changed" ? changes.q[place] < meta.about.alpha : filter.kind ? status === filter.kind : significant || status === "typical";
      if (kept && words.every((word) => rows.lower[place].includes(word) || String(rows.concepts.concept[place]) === word.replace("#", ""))) found.push(place);
    }
    const values = filter.id === "concept" ? rows.concepts.concept : changes[filter.id];
    const sign = filter.ascending ? 1 : -1;
    const last = (value) => Number(value !== value);
    view.order = Uint32Array.from(found).sort((a, b) => (filter.id === "label" ? sign * rows.lower[a].localeCompare(rows.lower[b]) : last(values[a]) - last(values[b]) || sign * (values[a] - values[b]) || 0) || a - b);
  }

  function exported() {
    const keys = free ? FREE_KEYS : ["difference", "low", "high", "p", "q", "relative", "relative_low", "relative_high", "relative_p", "relative_q", "first", "second", "n_eff", "n", "n_gained", "n_lost"];
    return [["concept", "label", ...(free ? [] : ["status"]), ...keys], ...Array.from(view.order, (place) => [rows.concepts.concept[place], rows.concepts.label[place], ...(free ? [] : [changes.status_names[changes.status[place]]]), ...keys.map((key) => (Number.isFinite(changes[key][place]) ? Number(changes[key][place].toPrecision(4)) : null))])];
  }
}

const nameOf = (slug, run) => `${meta.subjects[slug]?.name ?? slug}${run ? ` (${run})` : ""}`;

function headline(changes) {
  const number_ = (name) => { const code = changes.status_names.indexOf(name); return code < 0 ? 0 : changes.status.reduce((sum, found) => sum + (found === code), 0); };
  const changed = changes.q.reduce((sum, q) => sum + (q < meta.about.alpha), 0);
  return h("p", {}, `${count(changed)} concepts changed at all (q < ${meta.about.alpha}); on ${count(number_("ahead"))} the second is further ahead than elsewhere, on ${count(number_("behind"))} further behind.`);
}

function columnsOf(changes, rows, free) {
  const { concepts } = rows;
  const paired = !free;
  const phone = innerWidth < 700;
  return [
    column("concept", "#", 76, (p) => h("a", { href: address("concept", {}, concepts.concept[p]), tabindex: "-1" }, `#${concepts.concept[p]}`)),
    column("label", "label", phone ? 124 : 260, (p) => cell(rows.labels[p], "label", labelNote(concepts, p))),
    paired && column("status", "status", 110, (p) => { const name = changes.status_names[changes.status[p]]; return cell(WORDS[name] ?? name, `status ${name === "behind" ? "gap" : name === "ahead" ? "strength" : ""}`); }),
    numeric("relative", "relative", 92, (p) => signed(changes.relative[p])),
    numeric("relative_span", "its interval", 150, (p) => interval(changes.relative_low[p], changes.relative_high[p]), { sortable: false }),
    paired && numeric("relative_p", "p", 84, (p) => small(changes.relative_p[p])),
    paired && numeric("relative_q", "q", 84, (p) => small(changes.relative_q[p])),
    numeric("difference", "difference", 104, (p) => signed(changes.difference[p])),
    numeric("span", "its interval", 150, (p) => interval(changes.low[p], changes.high[p]), { sortable: false }),
    paired && numeric("q", "its q", 84, (p) => small(changes.q[p])),
    numeric("first", "first", 70, (p) => number(changes.first[p])),
    numeric("second", "second", 84, (p) => number(changes.second[p])),
    paired && numeric("n_gained", "gained", 70, (p) => count(changes.n_gained[p])),
    paired && numeric("n_lost", "lost", 62, (p) => count(changes.n_lost[p])),
    numeric("n_eff", "n_eff", 70, (p) => count(changes.n_eff[p])),
  ].filter(Boolean);
}

function how(open = false) {
  return h("details", { open }, h("summary", {}, "How to compare others"),
    h("ul", {},
      h("li", {}, "Two subjects of one run with paired intervals, p and q: name them in params.yaml, ", h("code", {}, "compare: {pairs: [[first, second]]}"), ", and run ", h("code", {}, "dvc repro"), "."),
      h("li", {}, "This run against another revision: ", h("code", {}, "gapscope explore --against REV"), ". It is refused where the SAE or the items differ: numbers of another dictionary do not compare.")));
}
