// The frame of the page: the menu, the login, and the page that the address names.

import { get, loadSession, logIn, logOut, session } from "./api.js";
import { button, field, h, notice, replace, to, values } from "./dom.js";
import { PAGES } from "./pages.js";

const RETRY_MS = 3000;
const CHANGED_MS = 1000;
const main = h("main", {});
const menu = h("nav", { "aria-label": "pages" });
const who = h("div", { class: "who" });
const title = h("span", {}, "raylog");
let current = null;

/** One page as it is shown: what it started ends when another one is shown. */
class View {
  constructor(name, params) {
    this.name = name;
    this.params = params;
    this.root = h("div", { class: "page" });
    this.banner = h("div", { class: "banner", role: "alert", hidden: true });
    this.abort = new AbortController();
  }

  get left() {
    return this.abort.signal.aborted;
  }

  get(path, parameters) {
    return get(path, parameters, this.abort.signal);
  }

  /** Keep the state of the page in its address. */
  keep(state) {
    const params = Object.fromEntries(this.params);
    Object.assign(params, state);
    if (!params.start) delete params.start;
    history.replaceState(null, "", to(this.name, params));
    this.params = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== ""));
  }

  fail(error) {
    if (error.name === "AbortError" || this.left) return;
    this.banner.hidden = false;
    replace(this.banner, error.message);
    for (const each of this.root.querySelectorAll(".loading")) each.remove();
  }

  /** Run `work` now and again, as long as the page is shown; it may return how long to wait, in ms. */
  async repeat(work, pause = RETRY_MS) {
    while (!this.left) {
      let wait = pause;
      if (!document.hidden) {
        try {
          wait = (await work()) ?? pause;
          this.banner.hidden = true;
        } catch (error) {
          this.fail(error);
          if (error.status === 403 || error.status === 401) return;
        }
      }
      await this.wait(wait);
    }
  }

  /**
   * What `work` returns, once it succeeds: what was made a moment ago may not be known to every broker yet, and a leader
   * may be missing. Undefined if the page is left, or if trying again does not help.
   */
  async persist(work, failed = (error) => this.fail(error)) {
    while (!this.left) {
      try {
        const found = await work();
        this.banner.hidden = true;
        return found;
      } catch (error) {
        if (error.name === "AbortError" || this.left) break;
        failed(error);
        if (!error.temporary) break;
      }
      await this.wait(RETRY_MS);
    }
    return undefined;
  }

  /** So long, or until the page is left; a second after a change, which the broker that is asked may learn of late. */
  wait(ms) {
    return new Promise((resolve) => {
      const ended = new AbortController();
      let timer = 0;
      const end = () => { clearTimeout(timer); ended.abort(); resolve(); };
      const begin = (pause) => { clearTimeout(timer); timer = setTimeout(end, pause); };
      begin(ms);
      this.abort.signal.addEventListener("abort", end, { signal: ended.signal });
      addEventListener("console-changed", () => begin(Math.min(ms, CHANGED_MS)), { signal: ended.signal });
    });
  }
}

function show() {
  current?.abort.abort();
  if (!session.open) {
    showLogin();
    return;
  }
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const page = PAGES.find((each) => each.name === path) ?? PAGES[0];
  const view = new View(page.name, new URLSearchParams(query ?? ""));
  current = view;
  for (const each of menu.children) each.classList.toggle("current", each.dataset.menu === (page.menu ?? page.name));
  menu.querySelector(".current")?.scrollIntoView({ block: "nearest", inline: "center" });
  document.title = `${page.title} – ${session.title}`;
  document.body.classList.remove("login");
  replace(main, view.banner, view.root);
  scrollTo(0, 0);
  Promise.resolve(page.show(view)).catch((error) => view.fail(error));
}

function showLogin() {
  current = null;
  document.body.classList.add("login");
  const failure = h("p", { class: "failure", role: "alert" });
  const submit = h("button", { class: "primary" }, "Log in");
  const form = h("form", { class: "card" },
    h("h1", {}, session.title),
    h("p", { class: "quiet" }, session.bootstrap_servers),
    field({ name: "user", label: "User", required: true, autocomplete: "username" }),
    field({ name: "password", label: "Password", type: "password", required: true, autocomplete: "current-password" }),
    field({ name: "mechanism", label: "Mechanism", options: session.mechanisms }),
    failure, submit);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    replace(failure);
    try {
      await logIn(values(form));
      frame();
      show();
    } catch (error) {
      replace(failure, error.message);
    } finally {
      submit.disabled = false;
    }
  });
  replace(main, form);
  form.querySelector("input").focus();
}

function frame() {
  replace(title, session.title);
  replace(who,
    session.read_only && h("span", { class: "badge" }, "read-only"),
    session.user && h("span", { class: "user" }, session.user),
    session.user && button("Log out", async () => {
      await logOut().catch((error) => notice(error.message, "bad"));
      show();
    }, "plain"));
}

async function begin() {
  try {
    await loadSession();
  } catch (error) {
    replace(main, h("p", { class: "banner" }, error.message));
    setTimeout(begin, RETRY_MS);
    return;
  }
  frame();
  show();
}

replace(menu, PAGES.filter((each) => !each.menu).map((each) => h("a", { href: to(each.name), "data-menu": each.name }, each.title)));
document.body.append(
  h("header", {}, h("a", { class: "brand", href: "#/" }, h("img", { src: "icon.svg", alt: "", width: "28", height: "28" }), title), menu, who),
  main);
addEventListener("hashchange", show);
addEventListener("console-login", async () => {
  if (!session.open) return;
  session.open = false;
  await loadSession().catch(() => {});
  show();
});
begin();
