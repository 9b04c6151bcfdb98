// A virtual table by SlickGrid over a list of places: only the rows in sight are elements.

import { SlickGrid } from "slickgrid";
import { h } from "./dom.js";

export function cell(text, cls = "", title = "") {
  return h("span", { class: cls, title }, text);
}

export function column(id, name, width, draw, more = {}) {
  return { id, name, field: id, width, sortable: true, formatter: (_row, _cell, _value, _column, { place }) => { const made = draw(place); return made instanceof Node ? made : cell(made); }, ...more };
}

export const numeric = (id, name, width, draw, more = {}) => column(id, name, width, draw, { cssClass: "num", headerCssClass: "num", ...more });

// `view.order` holds the places; `sorted(id, ascending)` puts them in another order; `open(place)` is called for a row.
export function table(label, view, columns, { sort, sorted, open }) {
  const box = h("div", { class: "grid", "aria-label": label });
  // Wrapped, since the library takes an item of 0 for one that is still to come.
  const data = { getLength: () => view.order.length, getItem: (row) => ({ place: view.order[row] }) };
  // The library takes Tab for the next cell, thousands of them before the page goes on: here it leaves, as everywhere.
  box.addEventListener("keydown", (event) => { if (event.key === "Tab") event.stopPropagation(); }, { capture: true });
  let grid = null;
  function show() {
    grid = new SlickGrid(box, data, columns(), {
      rowHeight: 30, enableColumnReorder: false, enableCellNavigation: true, nonce: document.body.dataset.nonce, multiColumnSort: false,
      enableTextSelectionOnCells: true, minRowBuffer: 3,
      // The library's own way to text is HTML; ours is elements. Whatever else reaches it loses what could be a tag.
      sanitizer: (text) => String(text).replace(/[<>&"']/g, ""),
    });
    grid.setSortColumns([{ columnId: sort.id, sortAsc: sort.ascending }]);
    grid.onSort.subscribe((_event, { columnId, sortAsc }) => {
      sorted(String(columnId), sortAsc);
      ordered();
      update();
      grid.scrollRowToTop(0);
    });
    grid.onClick.subscribe((event, { row }) => { if (!getSelection().toString() && event.target.tagName !== "A") open(view.order[row]); });
    grid.onKeyDown.subscribe((event, { row }) => { if (event.key === "Enter") { event.preventDefault(); open(view.order[row]); } });
    describe();
    update();
  }
  // What the library leaves out for those who use no mouse or no screen: its focusable boxes get a role that may stand
  // in a grid, and a column's head can be reached and pressed.
  function describe() {
    for (const part of box.querySelectorAll(":scope > div:not(.slick-pane), .grid-canvas")) {
      part.setAttribute("role", "rowgroup");
      part.setAttribute("aria-label", `${label}: arrow keys move, Enter opens`);
    }
    for (const part of box.querySelectorAll(".slick-pane, .slick-viewport")) part.removeAttribute("tabindex");
    for (const head of box.querySelectorAll(".slick-header-sortable")) {
      head.tabIndex = 0;
      head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); head.click(); } });
    }
    ordered();
  }
  function ordered() {
    const [now] = grid.getSortColumns();
    for (const head of box.querySelectorAll(".slick-header-sortable")) head.setAttribute("aria-sort", head.dataset.id !== now?.columnId ? "none" : now.sortAsc ? "ascending" : "descending");
  }
  function update() {
    if (!grid) return;
    grid.invalidateAllRows();
    grid.updateRowCount();
    grid.render();
  }
  return { element: box, show, update };
}
