// What each validity check says in plain words, and its light by the threshold that stands beside it. Nothing here is estimated: the numbers are those of the metrics file.

import { count, h, interval, number, percent, signed, table } from "./dom.js";

const of = (found, ...path) => path.reduce((part, name) => part?.[name], found) ?? { n: 0 };
const known = (outcome) => outcome.n > 0 && Number.isFinite(outcome.value);
const spanned = (outcome, form) => (known(outcome) ? `${form(outcome.value)}${Number.isFinite(outcome.low) ? ` (${interval(outcome.low, outcome.high, form)})` : ""}` : "—");
const unanswered = (rule, why = "This run has no number for it.") => ({ light: "none", text: why, rule, more: null });

function heldOut(found) {
  const rule = "good where the lowest concepts of one half are below 0 on the other half and the highest above, each by its whole interval; careful where one of the two is; poor where neither is.";
  const [lowest, highest, r] = [of(found, "calibrated", "lowest", "adjusted"), of(found, "calibrated", "highest", "adjusted"), of(found, "calibrated", "features", "r")];
  const shuffled = of(found, "calibrated", "features", "r_shuffled");
  if (!known(lowest) || !known(highest)) return unanswered(rule);
  const held = [lowest.high < 0, highest.low > 0].filter(Boolean).length;
  const groups = ["gap", "typical", "strength"].map((name) => [name, of(found, "calibrated", name, "success")]).filter(([, outcome]) => known(outcome));
  return {
    light: ["bad", "warn", "good"][held],
    text: `Concepts ranked on half of the questions, measured on the other half: the lowest come out at ${spanned(lowest, signed)}, the highest at ${spanned(highest, signed)} adjusted score; over all concepts the two halves correlate with r ${spanned(r, number)}${Number.isFinite(shuffled.low) ? ` (shuffled scores give ${interval(shuffled.low, shuffled.high, number)})` : ""}.`,
    rule,
    more: groups.length ? table("Success on the other half", ["flagged on one half", ["success on the other, chance-corrected", "num"], ["concepts, over all splits", "num"]], groups.map(([name, outcome]) => [name, spanned(outcome, percent), count(outcome.n)])) : null,
  };
}

function planted(found) {
  const rule = "good where at least 80% of what is named truly does worse and half of the planted gaps are found; careful where what is named is right but less is found; poor where less than 80% of what is named is right, or none is found.";
  const [recall, precision, strict] = ["recall", "precision", "precision_planted"].map((name) => of(found, "calibrated", name));
  const raw = [of(found, "raw", "recall"), of(found, "raw", "precision")];
  if (!known(recall)) return unanswered(rule);
  const right = !known(precision) || precision.value >= 0.8;
  return {
    light: !right || recall.value === 0 ? "bad" : recall.value >= 0.5 ? "good" : "warn",
    text: `Gaps were planted in shuffled scores, in ${count(recall.n)} trials: ${spanned(recall, percent)} of them are found${known(precision) ? `, and ${spanned(precision, percent)} of what is named truly does worse (mean of the ${count(precision.n)} trials in which anything is named)` : ", and nothing else is named"}. The raw chi ranking, given as many names, finds ${spanned(raw[0], percent)}, and ${spanned(raw[1], percent)} of what it names truly does worse.`,
    rule,
    more: known(strict) ? [
      h("p", { class: "said" }, `“Truly does worse” counts a concept that was planted and any other that fires on the same questions, whose score fell with it: ${percent(precision.value)}.`),
      h("p", { class: "said" }, `“Itself planted” counts the planted concepts alone: ${percent(strict.value)}. The table of controls at the end shows this stricter share.`),
    ] : null,
  };
}

function permuted(found, _subject, alpha) {
  const rule = `good where the share of shuffled runs with any discovery is not above alpha (${alpha}) by its whole interval; poor where it is.`;
  const any = of(found, "calibrated", "any_discovery");
  if (!known(any)) return unanswered(rule);
  const outside = of(found, "raw", "outside_mean");
  return {
    light: (any.low ?? any.value) <= alpha ? "good" : "bad",
    text: `With scores shuffled there is nothing to find: ${spanned(any, percent)} of ${count(any.n)} such analyses still found something.${known(outside) ? ` Reading raw chi intervals instead, ${percent(outside.value, 0)} of concepts would look like gaps or strengths.` : ""}`,
    rule, more: null,
  };
}

function subsampled(found) {
  const rule = "good where at least half of the lowest concepts stay the lowest when the questions are drawn anew; careful from a quarter; poor below.";
  const [boot, sub, ratio] = [of(found, "calibrated", "bootstrap", "lowest_stay"), of(found, "calibrated", "subsample", "lowest_stay"), of(found, "calibrated", "ratio", "subsample_to_bootstrap")];
  if (!known(boot)) return unanswered(rule);
  return {
    light: boot.value >= 0.5 ? "good" : boot.value >= 0.25 ? "warn" : "bad",
    text: `Drawing the questions anew (bootstrap over families), ${spanned(boot, percent)} of the lowest concepts stay among the lowest. The published check, dropping a fifth of the questions, keeps ${spanned(sub, percent)}, but its spread is only ${number(ratio.value ?? NaN)} of the bootstrap's: it looks surer than it is.`,
    rule, more: null,
  };
}

