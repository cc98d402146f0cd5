// Where replicas are: reassignments, log directories, and mirrors into this cluster.

import { post, session } from "./api.js";
import { ask, badge, bar, button, card, changing, h, link, notice, replace } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { PagedTable, table } from "./table.js";

export async function reassignments(view) {
  const list = new PagedTable(view, {
    path: "/api/reassignments",
    filter: "filter partitions",
    empty: "no partition is being moved",
    columns: [
      { title: "Partition", cell: (each) => link("topic", { name: each.topic }, `${each.topic}-${each.partition}`) },
      { title: "Replicas", kind: "wide", cell: (each) => each.replicas.join(", ") },
      { title: "Adding", cell: (each) => each.adding.map((broker) => h("div", {}, `${broker} `, bar(each.progress[broker] ?? 0), ` ${each.progress[broker] === null ? "–" : `${Math.floor(100 * each.progress[broker])} %`}`)) },
      { title: "Removing", cell: (each) => each.removing.join(", ") || "–" },
      { title: "Size", kind: "number wide", cell: (each) => bytes(each.size_bytes) },
      { title: "", kind: "actions", cell: (each) => changing(session, button("cancel", async () => {
        await post("/api/reassignments", { topic: each.topic, partitions: String(each.partition), cancel: true }).then(() => notice("reassignment cancelled"), (error) => notice(error.message, "bad"));
        await list.load().catch((error) => view.fail(error));
      }, "plain")) },
    ],
  });
  replace(view.root,
    h("div", { class: "top" }, h("h1", {}, "Reassignments"), h("div", { class: "buttons" }, ...changing(session,
      button("Move partitions", () => move(list), "primary"),
      button("Elect preferred leaders", () => ask("Elect preferred leaders", [
        { name: "topic", label: "Topic", hint: "empty: all topics" },
      ], "Elect", async (given) => {
        const found = await post("/api/elections", given);
        notice(`${count(found.elected)} leaders elected`);
        for (const message of Object.values(found.refused).slice(0, 3)) notice(message, "bad");
      }))))),
    h("div", { class: "tools" }, list.input), list.root);
  await view.repeat(() => list.load(), 2000);
}

function move(list) {
  ask("Move partitions", [
    { name: "topic", label: "Topic", required: true },
    { name: "partitions", label: "Partitions", placeholder: "0,1", required: true },
    { name: "replicas", label: "Brokers", placeholder: "1,2,0", required: true, hint: "all replicas, the preferred leader first" },
  ], "Move", async (given) => {
    await post("/api/reassignments", given);
    notice("reassignment started");
    await list.load();
  });
}

export async function logDirs(view) {
  const body = h("div", {}, h("p", { class: "quiet loading" }, "loading…"));
  const inside = h("div", {});
  replace(view.root, h("h1", {}, "Log directories"), card(null, body), inside);
  let rows = [];
  const wanted = view.params.get("broker");
  if (wanted !== null) showReplicas(view, inside, Number(wanted), view.params.get("path") ?? "", () => rows).catch((error) => view.fail(error));
  await view.repeat(async () => {
    rows = await view.get("/api/log-dirs");
    replace(body, table([
      { title: "Broker", kind: "id", cell: (each) => each.broker },
      { title: "Directory", kind: "code", cell: (each) => [link("log-dirs", { broker: each.broker, path: each.path }, each.path), each.error && h("div", { class: "failure" }, each.error)] },
      { title: "Replicas", kind: "number", cell: (each) => [count(each.replicas), each.future > 0 && ` (${each.future} arriving)`] },
      { title: "Size", kind: "number", cell: (each) => bytes(each.size_bytes) },
      { title: "Disk used", kind: "wide", cell: (each) => (each.total_bytes > 0 ? bar(1 - each.usable_bytes / each.total_bytes, each.usable_bytes / each.total_bytes < 0.1 ? "bad" : "") : "–") },
      { title: "Free", kind: "number", cell: (each) => bytes(each.usable_bytes) },
    ], rows, { empty: "no broker answers" }));
  }, 5000);
}

async function showReplicas(view, root, broker, path, dirs) {
  const list = new PagedTable(view, {
    path: "/api/log-dirs/replicas",
    filter: "filter partitions",
    parameters: () => ({ broker, path }),
    columns: [
      { title: "Partition", cell: (each) => link("topic", { name: each.topic }, each.name) },
      { title: "Size", kind: "number", cell: (each) => bytes(each.size_bytes) },
      { title: "Behind", kind: "number", cell: (each) => count(each.lag) },
      { title: "", kind: "actions", cell: (each) => [each.is_future && badge("", "arriving"), ...changing(session, !each.is_future && button("move", () => {
        const others = dirs().filter((dir) => dir.broker === broker && dir.path !== path).map((dir) => dir.path);
        if (!others.length) return notice(`broker ${broker} has no other directory`, "bad");
        ask(`Move ${each.name}`, [{ name: "path", label: "To", options: others }], "Move", async (given) => {
          await post("/api/log-dirs/moves", { topic: each.topic, partition: each.partition, broker, path: given.path });
          notice("the replica is being moved");
          await list.load();
        });
      }, "plain"))] },
    ],
  });
  replace(root, card(`Broker ${broker}: ${path}`, h("div", { class: "tools" }, list.input), list.root));
  await list.load();
}

export async function mirrors(view) {
  const body = h("div", { class: "stack" }, h("p", { class: "quiet loading" }, "loading…"));
  replace(view.root, h("h1", {}, "Mirrors"), h("p", { class: "facts" }, "Flows into this cluster, as their topics here tell. How much is still to be copied only the source knows: raylog mirror status shows it."), body);
  await view.repeat(async () => {
    const flows = await view.get("/api/mirrors");
    replace(body, flows.length ? flows.map(flow) : card(null, h("p", { class: "quiet" }, "no mirror copies into this cluster")));
  }, 5000);
}

function flow(each) {
  const alive = each.age_ms !== null && each.age_ms < 60000;
  return card(null,
    h("h2", {}, `${each.source} → ${each.targets.join(", ") || "here"} `, badge(alive ? "good" : "warn", each.age_ms === null ? "never seen" : `seen ${duration(each.age_ms)} ago`), " ", badge("", each.by_raylog ? "raylog" : "MirrorMaker 2")),
    each.by_raylog && table([
      { title: "Topic in the source", cell: (row) => row.topic },
      { title: "Partition", kind: "id", cell: (row) => row.partition },
      { title: "Copied up to", kind: "number", cell: (row) => count(row.copied) },
      { title: "Last copied", kind: "number", cell: (row) => `${duration(row.age_ms)} ago` },
    ], each.partitions, { empty: "nothing copied yet" }));
}
