// Messages of a topic: browse them by offset, time and key, follow new ones, and write one.

import { get, post, session } from "./api.js";
import { ask, badge, button, changing, field, h, lines, link, notice, replace, to, values } from "./dom.js";
import { bytes, count, time } from "./format.js";

const KEPT_MAX = 1000;
const TAIL_MS = 4000;
const FORMATS = [["auto", "guess"], "json", "msgpack", "avro", "text", "hex"];
const STARTS = [["newest", "newest"], ["earliest", "oldest"], ["offset", "offset"], ["time", "time"]];

export async function messages(view) {
  const topic = view.params.get("topic") ?? "";
  if (!topic) return choose(view);
  const given = (name, otherwise = "") => view.params.get(name) ?? otherwise;
  const described = await view.persist(() => view.get("/api/topic", { name: topic, limit: 1 }));
  if (!described) return;
  const form = h("form", { class: "tools card" },
    field({ name: "partition", label: "Partition", options: [["", "all"], ...Array.from({ length: Math.min(described.partitions, 1000) }, (_, number) => [String(number), String(number)])], value: given("partition") }),
    field({ name: "from", label: "From", options: STARTS, value: given("from", "newest") }),
    field({ name: "at", label: "Offset", value: given("at") }),
    field({ name: "count", label: "Count", type: "number", min: "1", max: "500", value: given("count", "50") }),
    field({ name: "key", label: "Key is", value: given("key"), placeholder: "text, or 0x…" }),
    field({ name: "containing", label: "Contains", value: given("containing"), placeholder: "in key or value" }),
    field({ name: "key_format", label: "Keys as", options: FORMATS, value: given("key_format", "auto") }),
    field({ name: "value_format", label: "Values as", options: FORMATS, value: given("value_format", "auto") }),
    field({ name: "isolation", label: "Transactions", options: [["read_committed", "committed"], ["read_uncommitted", "all records"]], value: given("isolation", "read_committed") }),
    field({ name: "schema", label: "Avro schema", type: "textarea", placeholder: session.avro ? "{\"type\": \"record\", …}" : "fastavro is not installed" }),
    h("button", { class: "primary" }, "Show"));
  const parts = Object.fromEntries([...form.elements].filter((each) => each.name).map((each) => [each.name, each]));
  const live = button("▶ Follow", () => toggle());
  const state = h("p", { class: "quiet", role: "status" });
  const list = h("ol", { class: "records" });
  const more = h("div", { class: "pager" });
  let positions = null;
  let following = null;
  let showing = null;

  replace(view.root,
    h("div", { class: "top" }, h("h1", {}, link("topic", { name: topic }, topic), " messages"),
      h("div", { class: "buttons" }, live, ...changing(session, button("Write a message", () => produce(topic, described.partitions, () => show()))))),
    form, state, list, more);
  adapt();
  form.addEventListener("change", adapt);
  form.addEventListener("submit", (event) => { event.preventDefault(); stop(); show(); });

  function adapt() {
    const from = parts.from.value;
    const at = parts.at.closest("label");
    at.hidden = from === "newest" || from === "earliest";
    at.firstChild.textContent = from === "time" ? "Time" : "Offset";
    const type = from === "time" ? "datetime-local" : "number";
    if (parts.at.type !== type) {
      parts.at.type = type;
      parts.at.step = "1";
    }
    parts.schema.closest("label").hidden = parts.key_format.value !== "avro" && parts.value_format.value !== "avro";
  }

  function asked() {
    const found = values(form);
    view.keep({ ...found, schema: "" });
    if (found.from === "time") found.at = found.at ? String(new Date(found.at).getTime()) : "";
    const { containing, ...rest } = found;  // an input called "contains" would hide a method of its form
    return { ...rest, contains: containing, topic };
  }

  async function show(continued = null) {
    const parameters = { ...asked(), ...continued };
    const mine = {};
    showing = mine;  // another request replaces this one, which may still be tried again
    await view.persist(async () => {
      if (showing !== mine) return;
      replace(state, "reading…");
      const found = await view.get("/api/messages", parameters);
      if (showing !== mine) return;
      if (!continued) replace(list);
      add(found.records, parameters, "end");
      positions = found.positions;
      describe(found, parameters);
    }, (error) => showing === mine && fail(error));
  }

  function fail(error) {
    replace(state, h("span", { class: "failure" }, error.message));
  }

  function describe(found, parameters) {
    const filtered = parameters.key || parameters.contains;
    replace(state, `${count(list.children.length)} shown`, filtered && `, ${count(found.scanned)} looked through`,
      found.without_leader > 0 && `, ${found.without_leader} partitions without leader`);
    const onward = parameters.from !== "newest";
    replace(more,
      parameters.partition !== "" && list.children.length > 0 && button("← older", () => older(parameters)),
      onward && !found.complete && button(filtered && found.records.length === 0 ? "search on →" : "newer →", () => show({ from: "positions", positions: text(found.positions) })),
      onward && found.complete && h("span", { class: "quiet" }, "that is all"));
  }

  function older(parameters) {
    const first = Math.min(...[...list.children].map((each) => Number(each.dataset.offset)));
    parts.from.value = "offset";
    adapt();
    parts.at.value = String(Math.max(0, first - Number(parameters.count)));
    show();
  }

  function add(records, parameters, where) {
    const made = records.map((each) => record(view, topic, each, parameters));
    if (where === "end") list.append(...made);
    else list.prepend(...made.reverse());
    while (list.children.length > KEPT_MAX) (where === "end" ? list.firstChild : list.lastChild).remove();
  }

  function stop() {
    following = null;
    live.textContent = "▶ Follow";
    live.classList.remove("primary");
  }

  async function toggle() {
    if (following) return stop();
    const mine = {};
    following = mine;
    live.textContent = "■ Stop";
    live.classList.add("primary");
    parts.from.value = "newest";
    adapt();
    replace(more);
    await show();
    replace(more);
    while (following === mine && !view.left) {
      const parameters = { ...asked(), from: "positions", positions: text(positions ?? {}), wait_ms: TAIL_MS, count: 500 };
      try {
        const found = await view.get("/api/messages", parameters);
        if (following !== mine) return;
        positions = found.positions;
        add(found.records, parameters, "start");
        replace(state, h("span", { class: "pulse" }), `following, ${count(list.children.length)} shown`);
      } catch (error) {
        if (error.name === "AbortError") return;
        fail(error);
        await view.wait(2000);
      }
    }
  }

  await show();
}

