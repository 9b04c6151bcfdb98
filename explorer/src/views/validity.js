import { meta } from "../data.js";
import { h } from "../dom.js";

// Filled in by judge.js: what each check says in plain words, and its light by stated thresholds.
import { CHECKS } from "../judge.js";

const LIGHTS = { good: "● good", warn: "◐ careful", bad: "○ poor", none: "— no answer" };

function judged(subject) {
  if (!meta.validity || meta.validity.absent) return [];
  return CHECKS.map(([key, title, judge]) => ({ key, title, ...judge(meta.validity[key] ?? {}, subject) }));
}

export function lights(subject, brief = false) {
  const found = judged(subject);
  if (!found.length) return h("p", { class: "verdict" }, meta.validity?.absent ?? "This run has no validity checks.");
  return h("ul", { class: "plain lights" }, found.map((check) => h("li", {}, h("span", { class: `light ${check.light}` }, LIGHTS[check.light]), " ", check.title, brief ? null : [": ", check.text])));
}

export async function validity(state) {
  const found = judged(state.subject);
  const root = h("section", { class: "view", "aria-labelledby": "validity-title" },
    h("h1", { id: "validity-title", tabindex: "-1" }, "Validity: how far the gaps can be trusted"),
    h("p", { class: "lead" }, "Each check asks one question of the run. Its light follows from the threshold that stands beside it, and from nothing else."));
  if (!found.length) root.append(lights(state.subject));
  for (const check of found) root.append(h("article", { class: "check-card" },
    h("h2", {}, h("span", { class: `light ${check.light}` }, LIGHTS[check.light]), " ", check.title),
    h("p", {}, check.text), h("p", { class: "soft" }, `Threshold: ${check.rule}`), check.more));
  return { root };
}
