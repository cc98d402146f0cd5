// Requests to the console's server.

let csrf = null;

export class Refused extends Error {
  constructor(status, message, code, items) {
    super(message);
    this.status = status;
    this.code = code;
    this.items = items ?? {};
  }

  /** Whether the same request may succeed soon. */
  get temporary() {
    return this.status === 0 || this.status === 404 || this.status >= 500;
  }
}

/** Who is logged in, and what the console is. */
export const session = {};

export async function loadSession() {
  remember(await send("GET", "/api/session"));
  return session;
}

export async function logIn(given) {
  remember(await send("POST", "/api/login", given));
}

export async function logOut() {
  await send("POST", "/api/logout", {});
  await loadSession();
}

export function get(path, parameters = {}, signal = null) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  return send("GET", query.size ? `${path}?${query}` : path, null, signal);
}

export const post = (path, body) => send("POST", path, body);
export const remove = (path, body) => send("DELETE", path, body);

function remember(found) {
  Object.assign(session, found);
  csrf = found.csrf;
}

async function send(method, path, body = null, signal = null) {
  const headers = {};
  if (method !== "GET") {
    headers["content-type"] = "application/json";
    if (csrf) headers["x-csrf-token"] = csrf;
  }
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: method === "GET" ? null : JSON.stringify(body ?? {}), credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the console does not answer");
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok && method !== "GET") dispatchEvent(new CustomEvent("console-changed"));
  if (response.ok) return answer;
  const refusal = new Refused(response.status, answer.error?.message ?? `HTTP ${response.status}`, answer.error?.code, answer.error?.items);
  if (response.status === 401 && path !== "/api/login") dispatchEvent(new CustomEvent("console-login"));
  throw refusal;
}