const text = (positions) => Object.entries(positions).map(([partition, offset]) => `${partition}:${offset}`).join(",");

function record(view, topic, found, parameters) {
  const body = h("div", { class: "body", hidden: true });
  const head = h("button", { type: "button", class: "line", "aria-expanded": "false", click: () => open() },
    h("span", { class: "when" }, time(found.timestamp_ms)),
    h("span", { class: "where" }, `${found.partition}:${count(found.offset)}`),
    h("span", { class: "key" }, preview(found.key, 60)),
    h("span", { class: "value" }, preview(found.value, 300)));
  const item = h("li", { "data-offset": String(found.offset) }, head, body);

  function open() {
    body.hidden = !body.hidden;
    head.setAttribute("aria-expanded", String(!body.hidden));
    if (!body.hidden && !body.children.length) fill(found);
  }

  function fill(each) {
    replace(body,
      h("dl", {},
        entry("Time", `${time(each.timestamp_ms)} (${each.timestamp_type})`),
        entry("Partition, offset", `${each.partition}, ${count(each.offset)}`),
        each.headers.map(({ name, value }) => entry(`Header ${name}`, value.text ?? "null")),
        each.more_headers > 0 && entry("Headers", `${count(each.more_headers)} more`)),
      part("Key", each.key), part("Value", each.value),
      (each.key.truncated || each.value.truncated) && button("Load the whole record", async () => {
        try {
          fill(await get("/api/message", { topic, partition: each.partition, offset: each.offset, key_format: parameters.key_format, value_format: parameters.value_format, schema: parameters.schema }));
        } catch (error) {
          notice(error.message, "bad");
        }
      }));
  }
  return item;
}

function entry(name, value) {
  return [h("dt", {}, name), h("dd", {}, value)];
}

function part(name, value) {
  return h("section", {},
    h("h3", {}, name, " ", badge("", value.format), " ", h("small", {}, bytes(value.size_bytes), value.truncated ? ", the beginning" : ""),
      value.text !== null && button("copy", () => navigator.clipboard?.writeText(value.text).then(() => notice("copied")), "plain")),
    value.problem && h("p", { class: "failure" }, value.problem),
    h("pre", {}, value.text ?? "null"));
}

function preview(value, characters) {
  if (value.text === null) return h("em", {}, "null");
  if (value.format === "hex") return h("span", { class: "quiet" }, value.text.slice(10, 10 + 3 * 16).trim(), value.size_bytes > 16 ? "…" : "");
  const beginning = value.text.slice(0, 4 * characters);
  const one = value.format === "text" ? beginning : beginning.replaceAll(/([{[])\n\s*/g, "$1").replaceAll(/\n\s*([}\]])/g, "$1");
  return one.replaceAll(/\s+/g, " ").slice(0, characters);
}

function produce(topic, partitions, done) {
  const ways = (name, label) => field({ name, label, options: ["text", "hex", "null"] });
  ask(`Write to ${topic}`, [
    { name: "key", label: "Key", hint: "empty and without a value of its own: choose null" },
    ways("key_format", "Key as"),
    { name: "value", label: "Value", type: "textarea", rows: "7" },
    ways("value_format", "Value as"),
    { name: "headers", label: "Headers", type: "textarea", rows: "2", placeholder: "source=console" },
    { name: "partition", label: "Partition", type: "number", min: "0", max: String(partitions - 1), hint: "empty: by the key" },
  ], "Write", async (given) => {
    const headers = Object.entries(lines(given.headers)).map(([name, value]) => ({ name, value }));
    const found = await post("/api/messages", { ...given, topic, headers });
    notice(`written to partition ${found.partition} at offset ${found.offset}`);
    await done();
  });
}

async function choose(view) {
  const input = h("input", { type: "search", placeholder: "topic", list: "topics-known", required: true, autocomplete: "off" });
  const known = h("datalist", { id: "topics-known" });
  const form = h("form", { class: "tools card" }, h("label", { class: "field" }, h("span", {}, "Topic"), input), known, h("button", { class: "primary" }, "Show"));
  form.addEventListener("submit", (event) => { event.preventDefault(); location.hash = to("messages", { topic: input.value }); });
  replace(view.root, h("h1", {}, "Messages"), form);
  input.addEventListener("input", () => load().catch((error) => view.fail(error)));
  async function load() {
    const found = await view.get("/api/topics", { filter: input.value, limit: 50 });
    replace(known, found.items.map((each) => h("option", { value: each.name })));
  }
  await load();
  input.focus();
}
