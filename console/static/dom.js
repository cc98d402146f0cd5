// Elements of the page. Text reaches it as text nodes only: no value of the cluster is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name in element && typeof value !== "string" && name !== "list") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false)
    .map((each) => (each instanceof Node ? each : document.createTextNode(String(each)))));
  return element;
}

/** h("a", {href: "#/", click: go}, "text", element): a function among the properties listens to the event. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function replace(element, ...children) {
  element.replaceChildren();
  return fill(element, {}, children);
}

/** The address of a page of the console. */
export function to(page, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null && value !== false));
  return `#/${page}${query.size ? `?${query}` : ""}`;
}

export function link(page, parameters, ...children) {
  return h("a", { href: to(page, parameters) }, ...children);
}

export function badge(kind, ...children) {
  return h("span", { class: `badge ${kind}` }, ...children);
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title && h("h2", {}, title), ...children);
}

export function button(text, click, kind = "") {
  return h("button", { type: "button", class: kind, click }, text);
}

/** A change: absent in a console that is read-only. */
export function changing(session, ...children) {
  return session.read_only ? [] : children;
}

let notices;

/** A line at the bottom that goes away by itself. */
export function notice(text, kind = "good") {
  notices ??= document.body.appendChild(h("div", { class: "notices", role: "status" }));
  const line = h("div", { class: `notice ${kind}` }, text);
  notices.append(line);
  setTimeout(() => line.remove(), kind === "bad" ? 9000 : 4000);
}

/** Asks for the inputs of a change. `work` gets their values by name; an error keeps the dialog open. */
export function ask(title, inputs, action, work, kind = "primary") {
  const failure = h("p", { class: "failure", role: "alert" });
  const submit = h("button", { class: kind }, action);
  const form = h("form", {},
    h("h2", {}, title),
    inputs.map((each) => (each instanceof Node ? each : field(each))),
    failure,
    h("div", { class: "actions" }, button("Cancel", () => dialog.close()), submit));
  const dialog = h("dialog", { close: () => dialog.remove() }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    replace(failure);
    try {
      await work(values(form));
      dialog.close();
    } catch (error) {
      replace(failure, error.message);
    } finally {
      submit.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  form.querySelector("input, textarea, select")?.focus();
  return dialog;
}

/** For what cannot be undone: the name is typed again. */
export function confirmByName(title, name, text, action, work) {
  return ask(title, [h("p", {}, text), { name: "typed", label: `Type ${name} to confirm`, required: true }], action, async ({ typed }) => {
    if (typed !== name) throw new Error("that is another name");
    await work();
  }, "danger");
}

/** {name, label, type, value, options, hint}: an input with its label. */
export function field({ label, hint, options, type = "text", value, ...rest }) {
  let input;
  if (options) {
    input = h("select", rest, options.map((each) => {
      const [key, text] = Array.isArray(each) ? each : [each, each];
      return h("option", { value: key, selected: key === value }, text);
    }));
  } else if (type === "textarea") {
    input = h("textarea", { rows: "4", spellcheck: "false", autocapitalize: "off", ...rest }, value ?? "");
  } else if (type === "checkbox") {
    return h("label", { class: "check" }, h("input", { type, checked: Boolean(value), ...rest }), label);
  } else {
    input = h("input", { type, value: value === undefined ? null : String(value), autocomplete: "off", autocapitalize: "off", spellcheck: "false", ...rest });
  }
  return h("label", { class: "field" }, h("span", {}, label), input, hint && h("small", {}, hint));
}

export function values(form) {
  const found = {};
  for (const input of form.querySelectorAll("input[name], select[name], textarea[name]")) {
    found[input.name] = input.type === "checkbox" ? input.checked : input.value;
  }
  return found;
}

/** key=value lines as an object. */
export function lines(text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`${line}: must be key=value`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}

/** A share of a whole as a bar. */
export function bar(share, kind = "") {
  const inner = h("span", {});
  inner.style.width = `${Math.min(100, Math.max(0, 100 * share))}%`;
  return h("span", { class: `bar ${kind}` }, inner);
}
