import { intervals } from "../charts.js";
import { benchmarks, block, labelNote, labelOf, meta, placeOf } from "../data.js";
import { choose, clear, count, h, interval, number, percent, signed, small, table } from "../dom.js";
import { address, among, keep } from "../state.js";
import { STATUSES, coverageOf, load, statusOf } from "../select.js";

const FIRST = 12;

export async function concept(state) {
  const { observer, subject, id, params } = state;
  const place = /^\d+$/.test(id) ? await placeOf(observer, Number(id)) : undefined;
  if (place === undefined) return { root: h("section", { class: "view" }, h("h1", { tabindex: "-1" }, "No such concept"), h("p", {}, `${meta.observers[observer].name} has no concept ${id}. `, h("a", { href: address("concepts") }, "All concepts"))) };
  const rows = await load(observer, subject);
  const [contexts, parts] = await Promise.all([contextsOf(observer, Number(id)), block(`parts-${observer}-${subject}`)]);
  const { concepts } = rows;
  const label = labelOf(concepts, place);
  const root = h("section", { class: "view", "aria-labelledby": "concept-title" },
    h("nav", { class: "steps", "aria-label": "Concepts around" },
      h("a", { href: address("concepts") }, "← all concepts"),
      place > 0 && h("a", { href: address("concept", {}, concepts.concept[place - 1]) }, `‹ #${concepts.concept[place - 1]}`),
      place + 1 < rows.n && h("a", { href: address("concept", {}, concepts.concept[place + 1]) }, `#${concepts.concept[place + 1]} ›`)),
    h("h1", { id: "concept-title", tabindex: "-1" }, h("span", { class: "soft" }, `#${id} `), label),
    h("p", { class: "lead" }, labelNote(concepts, place), ". ", facts(rows, place), " ", pedia(observer, id)),
    await subjectsTable(observer, place),
    h("h2", {}, `By benchmark: ${meta.subjects[subject].name}`),
    byBenchmark(rows, parts, place, rows.calibrated),
    h("h2", {}, "Where it fires"),
    await windows(contexts, observer, subject, params),
    await neighbours(observer, place, concepts));
  return { root };
}

const AGAINST = {
  over: "it fires more often here than in the reference corpus", under: "it fires less often here than in the reference corpus", typical: "it fires about as often here as in the reference corpus",
  unexercised: "it fires in the reference corpus and never here", missing: "it never fires here", dead: "it never fires, in the reference corpus either",
  undecided: "there is too little text to tell whether it fires more or less often here than in the reference corpus",
};

function facts(rows, place) {
  const { columns, concepts } = rows;
  const structural = concepts.structural[place] ? " It is structural: it fires as much on a template with empty content, so it is left out of the tests." : "";
  const status = coverageOf(rows, place);
  const cluster = concepts.cluster_names[concepts.cluster[place]];
  return [
    `Coverage ${small(columns.coverage[place])} (1 is an average concept)${status ? `, status ${status}: ${AGAINST[status] ?? status}` : ""}. It fires on ${count(columns.n_items[place])} of ${count(meta.n_items)} items.${structural}`,
    cluster && [" Cluster ", h("a", { href: address("concepts", { cluster, n: 0 }) }, cluster), "."],
  ];
}

function pedia(observer, id) {
  const page = meta.observers[observer].neuronpedia;
  return page && /^https:\/\/(www\.)?neuronpedia\.org\//.test(page) ? h("a", { href: `${page}/${id}`, rel: "noreferrer noopener", target: "_blank" }, "On Neuronpedia ↗") : null;
}

