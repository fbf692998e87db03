// The shell: which page the address names, navigation, keyboard, theme, login. Pages are modules, read when first shown.
//
// A page is `show(root, place)`: it fills `root` and returns { event(name, data), close() }, both optional.
// place: { parts, query, cluster, go(query) } of the address `#/part/part?query`.

import { askForLogin, logIn, readSession, session } from "./api.js";
import { dialog } from "./actions.js";
import { h, problemOf, put } from "./dom.js";
import { begin, listen, refresh, state } from "./live.js";
import { visible } from "./visible.js";

const PAGES = [
  // name in the address, title, key after g, module
  ["", "Overview", "o", "./pages/overview.js"],
  ["topics", "Topics", "t", "./pages/topics.js"],
  ["groups", "Groups", "r", "./pages/groups.js"],
  ["transactions", "Transactions", "x", "./pages/transactions.js"],
  ["clients", "Clients", "c", "./pages/clients.js"],
  ["settings", "Settings", "s", "./pages/settings.js"],
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const bar = document.getElementById("bar");
let shown = null; // { page, name, subject }
let turn = 0;
let waits = false; // for a broker that can be reached

// ---- address ----

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function placeOf(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { parts: path.split("/").filter(Boolean).map(decoded), query: Object.fromEntries(new URLSearchParams(search)) };
}

function go(query) {
  const { parts } = placeOf(location.hash);
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  history.replaceState(null, "", `#/${parts.map(encodeURIComponent).join("/")}${search}`);
}

async function route() {
  const { hash } = location;
  const place = placeOf(hash);
  const name = place.parts[0] ?? "";
  const page = PAGES.find((each) => each[0] === name);
  const mine = ++turn;
  shown?.page?.close?.();
  shown = null;
  for (const each of nav.querySelectorAll("a")) {
    if (each.dataset.name === name) {
      each.setAttribute("aria-current", "page");
      each.scrollIntoView({ block: "nearest", inline: "nearest" }); // where the window is narrow
    } else each.removeAttribute("aria-current");
  }
  const root = h("div", { class: "page" });
  if (!page) {
    put(main, h("h1", null, "There is no such page"), h("p", null, h("a", { href: "#/" }, "Go to the overview")));
    main.dataset.shown = hash;
    return;
  }
  document.title = visible(`${place.parts.slice(1, 2).concat(page[1]).join(" · ")} · fencepost`);
  waits = !state.snapshot?.cluster;
  if (waits) {
    put(main, h("h1", null, page[1]), problemOf(state.snapshot?.problem ?? { message: "the cluster was not read yet" }));
    return;
  }
  try {
    const { show } = await import(page[3]);
    if (mine !== turn) return;
    put(main, root);
    const cluster = state.snapshot.cluster.cluster_id ?? session.cluster_id;
    const drawn = await show(root, { ...place, parts: place.parts.slice(1), cluster, go });
    if (mine !== turn) {
      drawn?.close?.(); // the user has gone on meanwhile: events belong to the page that is shown now
      return;
    }
    shown = { page: drawn };
    main.dataset.shown = hash;
  } catch (error) {
    if (mine === turn) put(main, h("h1", null, page[1]), problemOf(error));
  }
}

// ---- bar, navigation, theme ----

const THEMES = ["auto", "light", "dark"];

function theme() {
  try {
    return localStorage.getItem("theme") ?? "auto";
  } catch {
    return "auto";
  }
}

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("theme", name);
  } catch { /* a browser that keeps nothing */ }
  const button = document.getElementById("theme");
  if (button) button.textContent = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[name];
}

const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);

function drawBar() {
  const light = h("span", { id: "light", class: "light" });
  put(bar,
    h("a", { href: "#/", class: "brand" }, h("img", { src: "/static/icon.svg", alt: "", width: "24", height: "24" }), "fencepost"),
    h("span", { class: "where" }, session.bootstrap ?? ""),
    h("span", { class: "spring" }),
    h("span", { class: "live", role: "status" }, light, h("span", { id: "live" }, "connecting")),
    session.changes_allowed ? null : h("span", { class: "badge plain", title: session.changes_hint ?? "" }, "read-only"),
    h("button", { type: "button", id: "theme", title: "Colours (d)", on: { click: nextTheme } }, ""),
    h("button", { type: "button", title: "Keyboard shortcuts (?)", "aria-label": "Keyboard shortcuts", on: { click: help } }, "?"));
  setTheme(theme());
  const here = placeOf(location.hash).parts[0] ?? "";
  put(nav, h("ul", null, PAGES.filter(([name]) => name !== "clients" || state.snapshot?.cluster?.fencepost).map(([name, title, key]) =>
    h("li", null, h("a", { href: `#/${name}`, "data-name": name, title: `g ${key}`, "aria-current": here === name ? "page" : null }, title,
      h("span", { class: "nav-count", id: `count-${name || "overview"}` }))))));
}

