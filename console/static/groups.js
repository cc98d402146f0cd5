// Groups and their lag; those that show the positions of Spark queries have a page of their own.

import { post, remove, session } from "./api.js";
import { ask, badge, button, card, changing, confirmByName, h, link, notice, replace, to } from "./dom.js";
import { count } from "./format.js";
import { Plot } from "./plot.js";
import { PagedTable, table } from "./table.js";

const SPARK = "spark-";

export const groups = (view) => list(view, false);
export const spark = (view) => list(view, true);

async function list(view, isSpark) {
  let lags = {};
  const shown = new PagedTable(view, {
    path: "/api/groups",
    filter: isSpark ? "filter queries" : "filter groups",
    empty: isSpark ? "no query has shown its positions" : "no groups yet",
    parameters: () => ({ spark: isSpark ? "true" : "" }),
    columns: [
      { title: isSpark ? "Query" : "Group", order: "name", cell: (each) => link(isSpark ? "query" : "group", { name: each.name }, isSpark ? each.name.slice(SPARK.length) : each.name) },
      ...(isSpark ? [] : [
        { title: "State", order: "state", cell: (each) => state(each.state) },
        { title: "Type", kind: "wide", cell: (each) => each.type },
      ]),
      { title: "Topics", kind: "wide", cell: (each) => topics(lags[each.name]?.topics) },
      { title: "Lag", kind: "number", cell: (each) => lag(lags[each.name]?.lag) },
    ],
    loaded: async (answer, self) => {
      if (!answer.items.length) return;
      const found = await view.get("/api/groups", { ...self.state, limit: self.limit, ...self.parameters(), lags: "true" });
      lags = Object.fromEntries(found.items.map((each) => [each.name, each]));
      self.show();
    },
  });
  replace(view.root,
    h("h1", {}, isSpark ? "Spark queries" : "Groups"),
    isSpark && h("p", { class: "facts" }, "After each batch a streaming query shows its positions as the offsets of a group, which nothing reads back."),
    h("div", { class: "tools" }, shown.input), shown.root);
  await view.repeat(() => shown.load(), 4000);
}

function topics(names) {
  if (!names) return "–";
  return [names.slice(0, 3).map((name, index) => [index > 0 && ", ", link("topic", { name }, name)]), names.length > 3 && ` and ${names.length - 3} more`];
}

function state(name) {
  return badge({ Stable: "good", Empty: "", Dead: "bad" }[name] ?? "warn", name || "unknown");
}

function lag(value) {
  return value > 0 ? badge("warn", count(value)) : count(value);
}

export async function group(view) {
  const name = view.params.get("name") ?? "";
  const isSpark = view.name === "query";
  const facts = h("p", { class: "facts" });
  const plot = new Plot("Lag in records", count);
  const members = h("div", {});
  const partitions = h("div", {});
  const load = async () => {
    const found = await view.get("/api/group", { name });
    replace(facts, state(found.state), ` ${found.type}${found.protocol ? ` · ${found.protocol}` : ""}${found.epoch === null ? "" : ` · epoch ${found.epoch}`} · lag ${count(found.lag)}`);
    plot.draw(found.points);
    replace(partitions, byPartition(found.partitions, isSpark, found.type === "share"));
    if (!isSpark) replace(members, card("Members", byMember(found.members)));
    return found.next_ms;
  };
  replace(view.root,
    h("div", { class: "top" }, h("h1", {}, isSpark ? name.slice(SPARK.length) : name),
      !isSpark && h("div", { class: "buttons" }, ...changing(session,
        button("Reset offsets", () => reset(name, load), "primary"),
        button("Delete", () => confirmByName(`Delete group ${name}`, name, "Its committed offsets are deleted.", "Delete", async () => {
          await remove("/api/group", { name });
          notice(`group ${name} deleted`);
          location.hash = to("groups");
        }), "danger")))),
    facts, plot.root, card("Partitions", partitions), members);
  await view.repeat(load);
}

function byPartition(rows, isSpark, isShared) {
  return table([
    { title: "Topic", cell: (each) => link("topic", { name: each.topic }, each.topic) },
    { title: "Partition", kind: "id", cell: (each) => link("messages", { topic: each.topic, partition: each.partition, from: each.committed === null ? "" : "offset", at: each.committed }, each.partition) },
    { title: isSpark ? "Position" : isShared ? "Start" : "Committed", kind: "number", cell: (each) => count(each.committed) },
    { title: "End", kind: "number wide", cell: (each) => count(each.end) },
    { title: "Lag", kind: "number", cell: (each) => lag(each.lag) },
    ...(isSpark || isShared ? [] : [{ title: "Member", kind: "code wide", cell: (each) => each.member ?? "–" }]),
  ], rows, { empty: "no committed offsets" });
}

function byMember(rows) {
  return table([
    { title: "Member", kind: "code", cell: (each) => each.instance_id ?? each.id },
    { title: "Client", cell: (each) => each.client_id },
    { title: "Host", kind: "code wide", cell: (each) => each.host },
    { title: "Partitions", kind: "number", cell: (each) => count(each.partitions) },
    ...(rows.some((each) => each.tasks) ? [{ title: "Tasks", cell: (each) => tasks(each.tasks) }] : []),
  ], rows, { empty: "no members" });
}

function tasks(counts) {
  return Object.entries(counts ?? {}).filter(([, number]) => number).map(([kind, number]) => `${count(number)} ${kind}`).join(", ") || "–";
}

function reset(name, done) {
  const plan = h("div", { class: "plan" });
  const at = h("input", { name: "at", autocomplete: "off" });
  const atField = h("label", { class: "field", hidden: true }, h("span", {}, "Offset"), at);
  const way = h("select", { name: "to", change: () => adapt() },
    [["latest", "the end"], ["earliest", "the beginning"], ["offset", "an offset"], ["time", "a time"], ["shift", "shifted by"]].map(([value, text]) => h("option", { value }, text)));
  const dry = button("Show what would change", async () => {
    try {
      const rows = await post("/api/group/offsets", { ...given(), dry_run: true });
      replace(plan, table([
        { title: "Partition", cell: (each) => `${each.topic}-${each.partition}` },
        { title: "Now", kind: "number", cell: (each) => count(each.before) },
        { title: "Then", kind: "number", cell: (each) => count(each.offset) },
      ], rows));
    } catch (error) {
      replace(plan, h("p", { class: "failure" }, error.message));
    }
  });
  const topic = h("input", { name: "topic", autocomplete: "off", spellcheck: "false" });

  function adapt() {
    atField.hidden = way.value === "latest" || way.value === "earliest";
    at.type = way.value === "time" ? "datetime-local" : "number";
    at.step = "1";
    atField.firstChild.textContent = { offset: "Offset", time: "Time", shift: "Records, negative: back" }[way.value] ?? "";
  }

  function given() {
    const value = way.value === "time" && at.value ? String(new Date(at.value).getTime()) : at.value;
    return { name, to: way.value, at: value, topic: topic.value };
  }

  ask(`Reset the offsets of ${name}`, [
    h("p", {}, "Only while the group has no members."),
    h("label", { class: "field" }, h("span", {}, "To"), way), atField,
    h("label", { class: "field" }, h("span", {}, "Topic"), topic, h("small", {}, "empty: all topics of the group")),
    dry, plan,
  ], "Reset", async () => {
    const rows = await post("/api/group/offsets", given());
    notice(`offsets of ${count(rows.length)} partitions reset`);
    await done();
  });
}