async function subjectsTable(observer, place) {
  const rows = [];
  for (const [slug, entry] of Object.entries(meta.observers[observer].subjects)) {
    const whole = await block(`performance-${observer}-${slug}`);
    const status = whole.status_names[whole.status[place]];
    const finding = whole.finding_names[whole.finding[place]];
    const alike = finding ? whole.finding.reduce((sum, code) => sum + (code === whole.finding[place]), 0) : 0;
    rows.push([
      h("a", { href: address("concept", { s: slug }, (await block(`concepts-${observer}`)).concept[place]) }, meta.subjects[slug].name),
      h("span", { class: `status ${status}` }, STATUSES[status] ?? status, alike > 1 ? ` (one finding with ${alike - 1} more)` : ""),
      entry.calibrated ? `${signed(whole.adjusted[place])} (${interval(whole.adjusted_low[place], whole.adjusted_high[place])})` : "—",
      small(whole.q[place]), `${number(whole.chi_model[place])} (${interval(whole.ci_low[place], whole.ci_high[place], number)})`, count(whole.n_eff[place]), count(whole.n[place]),
    ]);
  }
  return table("Subjects on this concept", ["subject", "status", ["adjusted", "num"], ["q", "num"], ["chi_model", "num"], ["n_eff", "num"], ["items", "num"]], rows);
}

function byBenchmark(rows, parts, place, calibrated) {
  const n = rows.n;
  const names = calibrated ? ["adjusted", "adjusted_low", "adjusted_high"] : ["chi_model", "ci_low", "ci_high"];
  const found = benchmarks.map((name, k) => {
    const at = k * n + place;
    const status = parts.status_names[parts.status[at]];
    return {
      name, row: `${name} (${count(parts.n[at])})`, value: parts[names[0]][at], low: parts[names[1]][at], high: parts[names[2]][at], chi: parts.chi_model[at], n: parts.n[at], n_eff: parts.n_eff[at], status,
      tone: status === "gap" || status === "strength" ? status : "bar", hollow: parts.n_eff[at] < meta.about.min_n_eff, note: `${count(parts.n[at])} items, n_eff ${count(parts.n_eff[at])}`,
    };
  });
  const some = found.filter((entry) => Number.isFinite(entry.value));
  const silent = found.filter((entry) => !Number.isFinite(entry.value)).map((entry) => entry.name);
  return [
    some.length ? intervals(`Score on this concept by benchmark, with ${percent(meta.about.confidence, 0)} intervals`, some.map((entry) => ({ ...entry, name: entry.row })), { zero: calibrated ? 0 : null, name: `${calibrated ? "adjusted score (0: as on comparable items" : "chi_model ("}${calibrated ? "; " : ""}in brackets: its scored items; hollow: n_eff below ${meta.about.min_n_eff}, too few to tell)`, format: calibrated ? signed : number }) : h("p", {}, "It fires on no scored item."),
    silent.length > 0 && h("p", { class: "said" }, `It never fires on a scored item of: ${silent.join(", ")}.`),
    h("details", {}, h("summary", {}, "The same as a table"), table("Score by benchmark", ["benchmark", ["value", "num"], ["interval", "num"], ["chi_model", "num"], ["items", "num"], ["n_eff", "num"]],
      found.map((entry) => [entry.name, (calibrated ? signed : number)(entry.value), interval(entry.low, entry.high, calibrated ? signed : number), number(entry.chi), count(entry.n), count(entry.n_eff)]))),
  ];
}

// Where a concept's windows start in the block, which is sorted by concept; and where each window's active stretches start.
const starts = new Map();

async function contextsOf(observer, id) {
  const found = await block(`contexts-${observer}`);
  if (!starts.has(observer)) {
    const first = new Map();
    const active = new Uint32Array(found.n_active.length + 1);
    for (let k = 0; k < found.concept.length; k++) {
      if (!first.has(found.concept[k])) first.set(found.concept[k], k);
      active[k + 1] = active[k] + found.n_active[k];
    }
    starts.set(observer, { first, active });
  }
  const { first, active } = starts.get(observer);
  const list = [];
  for (let k = first.get(id) ?? Infinity; k < found.concept.length && found.concept[k] === id; k++) {
    const stretches = [];
    for (let j = active[k]; j < active[k + 1]; j++) stretches.push([found.offset[j], found.width[j], found.activation[j]]);
    list.push({ item: found.item[k], start: found.start[k], length: found.length[k], group: found.groups[found.group[k]], stretches });
  }
  const most = Math.max(0, ...list.flatMap((window) => window.stretches.map(([, , value]) => value)));
  return { list, most, texts: found.texts };
}

