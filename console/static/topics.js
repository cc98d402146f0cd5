// Topics: the list, and one topic with its partitions and configuration.

import { post, remove, session } from "./api.js";
import { ask, badge, button, card, changing, confirmByName, field, h, lines, link, notice, replace, to } from "./dom.js";
import { bytes, count } from "./format.js";
import { PagedTable, table } from "./table.js";

export async function topics(view) {
  let sizes = {};
  const internal = h("input", { type: "checkbox", checked: view.params.get("internal") === "true", change: () => list.change({ internal: internal.checked ? "true" : "", start: 0 }).catch((error) => view.fail(error)) });
  const list = new PagedTable(view, {
    path: "/api/topics",
    filter: "filter topics",
    empty: "no topics yet",
    parameters: () => ({ internal: internal.checked ? "true" : "" }),
    columns: [
      { title: "Topic", order: "name", cell: (each) => [link("topic", { name: each.name }, each.name), each.internal && " ", each.internal && badge("", "internal")] },
      { title: "Health", order: "health", cell: health },
      { title: "Partitions", kind: "number", order: "partitions", cell: (each) => count(each.partitions) },
      { title: "Replicas", kind: "number wide", order: "replicas", cell: (each) => count(each.replicas) },
      { title: "Records", kind: "number", cell: (each) => count(sizes[each.name]?.records) },
      { title: "Size", kind: "number", cell: (each) => bytes(sizes[each.name]?.size_bytes) },
      { title: "", kind: "wide actions", cell: (each) => link("messages", { topic: each.name }, "messages") },
    ],
    loaded: async (answer, self) => {
      if (!answer.items.length) return;
      sizes = await view.get("/api/topics/sizes", { names: answer.items.map((each) => each.name).join(",") });
      self.show();
    },
  });
  replace(view.root,
    h("div", { class: "top" }, h("h1", {}, "Topics"), ...changing(session, button("Create topic", create, "primary"))),
    h("div", { class: "tools" }, list.input, h("label", { class: "check" }, internal, "internal topics")),
    list.root);
  await view.repeat(() => list.load(), 5000);
}

function health(topic) {
  if (topic.offline) return badge("bad", `${count(topic.offline)} without leader`);
  if (topic.under_replicated) return badge("warn", `${count(topic.under_replicated)} under-replicated`);
  return badge("good", "in sync");
}

function create() {
  ask("Create topic", [
    { name: "name", label: "Name", required: true, maxlength: "249" },
    { name: "partitions", label: "Partitions", type: "number", min: "1", hint: "empty: the brokers' default" },
    { name: "replicas", label: "Replication factor", type: "number", min: "1", hint: "empty: the brokers' default" },
    { name: "configs", label: "Configuration", type: "textarea", placeholder: "retention.ms=86400000\ncleanup.policy=compact", hint: "key=value, one in each line" },
  ], "Create", async (given) => {
    await post("/api/topics", { ...given, configs: lines(given.configs) });
    notice(`topic ${given.name} created`);
    location.hash = to("topic", { name: given.name });
  });
}

export async function topic(view) {
  const name = view.params.get("name") ?? "";
  const facts = h("p", { class: "facts" });
  const list = new PagedTable(view, {
    path: "/api/topic",
    limit: 100,
    parameters: () => ({ name }),
    columns: [
      { title: "Partition", kind: "id", cell: (each) => link("messages", { topic: name, partition: each.partition }, each.partition) },
      { title: "Leader", cell: (each) => (each.leader === null ? badge("bad", "none") : [String(each.leader), !each.preferred && " ", !each.preferred && badge("warn", "not preferred")]) },
      { title: "Replicas", cell: replicas },
      { title: "First offset", kind: "number wide", cell: (each) => count(each.first_offset) },
      { title: "End offset", kind: "number", cell: (each) => count(each.end_offset) },
      { title: "Records", kind: "number", cell: (each) => count(each.end_offset === null ? null : each.end_offset - each.first_offset) },
      { title: "Size", kind: "number", cell: (each) => bytes(each.sizes?.[each.leader]) },
    ],
  });
  const load = list.load;
  list.load = async function paged() {
    const asked = ++this.asked;
    const answer = await view.get("/api/topic", { name, start: this.state.start, limit: this.limit });
    if (asked !== this.asked) return;
    replace(facts, health(answer), ` ${count(answer.partitions)} partitions · ${count(answer.replicas)} replicas · id `, h("code", {}, answer.id));
    this.answer = answer.page;
    this.show();
  };
  const configs = new Configs(view, name);
  replace(view.root,
    h("div", { class: "top" }, h("h1", {}, name),
      h("div", { class: "buttons" },
        h("a", { class: "button primary", href: to("messages", { topic: name }) }, "Messages"),
        ...changing(session,
          button("Add partitions", () => grow(name, list)),
          button("Delete", () => confirmByName(`Delete topic ${name}`, name, "All of its records are deleted, on all brokers.", "Delete", async () => {
            await remove("/api/topic", { name });
            notice(`topic ${name} deleted`);
            location.hash = to("topics");
          }), "danger")))),
    facts, card("Partitions", list.root), card("Configuration", configs.root));
  await view.repeat(() => Promise.all([list.load(), configs.load()]).then(() => 4000));
}

