import { intervals } from "../charts.js";
import { block, meta } from "../data.js";
import { add, choose, clear, count, h, interval, number, percent, signed, small, table } from "../dom.js";
import { among, keep } from "../state.js";

const TYPES = {
  all: "all variants", problem_restatement: "problem restatement", reverse_conversion: "reverse conversion", causal_inference: "causal inference", sentence_ordering: "sentence ordering",
  scenario_refinement: "scenario refinement", negative_transformation: "negative transformation", critical_testing: "critical testing", critical_testing_nota_gold: "“none of the above” is right", critical_testing_nota_distractor: "“none of the above” is wrong",
};
const DIMENSIONS = { tc: "type", lc: "label", au: "one answer" };
const VERDICTS = "A variant is judged by three things. Type (TC): it is of its type and keeps the knowledge. Label (LC): the marked answer is right. One answer (AU): exactly one choice is right. It is valid where all three hold; p(valid) is the verifier's probability of that. The verifier is a model: no person has read these.";
const SHORTCUTS = { longest: "takes the longest choice", shortest: "takes the shortest choice", overlap: "takes the choice that shares most words with the question" };
const REASONS = { unparsable: "could not be read as a question", rule: "breaks its type's rule", tc: "not of its type (TC)", lc: "label wrong (LC)", au: "answer not unique (AU)", copy: "copy of the original", duplicate: "duplicate of another variant" };
const FIRST = 10;
const SHOWN = 40;

const rowOf = (subject, subset) => meta.robustness.rows?.find((row) => row.subject === subject && row.subset === subset);
const nan = (value) => value ?? NaN;
const points = (value) => signed(value * 100, 1);
// The verifier names what it faults by code.
const inWords = (said) => said.replace(/^(the verifier sees a fault in )([a-z, ]+)$/, (_all, start, codes) => start + codes.split(", ").map((code) => DIMENSIONS[code] ?? code).join(", "));

// One line for the overview: the fall from originals to variants, and whether its interval excludes none.
export function robustnessLine(subject) {
  const { absent, not_asked: left = {} } = meta.robustness;
  if (absent) return h("p", { class: "verdict" }, absent);
  const row = rowOf(subject, "all");
  if (meta.robustness.n_pairs === 0) return h("p", { class: "verdict" }, `No variant was accepted of ${count(nan(meta.robustness.report.n_candidates))} candidates, so nothing could be asked.`);
  if (!row) return h("p", { class: "verdict" }, left[subject] ? `${meta.subjects[subject].name} was not asked: ${left[subject]}.` : "No variant was accepted.");
  if (row.oa === null || row.oa === undefined) return h("p", { class: "verdict" }, "No variant could be scored.");
  const told = row.rla_low > 0 ? "The score falls on variants" : row.rla_high < 0 ? "The score is higher on variants" : "No fall is told from chance";
  return [
    h("p", { class: row.rla_low > 0 ? "verdict gap" : "verdict" }, `${told}: ${percent(row.oa)} on originals, ${percent(nan(row.ara))} on ${count(row.n_variants)} variants of ${count(row.n_families)} families; the loss is ${points(nan(row.rla))} points (${percent(meta.about.confidence, 0)} interval ${interval(nan(row.rla_low), nan(row.rla_high), points)}).`),
    h("p", { class: "soft" }, `A blind guess: ${percent(nan(row.chance_original))} on originals, ${percent(nan(row.chance_variant))} on variants.`),
  ];
}

export async function robustness(state) {
  const { subject, params } = state;
  const root = h("section", { class: "view", "aria-labelledby": "robustness-title" }, h("h1", { id: "robustness-title", tabindex: "-1" }, "Robustness: the same knowledge asked in another form"));
  add(root, robustnessLine(subject));
  if (meta.robustness.absent) {
    root.append(h("p", { class: "lead" }, "Variants are rewritten questions, made by a small generator and checked by rules and a verifier. Where they are switched off (params.yaml, variants.enabled), this view has nothing to show."));
    return { root };
  }
  const found = await block("variants");
  const rows = meta.robustness.rows.filter((row) => row.subject === subject && row.n_variants > 0);
  if (rows.length) add(root,
    h("h2", {}, "Loss by type"),
    intervals(`Accuracy on originals less accuracy on variants, by type, with intervals`, rows.map((row) => ({ name: TYPES[row.subset] ?? row.subset, value: nan(row.rla), low: nan(row.rla_low), high: nan(row.rla_high), tone: row.rla_low > 0 ? "gap" : "bar", note: `${row.n_variants} variants of ${row.n_families} families` })), { zero: 0, format: (value) => signed(value * 100, 0), name: `loss in percentage points with ${percent(meta.about.confidence, 0)} interval: right of 0 the variants are harder for the subject (orange: the whole interval is; not corrected for looking at several types)` }),
    measures(rows), versus());
  add(root, h("h2", {}, "Each variant beside its question"), pairs(found.pairs, params), h("h2", {}, "Why candidates were rejected"), rejected(found.rejected, params), quality());
  return { root };
}