async function windows({ list, most, texts }, observer, subject, params) {
  const items = await block("items");
  const answers = {};
  for (const slug of Object.keys(meta.subjects)) answers[slug] = await block(`answers-${slug}`);
  const known = meta.observers[observer].items;
  const cards = list.map((window) => ({ ...window, place: window.item < known.length ? known[window.item] : -1, text: window.item < known.length ? null : texts[window.item - known.length] }));
  if (!cards.length) return h("p", {}, meta.observers[observer].n_contexts_left_out ? "Its contexts did not fit into this page; contexts.parquet holds them." : "No example is kept of it: it never fires on the suite's items.");
  const said = h("p", { class: "said", role: "status" });
  const box = h("div", { class: "windows" });
  const groups = [...new Set(cards.map((card) => card.group))];
  let [group, verdict, more] = [among(params.group, groups), among(params.verdict, ["wrong", "right"]), false];
  const draw = () => {
    const score = (card) => (card.place < 0 ? NaN : answers[subject].score[card.place]);
    const kept = cards.filter((card) => (!group || card.group === group) && (!verdict || (verdict === "wrong" ? score(card) < 0.5 : score(card) >= 0.5)));
    clear(said, `${kept.length} of ${cards.length} kept contexts`, verdict ? `, answered ${verdict} by ${meta.subjects[subject].name}` : "", ". The stronger the tone, the stronger the concept; the underlined piece is the peak.");
    clear(box, kept.slice(0, more ? undefined : FIRST).map((card) => windowCard(card, items, answers, most, subject)),
      kept.length > FIRST && !more && h("button", { type: "button", onclick: () => { more = true; draw(); } }, `Show ${kept.length - FIRST} more`));
  };
  const words = { top: "strongest", quantile: "spread over its range", reference: "reference corpus" };
  const tools = h("div", { class: "bar" },
    choose("Contexts", [["", "all"], ...groups.map((name) => [name, words[name]])], group, (value) => { group = value; keep({ group: value }); draw(); }),
    choose(`Answers of ${meta.subjects[subject].name}`, [["", "all"], ["wrong", "wrong only"], ["right", "right only"]], verdict, (value) => { verdict = value; keep({ verdict: value }); draw(); }),
    h("div", { class: "legend", "aria-label": `Legend: activation from 0 to ${number(most, 1)}` }, "0", [1, 2, 3, 4, 5].map((tone) => h("mark", { class: `tone-${tone}` }, "  ")), number(most, 1), " activation"));
  draw();
  return [tools, said, box];
}

function windowCard(card, items, answers, most, subject) {
  const inside = card.place >= 0;
  const full = inside ? items.text[card.place] : card.text;
  const text = Array.from(full); // characters, not UTF-16 units
  const from = card.start;
  const until = card.start + card.length;
  return h("article", { class: "window" },
    h("p", { class: "quote", dir: "auto" }, from > 0 && "…", highlighted(text, from, card.stretches, until, most), until < text.length && "…"),
    inside ? [
      h("p", { class: "badges" }, h("span", { class: "soft" }, items.benchmark_names[items.benchmark[card.place]]), badges(answers, card.place, subject)),
      h("details", {}, h("summary", {}, "Question, choices and answers"), question(items, answers, card.place)),
    ] : h("p", { class: "badges soft" }, "from the reference corpus: no item of the suite"));
}

