// Access control lists, users and quotas.

import { post, remove, session } from "./api.js";
import { ask, badge, button, changing, confirmByName, h, notice, replace } from "./dom.js";
import { count } from "./format.js";
import { PagedTable } from "./table.js";

const RESOURCES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const OPERATIONS = ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT", "ALL"];
const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const SLOW_MS = 15000;

function page(view, title, list, ...actions) {
  replace(view.root, h("div", { class: "top" }, h("h1", {}, title), ...changing(session, ...actions)), h("div", { class: "tools" }, list.input), list.root);
  return view.repeat(() => list.load(), SLOW_MS);
}

export async function acls(view) {
  const list = new PagedTable(view, {
    path: "/api/acls",
    filter: "filter by principal, resource, operation",
    empty: "no entries",
    columns: [
      { title: "Principal", cell: (each) => each.principal },
      { title: "Permission", cell: (each) => badge(each.permission === "ALLOW" ? "good" : "bad", each.permission.toLowerCase()) },
      { title: "Operation", cell: (each) => each.operation },
      { title: "Resource", cell: (each) => [badge("", each.resource_type.toLowerCase().replaceAll("_", " ")), " ", each.resource_name, each.pattern_type === "PREFIXED" && "*"] },
      { title: "Host", kind: "wide", cell: (each) => each.host },
      { title: "", kind: "actions", cell: (each) => changing(session, button("remove", async () => {
        await remove("/api/acls", each).then(() => notice("entry removed"), (error) => notice(error.message, "bad"));
        await list.load().catch((error) => view.fail(error));
      }, "plain")) },
    ],
  });
  await page(view, "Access control", list, button("Add entry", () => ask("Add entry", [
    { name: "principal", label: "Principal", placeholder: "User:alice", required: true },
    { name: "permission", label: "Permission", options: [["ALLOW", "allow"], ["DENY", "deny"]] },
    { name: "operation", label: "Operation", options: OPERATIONS },
    { name: "resource_type", label: "Resource", options: RESOURCES },
    { name: "resource_name", label: "Name", required: true, hint: "* for all; the cluster is called kafka-cluster" },
    { name: "pattern_type", label: "Pattern", options: [["LITERAL", "this name"], ["PREFIXED", "names that begin so"]] },
    { name: "host", label: "Host", value: "*" },
  ], "Add", async (given) => {
    await post("/api/acls", given);
    notice("entry added");
    await list.load();
  }), "primary"));
}

export async function users(view) {
  const list = new PagedTable(view, {
    path: "/api/users",
    filter: "filter users",
    empty: "no users with a password for SCRAM",
    columns: [
      { title: "User", order: "name", cell: (each) => each.name },
      { title: "Mechanisms", cell: (each) => each.mechanisms.map(({ name, iterations }) => [badge("", name), " ", h("small", {}, `${count(iterations)} iterations`), " "]) },
      { title: "", kind: "actions", cell: (each) => changing(session, button("password", () => set(each.name), "plain"),
        button("remove", () => confirmByName(`Remove ${each.name}`, each.name, "The user cannot log in any more by SCRAM.", "Remove", async () => {
          await remove("/api/users", { name: each.name });
          notice(`user ${each.name} removed`);
          await list.load();
        }), "plain")) },
    ],
  });
  function set(name = "") {
    ask(name ? `Set the password of ${name}` : "Add user", [
      ...(name ? [] : [{ name: "name", label: "User", required: true }]),
      { name: "password", label: "Password", type: "password", required: true, autocomplete: "new-password" },
      { name: "mechanism", label: "Mechanism", options: [["", name ? "all that the user has" : "both"], "SCRAM-SHA-512", "SCRAM-SHA-256"] },
    ], "Set", async (given) => {
      await post("/api/users", { name, ...given });
      notice(`password of ${given.name ?? name} set`);
      await list.load();
    });
  }
  await page(view, "Users", list, button("Add user", () => set(), "primary"));
}

export async function quotas(view) {
  const list = new PagedTable(view, {
    path: "/api/quotas",
    filter: "filter quotas",
    empty: "no quotas",
    columns: [
      { title: "Applies to", order: "name", cell: (each) => Object.entries(each.entity).map(([kind, name]) => [badge("", kind), " ", name, " "]) },
      { title: "Quotas", cell: (each) => Object.entries(each.values).map(([key, value]) => h("div", {}, h("code", {}, key), ` ${count(value)}`)) },
      { title: "", kind: "actions", cell: (each) => changing(session, button("change", () => set(each), "plain"), button("remove", async () => {
        const values = Object.fromEntries(Object.keys(each.values).map((key) => [key, null]));
        await post("/api/quotas", { ...parts(each.entity), values }).then(() => notice("quotas removed"), (error) => notice(error.message, "bad"));
        await list.load().catch((error) => view.fail(error));
      }, "plain")) },
    ],
  });
  const parts = (entity) => ({ user: entity.user, client_id: entity["client-id"], ip: entity.ip });
  function set(each = { entity: {}, values: {} }) {
    const known = parts(each.entity);
    ask("Set quotas", [
      { name: "user", label: "User", value: known.user ?? "", hint: "<default>: all users without quotas of their own" },
      { name: "client_id", label: "Client id", value: known.client_id ?? "" },
      { name: "ip", label: "IP address", value: known.ip ?? "" },
      ...QUOTAS.map((key) => ({ name: `quota ${key}`, label: key, type: "number", min: "0", step: "any", value: each.values[key] ?? "", hint: "empty: none" })),
    ], "Set", async (given) => {
      const values = {};
      for (const key of QUOTAS) {
        const value = given[`quota ${key}`];
        if (value !== "") values[key] = value;
        else if (key in each.values) values[key] = null;
      }
      await post("/api/quotas", { user: given.user, client_id: given.client_id, ip: given.ip, values });
      notice("quotas set");
      await list.load();
    });
  }
  await page(view, "Quotas", list, button("Set quotas", () => set(), "primary"));
}
