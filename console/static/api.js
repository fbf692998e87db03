// Requests to the console's own server. The rule: an error is an Error with message and hint, ready to be shown.

export const session = { csrf_token: null, changes_allowed: false };

export class Refused extends Error {
  constructor(status, body) {
    super(body.message ?? `the console answered with status ${status}`);
    this.status = status;
    this.code = body.error_code ?? 0;
    this.hint = body.hint ?? null;
    this.body = body;
  }
}

let onLogin = () => {};

/** What to do when a login is needed. */
export function askForLogin(call) {
  onLogin = call;
}

async function request(method, path, body, signal) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  if (method !== "GET" && session.csrf_token) headers["X-CSRF-Token"] = session.csrf_token;
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, credentials: "same-origin", body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { message: "the console does not answer", hint: "is its process still running?" });
  }
  const text = await response.text();
  let found = {};
  try {
    found = text ? JSON.parse(text) : {};
  } catch {
    found = {};
  }
  if (response.ok) return found;
  if (response.status === 401 && path !== "/v1/session") onLogin();
  throw new Refused(response.status, found);
}

export const get = (path, signal) => request("GET", path, undefined, signal);
export const post = (path, body) => request("POST", path, body);
export const leave = () => request("DELETE", "/v1/session", {});

export async function readSession() {
  Object.assign(session, await get("/v1/session"));
  return session;
}

export async function logIn(token) {
  Object.assign(session, await post("/v1/session", { token }));
  return session;
}

const MAX_PAGES = 10;

/** The rows of all pages of a list, of its first 10 if there are more. */
export async function getAll(path) {
  const rows = [];
  let next = path;
  for (let page = 0; next && page < MAX_PAGES; page += 1) {
    const found = await get(next);
    rows.push(...found.data);
    next = found.metadata?.next;
  }
  return rows;
}

/** A part of a path. Browsers take `.` and `..` for folders, so these names get a `;` at the end. */
const segment = (name) => encodeURIComponent(/^\.{1,2};*$/.test(name) ? `${name};` : name);

/** A path below the cluster; each part is encoded. */
export function inCluster(cluster, parts, query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value != null && value !== "");
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  return `/v3/clusters/${segment(cluster)}${parts.map((each) => `/${segment(each)}`).join("")}${search}`;
}
