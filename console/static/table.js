// Tables whose rows stay the same elements while their content changes, so focus and reading position survive updates;
// and lists that are read page by page from the server.

import { get } from "./api.js";
import { count, empty, h, problemOf, put } from "./dom.js";

/** columns: {label, cell(row) → text or node, kind: "number" | "code"}. key(row): what makes a row the same one. */
export class Table {
  constructor(label, columns, key, nothing = "There is nothing here.") {
    this.columns = columns;
    this.key = key;
    this.nothing = nothing;
    this.rows = new Map();
    this.body = h("tbody");
    const heads = columns.map((each) => h("th", { scope: "col", class: each.kind }, each.label));
    const table = h("table", null, h("caption", { class: "hidden" }, label), h("thead", null, h("tr", null, heads)), this.body);
    table.addEventListener("keydown", (event) => this.move(event));
    this.table = h("div", { class: "table" }, table);
    this.element = h("div", null);
  }

  set(rows) {
    const old = this.rows;
    this.rows = new Map();
    let first = true;
    const elements = rows.map((row) => {
      const key = this.key(row);
      const text = JSON.stringify(row, (name, value) => (name === "age_ms" || name === "timeout_share" ? undefined : value));
      const known = old.get(key);
      const element = known?.element ?? h("tr", { tabindex: "-1" });
      if (known?.text !== text) put(element, this.columns.map((each) => h("td", { class: each.kind }, each.cell(row))));
      element.tabIndex = first ? 0 : -1;
      first = false;
      this.rows.set(key, { element, text });
      return element;
    });
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    this.body.replaceChildren(...elements);
    if (focused?.isConnected) focused.focus({ preventScroll: true });
    const wanted = rows.length ? this.table : typeof this.nothing === "string" ? empty(this.nothing) : this.nothing;
    if (this.element.firstChild !== wanted) put(this.element, wanted);
  }

  move(event) {
    const row = event.target.closest("tbody tr");
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
    if (next) {
      row.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      event.preventDefault();
    } else if (event.key === "Enter" && event.target === row) {
      row.querySelector("a, button")?.click();
      event.preventDefault();
    }
  }
}

/** A list that is read page by page. path(query): its address for a filter; columns, key, nothing: of its table. */
export class PagedList {
  constructor({ label, columns, key, nothing, path, search, filters = [] }) {
    this.path = path;
    this.table = new Table(label, columns, key, nothing);
    this.pages = [null]; // the address of each page so far; null: the first one
    this.problem = h("div");
    this.total = h("span", { class: "quiet", role: "status" });
    this.search = search === false ? null
      : h("input", { type: "search", placeholder: "Filter by name  /", "aria-label": `Filter ${label}`, class: "search", maxlength: "200" });
    let timer = null;
    this.search?.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.restart(), 200);
    });
    this.previous = h("button", { type: "button", on: { click: () => { this.pages.pop(); void this.load(); } } }, "‹ Previous");
    this.next = h("button", { type: "button", on: { click: () => { this.pages.push(this.after); void this.load(); } } }, "Next ›");
    this.element = h("section", null,
      h("div", { class: "tools" }, this.search, filters, h("span", { class: "spring" }), this.total),
      this.problem, this.table.element, this.pager = h("div", { class: "pager" }, this.previous, this.next));
    this.after = null;
    this.asked = 0;
  }

  restart() {
    this.pages = [null];
    return this.load();
  }

  async load() {
    const turn = ++this.asked;
    try {
      const found = await get(this.pages.at(-1) ?? this.path({ contains: this.search?.value ?? "" }));
      if (turn !== this.asked) return;
      put(this.problem);
      this.after = found.metadata?.next ?? null;
      this.table.set(found.data);
      this.total.textContent = found.total == null ? "" : `${count(found.total)} in all`;
    } catch (error) {
      if (turn !== this.asked) return;
      put(this.problem, problemOf(error));
    }
    this.previous.disabled = this.pages.length < 2;
    this.next.disabled = !this.after;
    this.pager.hidden = this.pages.length < 2 && !this.after;
  }
}