function highlighted(text, from, stretches, until, most) {
  const parts = [];
  let at = from;
  const strongest = Math.max(...stretches.map(([, , value]) => value));
  for (const [offset, width, value] of stretches) {
    const start = from + offset;
    if (start > at) parts.push(text.slice(at, start).join(""));
    const tone = Math.min(5, Math.max(1, Math.ceil((value / most) * 5)));
    parts.push(h("mark", { class: `tone-${tone}${value === strongest ? " peak" : ""}`, title: `activation ${number(value)}` }, text.slice(start, start + width).join("")));
    at = start + width;
  }
  parts.push(text.slice(at, until).join(""));
  return parts;
}

const FEW = 3;

// A badge a subject; where there are many, the chosen subject's and the others in two groups.
function badges(answers, place, subject) {
  const slugs = Object.keys(answers);
  if (slugs.length <= FEW) return slugs.map((slug) => badge(slug, answers[slug], place));
  const others = slugs.filter((slug) => slug !== subject);
  const group = (sign, word, cls, test) => {
    const names = others.filter((slug) => test(answers[slug].score[place])).map((slug) => meta.subjects[slug].name);
    return names.length > 0 && h("span", { class: `badge many ${cls}` }, `${sign} ${names.length} of ${others.length} others ${word}: ${names.join(", ")}`);
  };
  return [
    badge(subject, answers[subject], place),
    group("✓", "right", "right", (score) => score >= 1), group("~", "partly", "partly", (score) => score > 0 && score < 1),
    group("✗", "wrong", "wrong", (score) => score <= 0), group("?", "unscored", "none", (score) => !Number.isFinite(score)),
  ];
}

export function badge(slug, answers, place) {
  const score = answers.score[place];
  const [sign, word, cls] = !Number.isFinite(score) ? ["?", "unscored", "none"] : score >= 1 ? ["✓", "right", "right"] : score <= 0 ? ["✗", "wrong", "wrong"] : ["~", `score ${number(score)}`, "partly"];
  return h("span", { class: `badge ${cls}` }, `${sign} ${meta.subjects[slug].name}: ${word}`);
}

export function question(items, answers, place) {
  const gold = items.gold[place] - 1;
  const choices = items.choices[place];
  const by = (k) => Object.keys(answers).filter((slug) => answers[slug].choice[place] - 1 === k);
  const free = Object.keys(answers).filter((slug) => answers[slug].answer[place] !== null);
  return h("div", { class: "question" },
    h("p", { class: "soft" }, items.id[place], items.meta[place] && `; ${items.meta[place]}`),
    h("p", { class: "text", dir: "auto" }, items.text[place]),
    choices.length ? h("ol", { type: "A", class: "choices" }, choices.map((text, k) => h("li", { class: k === gold ? "gold" : null }, h("span", { dir: "auto" }, text), k === gold && h("span", { class: "badge right" }, "gold"), by(k).map((slug) => h("span", { class: `badge ${k === gold ? "right" : "wrong"}` }, `chosen by ${meta.subjects[slug].name}`))))) : h("p", {}, h("b", {}, "gold: "), h("span", { dir: "auto" }, items.target[place] ?? "—")),
    free.map((slug) => h("p", {}, h("b", {}, `${meta.subjects[slug].name} answered: `), h("span", { dir: "auto" }, answers[slug].answer[place]))));
}

async function neighbours(observer, place, concepts) {
  const found = await block(`neighbours-${observer}`);
  if (!found) return null;
  const at = found.place.indexOf(place);
  if (at < 0) return h("p", { class: "said" }, "Neighbours are kept for concepts of clusters only: the dictionary is wide.");
  const rows = Array.from({ length: found.count }, (_, k) => {
    const near = found.nearest[at * found.count + k];
    return [h("a", { href: address("concept", {}, concepts.concept[near]) }, `#${concepts.concept[near]}`), labelOf(concepts, near), number(found.cosine[at * found.count + k])];
  });
  return [h("h2", {}, "Neighbours"), h("p", { class: "said" }, "Concepts whose decoder directions point the same way."), table("Neighbours", ["concept", "label", ["cosine", "num"]], rows)];
}