function ablated(found) {
  const rule = "good where dropping the questions tied to the lowest concepts raises the score and to the highest lowers it, more than dropping as many at random, the concepts chosen on other questions; careful where one of the two does; poor where neither does.";
  const [lowest, highest, random] = [of(found, "calibrated", "lowest", "other_items"), of(found, "calibrated", "highest", "other_items"), of(found, "random", "other_items")];
  if (!known(lowest) || !known(highest)) return unanswered(rule);
  const held = [lowest.value > random.high, highest.value < random.low].filter(Boolean).length;
  const points = (value) => signed(value * 100, 1);
  return {
    light: ["bad", "warn", "good"][held],
    text: `Without the questions that carry the lowest concepts the score changes by ${points(lowest.value)} points, without those of the highest by ${points(highest.value)}; dropping as many at random gives ${interval(random.low, random.high, points)}.`,
    rule, more: null,
  };
}

function otherSae(found) {
  const rule = "good where concepts matched to another SAE agree in rank more than concepts matched to random directions, by the whole interval; careful where only the number is higher; poor where it is not.";
  const [another, random] = [of(found, "calibrated", "another", "rank_correlation"), of(found, "calibrated", "random", "rank_correlation")];
  if (!known(another)) return unanswered(rule, "There is one SAE of this model in the run, so nothing to compare it with.");
  return {
    light: another.low > (random.value ?? NaN) ? "good" : another.value > (random.value ?? NaN) ? "warn" : "bad",
    text: `Matched to another SAE of the same model, the concepts' scores agree with rank correlation ${spanned(another, number)}; matched to random directions, ${spanned(random, number)}.`,
    rule, more: null,
  };
}

function stable(found) {
  const rule = "good where labels made from other contexts share more words than labels of different concepts (whole interval) and clusters agree by 0.5 or more; careful where only the labels do; poor where neither does.";
  const [same, others, clusters] = [of(found, "keywords_same"), of(found, "keywords_others"), of(found, "clusters")];
  if (!known(same)) return unanswered(rule);
  const labels = (same.low ?? same.value) > (others.high ?? others.value);
  return {
    light: labels ? (clusters.value >= 0.5 ? "good" : "warn") : "bad",
    text: `Labelled again from the other half of its contexts, a concept keeps ${spanned(same, percent)} of its keywords (two different concepts share ${spanned(others, percent)}); clusters agree by ${spanned(clusters, number)} (0 is chance, 1 the same).`,
    rule, more: null,
  };
}

const SETS = { concepts: "SAE concepts", random: "random dictionary", words: "bag of words", sentences: "clusters of sentence embeddings", metadata: "metadata and length" };

function controlled(found) {
  const rule = "good where the SAE's concepts predict the other half better (r) than every control; careful where they beat some; poor where they beat none, or where r is not above what shuffled scores give. The table has no intervals: a lead of a few hundredths is none.";
  const mine = found.concepts;
  const others = Object.entries(found).filter(([name, entry]) => name !== "concepts" && Number.isFinite(entry.r));
  if (!Number.isFinite(mine?.r) || !others.length) return unanswered(rule);
  // A lead over a control says nothing while shuffled scores reach as far.
  const byChance = mine.r <= mine.r_chance;
  const beaten = byChance ? [] : others.filter(([, entry]) => mine.r > entry.r).map(([name]) => SETS[name] ?? name);
  const cell = (entry, key, form) => form(Number.isFinite(entry[key]) ? entry[key] : NaN);
  return {
    light: beaten.length === others.length ? "good" : beaten.length ? "warn" : "bad",
    text: `Split halves of the questions agree with r ${number(mine.r)} by the SAE's concepts; ${others.map(([name, entry]) => `${number(entry.r)} by ${SETS[name] ?? name}`).join(", ")}. ${byChance ? `With shuffled scores the concepts reach up to ${number(mine.r_chance)}: this agreement is not told from chance, so they lead nothing.` : beaten.length ? `The concepts lead ${beaten.join(", ")}.` : "The concepts lead none of them."} What a concept adds beside prediction is a meaning that can be checked in its contexts.`,
    rule,
    more: [table("Concepts beside controls", ["feature set", ["tested", "num"], ["gaps", "num"], ["independent", "num"], ["lowest, held out", "num"], ["highest, held out", "num"], ["r", "num"], ["r by chance, up to", "num"], ["r of items", "num"], ["planted, found", "num"], ["named, itself planted", "num"], ["false alarms", "num"], ["label score", "num"]],
      Object.entries(found).sort(([a], [b]) => Object.keys(SETS).indexOf(a) - Object.keys(SETS).indexOf(b)).map(([name, entry]) => [SETS[name] ?? name, cell(entry, "n_tested", count), cell(entry, "gaps", count), cell(entry, "gap_findings", count), cell(entry, "lowest", signed), cell(entry, "highest", signed), cell(entry, "r", number), cell(entry, "r_chance", number), cell(entry, "item_r", number), cell(entry, "planted_recall", percent), cell(entry, "planted_precision", percent), cell(entry, "null_any_discovery", percent), cell(entry, "label_score", number)])),
      h("p", { class: "said" }, "Lowest and highest, held out: adjusted score on the other half. r: effects on one half against those on the other; r of items: an item's score against what the features predict for it. False alarms: share of shuffled analyses with any discovery. Label score: how well a label picks out contexts (0.5 is chance, 1 perfect)."),
    ],
  };
}

export const CHECKS = [
  ["held_out", "Do gaps found on half of the questions hold on the other half?", heldOut],
  ["planted", "Are gaps found where we put some?", planted],
  ["null", "Is nothing found where there is nothing to find?", permuted],
  ["subsampling", "Would other questions of the same kind say the same?", subsampled],
  ["ablation", "Are the questions of the lowest concepts really the harder ones?", ablated],
  ["other_sae", "Does another SAE say the same?", otherSae],
  ["stability", "Are labels and clusters the same from other contexts?", stable],
  ["controls", "Do the concepts do more than simpler features?", controlled],
];
