import { SUITE, accuracyOf, labelOf, meta } from "../data.js";
import { count, h, interval, number, percent, signed } from "../dom.js";
import { address } from "../state.js";
import { filtered, load } from "../select.js";
import { missingOf } from "./benchmarks.js";
import { robustnessLine } from "./robustness.js";
import { lights } from "./validity.js";

export async function overview(state) {
  const { observer, subject } = state;
  const rows = await load(observer, subject);
  const missing = await missingOf(observer);
  const name = meta.subjects[subject].name;
  const root = h("section", { class: "view", "aria-labelledby": "overview-title" },
    h("h1", { id: "overview-title", tabindex: "-1" }, "What the score of ", name, " hides"),
    facts(observer, subject),
    h("div", { class: "cards" },
      await worst(rows, name, "worst"), await worst(rows, name, "best"), misses(missing), robust(subject), trust(observer)));
  return { root };
}

function facts(observer, subject) {
  const seen = meta.observers[observer];
  const row = accuracyOf(subject, SUITE);
  const entry = (term, text) => h("div", {}, h("dt", {}, term), h("dd", {}, text));
  return h("dl", { class: "facts" },
    entry("Accuracy, mean over benchmarks", `${percent(row.accuracy ?? NaN)} (${interval(row.low ?? NaN, row.high ?? NaN, percent)}); a blind guess ${percent(row.chance)}`),
    entry("Suite", `${count(meta.n_items)} items in ${meta.benchmarks.length} ${meta.benchmarks.length === 1 ? "benchmark" : "benchmarks"}`),
    entry("Tokens read", `${count(seen.totals.n_tokens)}; ${count(seen.totals.n_masked)} masked, ${count(seen.totals.n_truncated)} cut off`),
    entry("Observer", seen.name),
    entry("SAE", `${count(seen.n_concepts)} concepts at layer ${seen.sae.layer ?? "—"}, ${seen.sae.architecture ?? ""}; FVU ${number(seen.totals.fvu ?? NaN)}, L0 ${number(seen.totals.l0 ?? NaN, 0)}`),
    entry("Subjects", subjectsShown()),
    entry("Seed", String(meta.about.seed)),
    entry("Inputs", h("code", { title: meta.digest }, meta.digest.slice(0, 12))),
    meta.commit && entry("Commit", h("code", {}, meta.commit)));
}

function subjectsShown() {
  const names = Object.values(meta.subjects).map((subject) => subject.name);
  return names.length <= 3 ? names.join(", ") : `${names.slice(0, 2).join(", ")} and ${names.length - 2} more`;
}

async function worst(rows, name, end) {
  const { columns, concepts } = rows;
  const key = rows.calibrated ? "adjusted" : "chi_model";
  const status = end === "worst" ? "gap" : "strength";
  const base = { q: "", status: "", coverage: "", support: meta.about.min_n_eff, maxQ: 1, cluster: "", plain: true, cov: null, perf: null, measure: key };
  const told = rows.calibrated ? rows.columns.status_names.indexOf(status) : -1;
  const n = told < 0 ? 0 : columns.status.reduce((sum, code) => sum + (code === told), 0);
  const findings = new Set();
  if (n) columns.finding.forEach((code, place) => columns.status[place] === told && findings.add(columns.finding_names[code] || `c${place}`));
  // The concepts table begins in the same order; here one of each finding, and only what leans to this side.
  const order = filtered(rows, { ...base, sort: rows.calibrated ? "status" : key, descending: end === "best" });
  const side = (place) => (n ? columns.status[place] === told : columns.adjusted[place] === columns.adjusted[place] && (end === "worst") === columns.adjusted[place] < 0);
  const ranked = rows.calibrated ? order.filter(side) : order;
  const seen = new Set();
  const list = [];
  for (const place of ranked) {
    const finding = columns.finding_names[columns.finding[place]] || `c${place}`;
    if (!seen.has(finding)) list.push(place);
    seen.add(finding);
    if (list.length === 6) break;
  }
  const line = (place) => h("li", {},
    h("a", { href: address("concept", {}, concepts.concept[place]) }, `#${concepts.concept[place]}: ${labelOf(concepts, place)}`),
    h("span", { class: "soft num" }, rows.calibrated ? ` ${signed(columns.adjusted[place])} (${interval(columns.adjusted_low[place], columns.adjusted_high[place])}), n_eff ${count(columns.n_eff[place])}` : ` ${number(columns.chi_model[place])} (${interval(columns.ci_low[place], columns.ci_high[place], number)}), n_eff ${count(columns.n_eff[place])}`));
  const verdict = !rows.calibrated ? "Not calibrated: raw chi_model only."
    : n ? `${count(n)} concepts, ${count(findings.size)} independent findings, told from chance at q < ${meta.about.alpha}.`
    : `None is told from chance at q < ${meta.about.alpha}. The surest candidates, of which none is claimed:`;
  return h("article", { class: "card" },
    h("h2", {}, end === "worst" ? `Which concept is ${name} worst at?` : "And best at?"),
    h("p", { class: n ? `verdict ${status}` : "verdict" }, verdict),
    h("ol", { class: "plain" }, list.map(line)),
    h("p", { class: "said" }, rows.calibrated ? `Score against comparable questions (0 is as expected), with ${percent(meta.about.confidence, 0)} interval of that concept alone; ${n ? "by size, small samples drawn towards 0" : "the surest first"}. n_eff: how many equally weighted questions it is worth.` : "Mean score on its questions, with interval.", list.some((place) => labelOf(concepts, place).endsWith("(?)")) ? " (?): a label to be doubted." : ""),
    h("p", {}, h("a", { href: address("concepts", end === "worst" ? {} : { sort: rows.calibrated ? "-status" : `-${key}` }) }, "All concepts in a table"), "; a concept's page shows its questions."));
}

function misses({ lists, whole, dead, n, concepts }) {
  const order = meta.benchmarks.map((entry, k) => [entry.slug, lists[k].length]).sort((a, b) => b[1] - a[1]);
  const names = whole.map((place) => labelOf(concepts, place)).filter((text) => !text.startsWith("(no")).slice(0, 3);
  return h("article", { class: "card" },
    h("h2", {}, "Which benchmark misses what?"),
    h("p", { class: "verdict" }, `The suite misses ${count(whole.length)} of ${count(n)} concepts (${count(dead)} dead ones aside)`, names.length ? `, among them: ${names.join("; ")}.` : "."),
    h("ol", { class: "plain bars" }, order.slice(0, 6).map(([slug, missing]) => h("li", {}, h("a", { href: address("benchmarks", { miss: slug }) }, slug), h("meter", { min: 0, max: n, value: missing, "aria-label": `${slug} misses ${percent(missing / n)}` }), h("span", { class: "soft num" }, percent(missing / n, 0))))),
    h("p", { class: "said" }, "Share of the concepts on which no item of it fires. A benchmark with less text misses more for that alone."),
    h("p", {}, h("a", { href: address("benchmarks") }, "All benchmarks, what each misses, and overlap")));
}

function robust(subject) {
  return h("article", { class: "card" }, h("h2", {}, "Did the variants break it?"), robustnessLine(subject), !meta.robustness.absent && h("p", {}, h("a", { href: address("robustness") }, "By type, with questions")));
}

function trust(observer) {
  return h("article", { class: "card" }, h("h2", {}, "How far can this be trusted?"), lights(observer), !meta.validity.absent && h("p", {}, h("a", { href: address("validity") }, "The checks in plain words")));
}
