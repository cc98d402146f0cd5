// The first page: what the cluster consists of, how it is, and what flows through it.

import { badge, bar, card, h, link, replace } from "./dom.js";
import { byteRate, bytes, count, rate } from "./format.js";
import { Plot } from "./plot.js";
import { table } from "./table.js";

export async function overview(view) {
  const title = h("h1", {}, "Overview");
  const facts = h("p", { class: "facts" });
  const tiles = h("div", { class: "tiles" });
  const records = new Plot("Records written", rate);
  const size = new Plot("Bytes added to logs", byteRate, "second", 1024);
  const busiest = h("div", {});
  const nodes = h("div", { class: "stack" });
  replace(view.root, title, facts, tiles, h("div", { class: "pair" }, records.root, size.root), busiest, nodes);

  view.repeat(async () => {
    const found = await view.get("/api/throughput");
    records.draw(found.points.map(([ms, value]) => [ms, value]));
    size.draw(found.bytes_known ? found.points.map(([ms, , value]) => [ms, value]) : []);
    replace(busiest, found.topics.length > 0 && card("Busiest topics", table([
      { title: "Topic", cell: (each) => link("topic", { name: each.name }, each.name) },
      { title: "Records", kind: "number", cell: (each) => rate(each.records_per_sec) },
      { title: "Bytes", kind: "number", cell: (each) => (found.bytes_known ? byteRate(each.bytes_per_sec) : "–") },
      { title: "", kind: "wide", cell: (each) => bar(each.records_per_sec / found.topics[0].records_per_sec) },
    ], found.topics)));
    return found.next_ms;
  });

  await view.repeat(async () => {
    const found = await view.get("/api/overview");
    const { summary } = found;
    replace(facts, "cluster ", h("code", {}, found.cluster_id), Object.entries(found.features).map(([name, level]) => [" · ", `${name} ${level}`]));
    replace(tiles,
      tile(count(found.brokers.filter((each) => !each.fenced).length), "brokers", found.brokers.some((each) => each.fenced) && `${found.brokers.filter((each) => each.fenced).length} down`),
      tile(count(summary.topics - summary.internal_topics), "topics"),
      tile(count(summary.partitions), "partitions"),
      tile(count(summary.under_replicated), "under-replicated", summary.under_replicated > 0 && "replicas lag or are down"),
      tile(count(summary.offline), "without leader", summary.offline > 0 && "cannot be used", "bad"));
    replace(nodes, brokers(found), found.quorum && quorum(found.quorum));
  });
}

function tile(number, label, problem = false, kind = "warn") {
  return h("div", { class: `tile ${problem ? kind : ""}` }, h("strong", {}, number), h("span", {}, label), problem && h("small", {}, problem));
}

function brokers(found) {
  const load = found.summary.by_broker;
  const rows = [
    ...found.brokers.map((each) => ({ ...each, ...load[each.id] })),
    ...found.coordinators.map((each) => ({ ...each, ...load[each.id], coordinator: true })),
  ];
  return card("Nodes", table([
    { title: "Id", kind: "id", cell: (each) => each.id },
    { title: "State", cell: (each) => [
      each.coordinator ? badge("", "coordinator") : each.fenced ? badge("bad", "down") : badge("good", "up"),
      each.failed_log_dirs > 0 && [" ", badge("bad", "failed disk")]] },
    { title: "Address", kind: "code line", cell: (each) => `${each.host}:${each.port}` },
    { title: "Rack", kind: "wide", cell: (each) => each.rack ?? "–" },
    { title: "Leads", kind: "number", cell: (each) => count(each.leaders ?? 0) },
    { title: "Replicas", kind: "number", cell: (each) => count(each.replicas ?? 0) },
    { title: "Out of sync", kind: "number", cell: (each) => {
      const behind = (each.replicas ?? 0) - (each.in_sync ?? 0);
      return behind > 0 ? badge("warn", count(behind)) : "0";
    } },
    { title: "Size", kind: "number", cell: (each) => bytes(each.size_bytes) },
    { title: "Disk free", kind: "number wide", cell: (each) => (each.total_bytes > 0 ? [bar(1 - each.usable_bytes / each.total_bytes, each.usable_bytes / each.total_bytes < 0.1 ? "bad" : ""), " ", bytes(each.usable_bytes)] : "–") },
  ], rows));
}

function quorum(found) {
  const row = (each) => ({ ...each, role: each.id === found.leader ? "leader" : "voter" });
  return card("Controllers", table([
    { title: "Id", kind: "id", cell: (each) => each.id },
    { title: "Role", cell: (each) => badge(each.role === "leader" ? "good" : "", each.role) },
    { title: "Log end", kind: "number", cell: (each) => count(each.log_end_offset) },
    { title: "Lag", kind: "number", cell: (each) => count(each.lag) },
  ], found.voters.map(row).sort((one, other) => one.id - other.id)), h("p", { class: "quiet" }, `epoch ${found.epoch}, high watermark ${count(found.high_watermark)}, ${count(found.observers.length)} observers`));
}