function measures(rows) {
  const with_ = (row, name, form = percent) => form(nan(row[name])) + (Number.isFinite(nan(row[`${name}_low`])) ? ` (${interval(row[`${name}_low`], row[`${name}_high`], form === points ? (value) => signed(value * 100, 0) : (value) => percent(value, 0))})` : "");
  return [
    table("Measures by type", ["type", ["families", "num"], ["variants", "num"], ["OA, originals", "num"], ["ARA, variants", "num"], ["blind guess there", "num"], ["RLA, loss in points", "num"], ["CRA, pairs", "num"], ["CRA, whole families", "num"]],
      rows.map((row) => [TYPES[row.subset] ?? row.subset, count(row.n_families), count(row.n_variants), with_(row, "oa"), with_(row, "ara"), percent(nan(row.chance_variant)), with_(row, "rla", points), with_(row, "cra_pair"), with_(row, "cra_all")])),
    h("p", { class: "said" }, "“None of the above” is right, is wrong: the two kinds of critical testing. OA: accuracy on the original questions; ARA: on their variants; RLA: OA less ARA. CRA, pairs: original and variant both right; CRA, whole families: the original and every one of its variants right. Intervals by bootstrap over families; none where every draw gives the same."),
  ];
}

function versus() {
  const list = meta.robustness.comparisons ?? [];
  if (!list.length) return null;
  return [h("h2", {}, "Subjects against each other"), table("Subjects against each other", ["asked", "first", "second", ["families", "num"], ["difference", "num"], ["p", "num"], ["p, Holm", "num"]], list.map((row) => [row.asked, meta.subjects[row.subject]?.name ?? row.subject, meta.subjects[row.other]?.name ?? row.other, count(row.n_families), signed(nan(row.difference)), small(nan(row.p)), small(nan(row.p_holm))]))];
}

// The words of two texts that are not in their longest common subsequence.
export function changed(one, other) {
  const [a, b] = [one, other].map((text) => text.split(/(\s+)/).filter((piece) => piece !== ""));
  if (a.length * b.length > 4e6) return [[one], [other]];
  const width = b.length + 1;
  const best = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) best[i * width + j] = a[i] === b[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
  const [left, right] = [[], []];
  const put = (list, tag, piece) => list.push(/^\s+$/.test(piece) ? piece : tag ? h(tag, {}, piece) : piece);
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { put(left, "", a[i++]); put(right, "", b[j++]); }
    else if (j >= b.length || (i < a.length && best[(i + 1) * width + j] >= best[i * width + j + 1])) put(left, "del", a[i++]);
    else put(right, "ins", b[j++]);
  }
  return [left, right];
}

function side(title, item, text) {
  const by = (k) => Object.entries(item.answers).filter(([, [prediction]]) => prediction === String(k)).map(([slug]) => h("span", { class: `badge ${k === item.gold ? "right" : "wrong"}` }, `${k === item.gold ? "✓" : "✗"} ${meta.subjects[slug]?.name ?? slug}`));
  return h("div", {}, h("p", { class: "soft" }, title), h("p", { dir: "auto" }, text), h("ol", { type: "A", class: "choices" }, item.choices.map((choice, k) => h("li", { class: k === item.gold ? "gold" : null }, h("span", { dir: "auto" }, choice), k === item.gold && h("span", { class: "badge right" }, "gold"), by(k)))));
}

function verdictLine(verdict) {
  if (!verdict) return null;
  const word = (name, text) => `${text} ${verdict[name] === null || verdict[name] === undefined ? "—" : verdict[name] ? "✓" : "✗"}`;
  return h("span", { class: "soft", title: VERDICTS }, Object.entries(DIMENSIONS).map(([name, text]) => word(name, text)).join("  "), Number.isFinite(verdict.p) ? `  p(valid) ${number(verdict.p)}` : "");
}

