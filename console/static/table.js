// Tables, and lists that are filtered, ordered and paged by the server.

import { button, h, replace } from "./dom.js";
import { count } from "./format.js";

/** Columns: {title, cell: row => content, kind: "number" | "wide" | "code" ..., order}. */
export function table(columns, rows, { empty = "nothing here", order = null } = {}) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((each) => h("th", { class: each.kind, scope: "col" }, order && each.order ? order(each) : each.title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((each) => h("td", { class: each.kind }, each.cell(row))))))));
}

/** A list at `path`. Filter, order and page are kept in the address, so that "back" finds them again. */
export class PagedTable {
  constructor(view, { path, columns, parameters = () => ({}), limit = 50, filter = "filter by name", empty = "nothing here", loaded = () => {} }) {
    Object.assign(this, { view, path, columns, parameters, limit, empty, loaded });
    this.state = {
      filter: view.params.get("filter") ?? "",
      order: view.params.get("order") ?? "",
      descending: view.params.get("descending") ?? "",
      start: Number(view.params.get("start") ?? 0),
    };
    this.input = h("input", { type: "search", placeholder: filter, value: this.state.filter, "aria-label": filter, input: () => this.filterSoon() });
    this.body = h("div", { class: "list" }, h("p", { class: "quiet loading" }, "loading…"));
    this.pager = h("div", { class: "pager" });
    this.root = h("div", {}, this.body, this.pager);
    this.asked = 0;
  }

  filterSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.change({ filter: this.input.value, start: 0 }).catch((error) => this.view.fail(error)), 150);
  }

  change(changed) {
    Object.assign(this.state, changed);
    this.view.keep(this.state);
    return this.load();
  }

  async load() {
    const asked = ++this.asked;
    const answer = await this.view.get(this.path, { ...this.state, limit: this.limit, ...this.parameters() });
    if (asked !== this.asked) return;  // another one was asked for meanwhile
    this.state.start = answer.start;
    this.answer = answer;
    this.show();
    await this.loaded(answer, this);
  }

  /** Draw again what was loaded. */
  show() {
    const { items, total, start } = this.answer;
    replace(this.body, table(this.columns, items, { empty: this.state.filter ? "nothing matches" : this.empty, order: (column) => this.orderButton(column) }));
    const end = start + items.length;
    replace(this.pager, total > 0 && h("span", { class: "quiet" }, `${count(start + 1)}–${count(end)} of ${count(total)}`),
      total > this.limit && [
        h("button", { type: "button", disabled: start === 0, click: () => this.go(start - this.limit) }, "← previous"),
        h("button", { type: "button", disabled: end >= total, click: () => this.go(end) }, "next →"),
      ]);
  }

  go(start) {
    this.change({ start: Math.max(0, start) }).catch((error) => this.view.fail(error));
  }

  orderButton(column) {
    const current = this.state.order === column.order || (!this.state.order && column.order === "name");
    const mark = current ? (this.state.descending ? " ↓" : " ↑") : "";
    const descending = current ? (this.state.descending ? "" : "true") : (column.kind?.includes("number") ? "true" : "");
    return button(`${column.title}${mark}`, () => this.change({ order: column.order, descending, start: 0 }).catch((error) => this.view.fail(error)), "head");
  }
}
