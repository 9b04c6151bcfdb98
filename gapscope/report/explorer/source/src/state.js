// The page's state is its address: #/view?key=value, so that a link shows what its sender saw.

import { meta } from "./data.js";

export function current() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", id = ""] = path.split("/").map(decode);
  const params = Object.fromEntries(new URLSearchParams(query));
  const observers = Object.keys(meta.observers);
  const observer = observers.includes(params.o) ? params.o : observers[0];
  const subjects = Object.keys(meta.observers[observer].subjects);
  const subject = subjects.includes(params.s) ? params.s : subjects[0];
  return { view: view || "overview", id, params, observer, subject };
}

// A value of the address that has to be one of a few; an address may have been typed, cut or be from another run.
export const among = (value, allowed, otherwise = "") => (allowed.includes(value) ? value : otherwise);

export function finite(text, otherwise) {
  const found = text === undefined || text.trim() === "" ? NaN : Number(text);
  return Number.isFinite(found) ? found : otherwise;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function address(view, changes = {}, id = "") {
  const now = current();
  const kept = { o: now.params.o, s: now.params.s };
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries({ ...kept, ...changes })) if (value !== undefined && value !== null && value !== "") query.set(key, value);
  const text = query.toString();
  return `#/${view}${id === "" ? "" : `/${encodeURIComponent(id)}`}${text ? `?${text}` : ""}`;
}

export function go(view, changes = {}, id = "") {
  location.hash = address(view, changes, id);
}

// A filter moved: the address follows, without a new entry in the history and without drawing the view again.
export function keep(changes) {
  const { view, id, params } = current();
  history.replaceState(null, "", address(view, { ...params, ...changes }, id));
}
