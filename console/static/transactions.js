// Transactional ids and their open transactions.

import { post, session } from "./api.js";
import { badge, button, changing, confirmByName, h, notice, replace } from "./dom.js";
import { count, duration } from "./format.js";
import { PagedTable } from "./table.js";

const STATES = ["", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty"];

export async function transactions(view) {
  const state = h("select", { "aria-label": "state", change: () => list.change({ start: 0 }).catch((error) => view.fail(error)) },
    STATES.map((name) => h("option", { value: name, selected: name === (view.params.get("state") ?? "") }, name || "all states")));
  const list = new PagedTable(view, {
    path: "/api/transactions",
    filter: "filter transactional ids",
    empty: "no transactional ids",
    parameters: () => ({ state: state.value }),
    columns: [
      { title: "Transactional id", order: "name", cell: (each) => each.name },
      { title: "State", order: "state", cell: (each) => badge(each.state === "Ongoing" ? "warn" : each.state.startsWith("Complete") ? "good" : "", each.state) },
      { title: "Open for", kind: "number", cell: (each) => (each.open_ms === null ? "–" : each.open_ms > each.timeout_ms ? badge("bad", duration(each.open_ms)) : duration(each.open_ms)) },
      { title: "Timeout", kind: "number wide", cell: (each) => duration(each.timeout_ms) },
      { title: "Producer", kind: "number wide", cell: (each) => `${each.producer_id} · epoch ${each.producer_epoch ?? "–"}` },
      { title: "Partitions", kind: "wide", cell: (each) => (each.partitions.length ? `${each.partitions.slice(0, 4).join(", ")}${each.partitions.length > 4 ? ` and ${count(each.partitions.length - 4 + each.more_partitions)} more` : ""}` : "–") },
      { title: "", kind: "actions", cell: (each) => changing(session, button("fence", () => fence(each.name, list), "plain")) },
    ],
  });
  replace(view.root, h("h1", {}, "Transactions"), h("div", { class: "tools" }, list.input, h("label", { class: "field" }, h("span", {}, "State"), state)), list.root);
  await view.repeat(() => list.load(), 4000);
}

function fence(name, list) {
  confirmByName(`Fence ${name}`, name, "Its open transaction is aborted, and its producer cannot write any more until it starts again.", "Fence", async () => {
    await post("/api/transactions/fence", { name });
    notice(`producer of ${name} fenced`);
    await list.load();
  });
}
