// Everything on the page is made here, as elements and text nodes: no text of a benchmark, a model or a label is ever parsed as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

export function add(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function clear(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

export const NONE = "—";

// What rounds to zero has no sign.
export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return NONE;
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

export function signed(value, digits = 2) {
  if (!Number.isFinite(value)) return NONE;
  const text = number(value, digits);
  return Number(value.toFixed(digits)) > 0 ? `+${text}` : text;
}

export function percent(value, digits = 1) {
  return Number.isFinite(value) ? `${number(value * 100, digits)}%` : NONE;
}

export function count(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en-GB") : NONE;
}

// p, q and coverage span decades: two significant digits, and a floor below which the digits say nothing.
export function small(value) {
  if (!Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  if (value < 0.0001) return "<0.0001";
  if (value < 0.01) return value.toPrecision(1);
  return value >= 99.5 ? count(value) : value.toPrecision(2);
}

export function interval(low, high, form = signed) {
  return Number.isFinite(low) && Number.isFinite(high) ? `${form(low)} to ${form(high)}` : NONE;
}

// Rows of cells (text or elements) as a table; columns are names, or [name, class].
export function table(caption, columns, rows, attributes = {}) {
  const cls = (k) => (Array.isArray(columns[k]) ? columns[k][1] : null);
  return h(
    "div",
    { class: "table-scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      attributes,
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((name, k) => h("th", { scope: "col", class: cls(k) }, Array.isArray(name) ? name[0] : name)))),
      h(
        "tbody",
        {},
        rows.map((row) => h("tr", {}, row.map((cell, k) => h(k === 0 ? "th" : "td", { class: cls(k), scope: k === 0 ? "row" : null }, cell)))),
      ),
    ),
  );
}

export function choose(label, options, value, changed) {
  const select = h(
    "select",
    { onchange: (event) => changed(event.target.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
  );
  select.value = value;
  return h("label", { class: "field" }, h("span", {}, label), select);
}

export function save(name, type, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A spreadsheet runs a cell that begins with one of these as a formula.
export function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
