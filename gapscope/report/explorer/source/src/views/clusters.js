import { block, labelOf, meta, placeOf } from "../data.js";
import { choose, clear, count, h, interval, signed } from "../dom.js";
import { address, keep } from "../state.js";

const KINDS = {
  gap: "Gaps: worse than comparable items", strength: "Strengths: better than comparable items", lowest: "Lowest, not told from chance", highest: "Highest, not told from chance",
  missing: "Missing in the suite", unexercised: "Never exercised, though alive elsewhere", under: "Exercised less than in ordinary text", over: "Exercised more than in ordinary text", coverage: "Coverage gaps",
};
const FIRST = 30;

export async function clustersView(state) {
  const { observer, subject, params } = state;
  const concepts = await block(`concepts-${observer}`);
  const whole = await block(`performance-${observer}-${subject}`);
  const groups = meta.observers[observer].clusters.filter((group) => group.subject === "" || group.subject === subject);
  const kinds = [...new Set(groups.map((group) => group.id.replace(/_\d+$/, "")))].sort((a, b) => order(a) - order(b));
  const box = h("div", { class: "clusters" });
  const said = h("p", { class: "said", role: "status" });
  let kind = kinds.includes(params.kind) ? params.kind : kinds[0];
  let all = false;
  const draw = async () => {
    const found = groups.filter((group) => group.id.replace(/_\d+$/, "") === kind).sort((a, b) => b.concepts.length - a.concepts.length || (a.id < b.id ? -1 : 1));
    const lines = await Promise.all((all ? found : found.slice(0, FIRST)).map((group) => card(group, observer, concepts, whole)));
    clear(said, `${count(found.length)} clusters of ${count(found.reduce((sum, group) => sum + group.concepts.length, 0))} concepts, the largest first.`);
    clear(box, lines, found.length > FIRST && !all && h("button", { type: "button", onclick: () => { all = true; draw(); } }, `Show ${found.length - FIRST} more`));
  };
  if (kinds.length) await draw();
  const root = h("section", { class: "view", "aria-labelledby": "clusters-title" },
    h("h1", { id: "clusters-title", tabindex: "-1" }, "Clusters"),
    h("p", { class: "lead" }, "Concepts that stand out, grouped by decoder direction and label. A name is a guess from text or a model's words; the members' contexts are the evidence. In brackets: adjusted score, its interval, n_eff."),
    kinds.length ? [h("div", { class: "bar" }, choose("Kind", kinds.map((name) => [name, KINDS[name] ?? name]), kind, (value) => { kind = value; all = false; keep({ kind: value }); draw(); })), said, box] : h("p", {}, "No concept stood out, so there is nothing to group."));
  return { root };
}

// In brackets, since a label may be a number itself.
const score = (whole, place) => (Number.isFinite(whole.adjusted[place]) ? `(${signed(whole.adjusted[place])}, ${interval(whole.adjusted_low[place], whole.adjusted_high[place])}, n_eff ${count(whole.n_eff[place])})` : "");

const order = (kind) => { const place = Object.keys(KINDS).indexOf(kind); return place < 0 ? 99 : place; };

async function card(group, observer, concepts, whole) {
  const members = await Promise.all(group.concepts.map(async (number) => [number, await placeOf(observer, number)]));
  return h("article", { class: "cluster" },
    h("h2", {}, group.text || "(no name)", h("span", { class: "soft" }, ` ${group.id}`)),
    h("ul", {}, members.map(([number, place]) => h("li", {}, h("a", { href: address("concept", {}, number) }, `#${number}`), ` ${labelOf(concepts, place)} `, group.subject && h("span", { class: "soft" }, score(whole, place))))));
}
