// Two subjects that the run did not compare, from what the page holds of each: their own columns, not their answers.

import { block, meta } from "./data.js";
import { count, h } from "./dom.js";

export const FREE = "free";
export const FREE_KEYS = ["relative", "relative_low", "relative_high", "difference", "low", "high", "first", "second", "n_eff", "n"];
export const FREELY = "Relative: adjusted score of the second minus that of the first; difference: the same of chi_model. "
  + "An interval here runs from one subject's low end less the other's high end, to its high end less the other's low end: it holds however the two depend on each other, "
  + "but is wider than a paired one, and is not corrected for looking at many concepts.";

export function chosenPair(subjects, params) {
  const first = subjects.includes(params.first) ? params.first : subjects.find((slug) => slug !== params.second);
  const second = subjects.includes(params.second) && params.second !== first ? params.second : subjects.find((slug) => slug !== first);
  return { first, second };
}

export async function apart(observer, { first, second }, rows) {
  const [a, b] = await Promise.all([first, second].map((slug) => block(`performance-${observer}-${slug}`)));
  const known = meta.observers[observer].subjects;
  const main = known[first].calibrated && known[second].calibrated ? "relative" : "difference";
  const minus = (from, less) => Float32Array.from({ length: rows.n }, (_, place) => from[place] - less[place]);
  const least = (name) => Float32Array.from({ length: rows.n }, (_, place) => Math.min(a[name][place], b[name][place]));
  const found = {
    main, first: a.chi_model, second: b.chi_model, n_eff: least("n_eff"), n: least("n"),
    difference: minus(b.chi_model, a.chi_model), low: minus(b.ci_low, a.ci_high), high: minus(b.ci_high, a.ci_low),
    relative: minus(b.adjusted, a.adjusted), relative_low: minus(b.adjusted_low, a.adjusted_high), relative_high: minus(b.adjusted_high, a.adjusted_low),
  };
  const [low, high] = main === "relative" ? [found.relative_low, found.relative_high] : [found.low, found.high];
  // 1 where the second is the better by the whole interval, -1 the worse, 0 where the intervals of the two meet.
  found.side = (place) => (low[place] > 0 ? 1 : high[place] < 0 ? -1 : 0);
  found.supported = (place) => found.n_eff[place] >= meta.about.min_n_eff && Number.isFinite(found[main][place]);
  return found;
}

export function apartLine(changes, names) {
  let [better, worse] = [0, 0];
  for (let place = 0; place < changes.n_eff.length; place++) {
    if (!changes.supported(place)) continue;
    if (changes.side(place) > 0) better++;
    else if (changes.side(place) < 0) worse++;
  }
  const against = changes.main === "relative" ? ", each against comparable questions" : "";
  return h("p", {}, `The two intervals do not meet on ${count(better + worse)} concepts: ${names.second} is the better on ${count(better)}, ${names.first} on ${count(worse)}${against}.`);
}