function replicas(each) {
  return each.replicas.map((broker) => {
    const kind = each.offline_replicas.includes(broker) ? "bad" : each.isr.includes(broker) ? "good" : "warn";
    const state = kind === "bad" ? "offline" : kind === "good" ? "in sync" : "not in sync";
    return [h("span", { class: `badge ${kind}`, title: `broker ${broker}: ${state}` }, broker), " "];
  });
}

function grow(name, list) {
  ask(`Add partitions to ${name}`, [
    h("p", {}, "Keys are hashed to other partitions afterwards. Partitions cannot be removed again."),
    { name: "partitions", label: "Partitions in all", type: "number", min: "1", required: true },
  ], "Add", async ({ partitions }) => {
    await post("/api/topic/partitions", { name, partitions });
    notice(`topic ${name} has ${partitions} partitions`);
    await list.load();
  });
}

/** The keys of a topic. They are read again and again: the broker that is asked may learn of a change a little later. */
class Configs {
  constructor(view, name) {
    Object.assign(this, { view, name, entries: [] });
    this.all = h("input", { type: "checkbox", change: () => this.draw() });
    this.label = h("span", {});
    this.body = h("div", {}, h("p", { class: "quiet loading" }, "loading…"));
    this.root = h("div", {}, h("label", { class: "check" }, this.all, this.label), this.body);
  }

  async load() {
    try {
      this.entries = await this.view.get("/api/topic/configs", { name: this.name });
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") replace(this.body, h("p", { class: "quiet" }, error.message));
    }
  }

  draw() {
    const shown = this.entries.filter((each) => this.all.checked || each.own || each.source === "DYNAMIC_BROKER_CONFIG");
    replace(this.label, `all ${count(this.entries.length)} keys, with defaults`);
    replace(this.body, table([
      { title: "Key", kind: "code", cell: (each) => h("span", { title: each.documentation ?? "" }, each.name) },
      { title: "Value", kind: "code", cell: (each) => (each.sensitive ? "[hidden]" : each.value ?? "–") },
      { title: "Set by", kind: "wide", cell: (each) => (each.own ? badge("good", "topic") : badge("", each.source.toLowerCase().replaceAll("_", " "))) },
      { title: "", kind: "actions", cell: (each) => changing(session,
        !each.read_only && button("change", () => change(this.name, each, () => this.load()), "plain"),
        each.own && button("reset", () => this.reset(each.name), "plain")) },
    ], shown, { empty: "no key is set for this topic" }));
  }

  async reset(key) {
    await post("/api/topic/configs", { name: this.name, configs: { [key]: null } }).then(() => notice(`${key} reset`), (error) => notice(error.message, "bad"));
    await this.load();
  }
}

function change(name, entry, done) {
  ask(entry.name, [
    entry.documentation && h("p", {}, entry.documentation),
    field({ name: "value", label: "Value", value: entry.value ?? "" }),
  ].filter(Boolean), "Set", async ({ value }) => {
    await post("/api/topic/configs", { name, configs: { [entry.name]: value } });
    notice(`${entry.name} = ${value}`);
    await done();
  });
}