function pairs(list, params) {
  if (!list.length) return h("p", {}, "No variant was accepted.");
  const types = [...new Set(list.map((pair) => pair.type))].sort();
  let [type, verdict, more] = [among(params.type, types), among(params.answers, ["broken", "kept"]), false];
  const box = h("div", { class: "pairs" });
  const said = h("p", { class: "said", role: "status" });
  const right = (item) => Object.values(item.answers).map(([, score]) => score);
  const draw = () => {
    const kept = list.filter((pair) => (!type || pair.type === type) && (!verdict || (verdict === "broken" ? right(pair.original).some((score, k) => score === 1 && right(pair.variant)[k] === 0) : right(pair.variant).every((score) => score === 1))));
    clear(said, `${kept.length} of ${meta.robustness.n_pairs} accepted variants. `, h("del", {}, "Struck"), " words are gone, ", h("ins", {}, "underlined"), " ones are new.");
    clear(box, kept.slice(0, more ? undefined : FIRST).map((pair) => {
      const [left, now] = changed(pair.original.text, pair.variant.text);
      return h("article", { class: "pair" }, h("p", { class: "badges" }, h("b", {}, TYPES[pair.type] ?? pair.type), h("span", { class: "soft" }, pair.benchmark), verdictLine(pair.verdict)), h("div", { class: "sides" }, side("original", pair.original, left), side("variant", pair.variant, now)));
    }), kept.length > FIRST && !more && h("button", { type: "button", onclick: () => { more = true; draw(); } }, `Show ${kept.length - FIRST} more`));
  };
  draw();
  return [h("p", { class: "said" }, VERDICTS), h("div", { class: "bar" },
    choose("Type", [["", "all"], ...types.map((name) => [name, TYPES[name] ?? name])], type, (value) => { type = value; keep({ type: value }); draw(); }),
    choose("Answers", [["", "all"], ["broken", "original right, variant wrong"], ["kept", "variant right"]], verdict, (value) => { verdict = value; keep({ answers: value }); draw(); })), said, box];
}

function rejected(list, params) {
  const { report } = meta.robustness;
  const reasons = Object.entries(report.reasons ?? {}).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  if (!reasons.length) return h("p", {}, "None was.");
  const box = h("div");
  let reason = among(params.reason, reasons.map(([name]) => name));
  const draw = () => {
    const kept = list.filter((row) => !reason || row.reason === reason);
    clear(box, kept.length > SHOWN && h("p", { class: "said" }, `The first ${SHOWN} of ${count(kept.length)}.`), table("Rejected candidates", ["reason", "type", "said", "candidate"], kept.slice(0, SHOWN).map((row) => [REASONS[row.reason] ?? row.reason, TYPES[row.type] ?? row.type, inWords(row.explanation ?? ""), h("span", { dir: "auto" }, row.text ?? row.completion ?? "")])));
  };
  draw();
  return [
    h("p", { class: "said" }, `${count(nan(report.n_accepted))} of ${count(nan(report.n_candidates))} candidates were accepted (${percent(nan(report.pass_rate))}).`),
    table("Reasons", ["reason", ["candidates", "num"]], reasons.map(([name, n]) => [REASONS[name] ?? name, count(n)])),
    h("div", { class: "bar" }, choose("Examples of", [["", "every reason"], ...reasons.map(([name]) => [name, REASONS[name] ?? name])], reason, (value) => { reason = value; keep({ reason: value }); draw(); })), box,
  ];
}

function quality() {
  const { shortcuts = {}, choices_only: blind = {} } = meta.robustness.quality ?? {};
  const named = [
    ...Object.entries(shortcuts).map(([name, row]) => [SHORTCUTS[name] ?? name, row]),
    ...Object.entries(blind).map(([slug, row]) => [`${meta.subjects[slug]?.name ?? slug}, shown the choices alone`, row]),
  ];
  const rows = named.filter(([, row]) => row && row.n);
  const span = (row) => percent(nan(row.accuracy)) + (Number.isFinite(nan(row.low)) ? ` (${interval(row.low, row.high, (value) => percent(value, 0))})` : "");
  const told = (row) => (!Number.isFinite(nan(row.low)) ? "—" : row.low > row.chance ? "above: the set gives answers away" : row.high < row.chance ? "below" : "not told from it");
  if (!rows.length) return null;
  return [h("h2", {}, "What the set gives away by itself"), h("p", { class: "said" }, "Baselines that never read the question for its meaning: they should sit near the blind guess. The first three leave “none of the above” aside. Intervals: 95%."), table("Baselines", ["baseline", ["accuracy", "num"], ["blind guess", "num"], ["variants", "num"], "against the blind guess"], rows.map(([name, row]) => [name, span(row), percent(nan(row.chance)), count(row.n), told(row)]))];
}
