import "slickgrid/dist/styles/css/slick.grid.css";
import "./style.css";
import { forget, redrawAll } from "./charts.js";
import { meta } from "./data.js";
import { choose, clear, h } from "./dom.js";
import { address, current, go } from "./state.js";
import { about } from "./views/about.js";
import { benchmarksView } from "./views/benchmarks.js";
import { clustersView } from "./views/clusters.js";
import { compare } from "./views/compare.js";
import { concept } from "./views/concept.js";
import { concepts } from "./views/concepts.js";
import { overview } from "./views/overview.js";
import { robustness } from "./views/robustness.js";
import { validity } from "./views/validity.js";

const VIEWS = { overview, concepts, concept, benchmarks: benchmarksView, clusters: clustersView, compare, robustness, validity, about };
const TABS = [["overview", "Overview"], ["concepts", "Concepts"], ["benchmarks", "Benchmarks"], ["clusters", "Clusters"], ["compare", "Compare"], ["robustness", "Robustness"], ["validity", "Validity"], ["about", "About"]];

const body = h("main", { id: "main" });
const tabs = h("nav", { class: "tabs", "aria-label": "Views" });
const pickers = h("div", { class: "pickers" });
let turn = 0;

async function show(focus) {
  const mine = ++turn;
  const state = current();
  const view = Object.hasOwn(VIEWS, state.view) ? VIEWS[state.view] : overview;
  clear(tabs, TABS.map(([name, text]) => h("a", { href: address(name), "aria-current": name === state.view || (name === "concepts" && state.view === "concept") ? "page" : null }, text)));
  // On a phone the strip is wider than the screen: the open tab is moved into it, the page is not.
  const open = tabs.querySelector("[aria-current]");
  if (open) tabs.scrollLeft = open.offsetLeft - tabs.offsetLeft - (tabs.clientWidth - open.offsetWidth) / 2;
  clear(pickers, picker(state));
  let made;
  try {
    made = await view(state);
  } catch (error) {
    console.error(error);
    made = { root: h("section", { class: "view" }, h("h1", { tabindex: "-1" }, "This view could not be drawn"), h("p", {}, String(error.message ?? error))) };
  }
  if (mine !== turn) return;
  clear(body, made.root);
  made.shown?.();
  forget();
  const title = made.root.querySelector("h1");
  document.title = `${title?.textContent ?? "gapscope"} · gapscope`;
  if (focus) {
    title?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  made.aim?.();
  document.body.dataset.ready = state.view;
}

function picker(state) {
  const observers = Object.keys(meta.observers);
  const subjects = Object.keys(meta.observers[state.observer].subjects);
  const to = (changes) => go(state.view, { ...state.params, ...changes }, state.id);
  return [
    observers.length > 1 && choose("Observer", observers.map((slug) => [slug, meta.observers[slug].name]), state.observer, (value) => to({ o: value })),
    subjects.length > 1 && choose("Subject", subjects.map((slug) => [slug, meta.subjects[slug].name]), state.subject, (value) => to({ s: value })),
  ];
}

function theme() {
  const root = document.documentElement;
  const now = root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  redrawAll();
}

async function copy(event) {
  const button = event.currentTarget;
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    const field = h("textarea", { class: "hidden", value: location.href, "aria-label": "link" });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy link"; }, 1500);
}

clear(document.getElementById("app"),
  h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); body.querySelector("h1")?.focus(); } }, "Skip to the view"),
  h("header", { class: "top" },
    h("div", { class: "brand" }, h("a", { href: "#/overview" }, "gapscope"), h("span", {}, Object.values(meta.subjects).length === 1 ? Object.values(meta.subjects)[0].name : `${Object.values(meta.subjects).length} subjects`)),
    pickers,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: copy }, "Copy link"), h("button", { type: "button", onclick: theme }, "Light / dark"))),
  tabs, body);
addEventListener("hashchange", () => show(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
show(false);
