import { meta } from "../data.js";
import { count, h, number, table } from "../dom.js";

const MADE = [
  ["coverage (chi_bench)", "A concept's mean saliency in a benchmark over the mean of all concepts there: 1 is an average concept, 0 never fires. Over the suite: the mean over benchmarks. Begin-of-text and special tokens are left out."],
  ["coverage status", "Firing rate here against a reference corpus at equal tokens, by an interval: dead (fires nowhere), unexercised (fires there, never here), under, typical, over; undecided where there is too little text. Missing: fires on no item."],
  ["chi_model", "The mean score of the items, weighted by the concept's saliency. By itself it mostly says in which benchmark a concept fires."],
  ["adjusted", "The same weighted mean of the chance-corrected score minus that of items of the same benchmark and about the same length: 0 is as expected, −0.1 ten points worse."],
  ["n_eff", "How many equally weighted items the concept's items are worth. Below the least support a concept is unsupported, which is not a gap."],
  ["p and q", "p: how often scores permuted within benchmark and length give so far a value. q: Benjamini and Hochberg's, over the supported concepts."],
  ["gap, strength, typical", "Gap (strength): q below alpha, and adjusted below (above) 0. Typical: tested, and not told from chance. Concepts that fire on the same items are one finding: count findings, not concepts."],
  ["label score", "How well the label alone picks the concept's held-out contexts out of others': 0.5 is chance, 1 perfect. “(?)” marks those under 0.6 or unscored; a label in quotes is only the text on which the concept fires most."],
];

export async function about() {
  const { seed, min_n_eff: least, alpha, confidence } = meta.about;
  const rows = Object.values(meta.observers).map((entry) => [
    entry.name, entry.sae.id ?? "—", entry.sae.architecture ?? "—", count(entry.n_concepts), number(entry.totals.fvu ?? NaN, 3), number(entry.totals.l0 ?? NaN, 1), count(entry.totals.n_tokens), count(entry.totals.n_masked), count(entry.totals.n_truncated),
  ]);
  const root = h("section", { class: "view", "aria-labelledby": "about-title" },
    h("h1", { id: "about-title", tabindex: "-1" }, "About this run"),
    h("h2", {}, "Observers"),
    table("Observers", ["observer", "SAE", "architecture", ["concepts", "num"], ["FVU", "num"], ["L0", "num"], ["tokens", "num"], ["masked", "num"], ["truncated", "num"]], rows),
    h("p", { class: "said" }, "FVU: share of the activations' variance that the SAE leaves unexplained; L0: concepts active on a token; both on the items. Masked and truncated: tokens."),
    h("h2", {}, "Benchmarks"),
    table("Benchmarks and licences", ["benchmark", "kind", ["items", "num"], "licence"], meta.benchmarks.map((entry) => [entry.slug, entry.kind ?? "—", count(entry.n_items), entry.licence ?? "—"])),
    h("p", {}, `Seed ${seed}; least support n_eff ${least}; alpha ${alpha}; intervals ${confidence * 100}%.`),
    h("p", {}, "Digest of the inputs: ", h("code", {}, meta.digest)),
    meta.commit && h("p", {}, "Commit: ", h("code", {}, meta.commit)),
    h("h2", {}, "How each number was made"),
    h("dl", {}, MADE.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
    h("p", { class: "said" }, "Numbers in this page are held to about four digits; the Parquet tables hold more. The page runs from this one file, asks no network for anything and keeps nothing. It contains Apache ECharts (Apache-2.0) and SlickGrid (MIT)."));
  return { root };
}
