import { meta } from "../data.js";
import { h } from "../dom.js";
import { CHECKS } from "../judge.js";

const LIGHTS = { good: "● good", warn: "◐ careful", bad: "○ poor", none: "— no answer" };

function judged(observer) {
  if (meta.validity.absent) return [];
  return CHECKS.map(([key, title, judge]) => ({ key, title, ...judge(meta.validity[key]?.[observer] ?? {}, observer, meta.about.alpha) }));
}

export function lights(observer) {
  const found = judged(observer);
  if (!found.length) return h("p", { class: "verdict" }, meta.validity.absent);
  return h("ul", { class: "plain lights" }, found.map((check) => h("li", {}, h("span", { class: `light ${check.light}` }, LIGHTS[check.light]), h("span", {}, check.title))));
}

export async function validity({ observer }) {
  const found = judged(observer);
  const several = Object.keys(meta.observers[observer].subjects).length > 1;
  return { root: h("section", { class: "view", "aria-labelledby": "validity-title" },
    h("h1", { id: "validity-title", tabindex: "-1" }, "Validity: how far the gaps can be trusted"),
    h("p", { class: "lead" }, "Each check asks one question of the run. Its light follows from the threshold that stands beside it, and from nothing else.", several ? " Numbers are means over subjects; data/validity holds each." : ""),
    found.length ? null : lights(observer),
    found.map((check) => h("article", { class: "card judged" }, h("h2", {}, h("span", { class: `light ${check.light}` }, LIGHTS[check.light]), " ", check.title), h("p", {}, check.text), check.more, h("p", { class: "soft" }, `Threshold: ${check.rule}`)))) };
}