function drawState() {
  const now = state.snapshot;
  const light = document.getElementById("light");
  const text = document.getElementById("live");
  if (!light || !now?.counts) return;
  const reachable = now.reachable !== false;
  light.className = `light ${!reachable ? "bad" : state.open ? "good" : "warn"}`;
  text.textContent = !reachable ? "broker not reachable" : state.open ? "live" : "reconnecting";
  text.parentElement.title = now.problem ? visible([now.problem.message, now.problem.hint].filter(Boolean).join(". ")) : "";
  const set = (name, value, alarm) => {
    const element = document.getElementById(`count-${name}`);
    if (!element) return;
    element.textContent = value ? String(value) : "";
    element.classList.toggle("alarm", Boolean(alarm));
  };
  set("topics", now.counts.topics);
  set("groups", now.counts.groups);
  set("transactions", now.counts.open_transactions);
  set("overview", now.counts.blocked_partitions + (now.alarms?.length ?? 0), true);
}

// ---- keyboard ----

const KEYS = [
  ["/", "search or filter this page"],
  ["g then o t r x c s", "go to overview, topics, groups, transactions, clients, settings"],
  ["↑ ↓ Enter", "move in a table, open the row"],
  ["← → ↑ ↓", "move in a timeline, from batch to batch and lane to lane"],
  ["r", "read this page again"],
  ["d", "colours: automatic, light, dark"],
  ["?", "these shortcuts"],
  ["Esc", "close a dialog, leave a field"],
];

function help() {
  if (document.querySelector("dialog[open]")) return;
  dialog("Keyboard shortcuts", h("dl", { class: "keys" }, KEYS.map(([key, text]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, text)))),
    [["Close", "", null]]);
}

let afterG = 0;

function onKey(event) {
  const field = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape" && field) field.blur();
  if (field || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (performance.now() - afterG < 1500) {
    afterG = 0;
    const page = PAGES.find((each) => each[2] === event.key);
    if (page) {
      location.hash = `#/${page[0]}`;
      event.preventDefault();
      return;
    }
  }
  if (event.key === "g") afterG = performance.now();
  else if (event.key === "/") document.querySelector("main input.search")?.focus();
  else if (event.key === "?") help();
  else if (event.key === "d") nextTheme();
  else if (event.key === "r") void refresh().then(route);
  else return;
  event.preventDefault();
}

// ---- login, start ----

function drawLogin() {
  if (document.getElementById("login")) return;
  turn += 1;
  shown?.page?.close?.();
  shown = null;
  const field = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const problem = h("div");
  const enter = async (event) => {
    event.preventDefault();
    try {
      await logIn(field.value);
      await start();
    } catch (error) {
      put(problem, problemOf(error));
      field.select();
    }
  };
  put(nav);
  put(main, h("form", { id: "login", class: "card", on: { submit: enter } }, h("h1", null, "Log in"),
    h("label", { for: "token" }, "Token of this console"), field, problem, h("button", { class: "primary" }, "Log in")));
  field.focus();
}

let begun = false;

async function start() {
  await readSession();
  drawBar();
  if (session.login_required && !session.logged_in) {
    drawLogin();
    return;
  }
  if (begun) await refresh();
  else {
    begun = true;
    await begin();
  }
  drawBar();
  drawState();
  if (state.snapshot) await route();
}

askForLogin(drawLogin);
listen((name, data) => {
  if (name === "failed" && !state.snapshot) put(main, problemOf(data));
  if (name === "snapshot" && waits && data.cluster) {
    drawBar();
    void route(); // the broker is back
  }
  drawState();
  shown?.page?.event?.(name, data);
});
window.addEventListener("hashchange", route);
document.addEventListener("keydown", onKey);
setTheme(theme());
start().catch((error) => put(main, problemOf(error)));
