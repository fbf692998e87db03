// Elements, and values as text. The rule: content becomes text nodes, never markup, so nothing in it can run; what is
// not printable is shown as �; a text that runs from right to left is isolated, so that what is beside it stays there.

import { turnsAround, visible, visibleLines } from "./visible.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element. props: attributes; `on` has listeners by event name; null and false leave an attribute out. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same, in SVG. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

const SHOWN = new Set(["title", "aria-label", "placeholder", "alt"]); // attributes that people read

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value == null || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else if (name === "href" && !/^[#/]/.test(value)) continue; // links stay within this site
    else element.setAttribute(name, value === true ? "" : SHOWN.has(name) ? visible(String(value)) : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child == null || child === false) continue;
    element.append(child instanceof Node ? child : textOf(String(child), element));
  }
  return element;
}

function textOf(given, element) {
  const text = element.localName === "pre" ? visibleLines(given) : visible(given);
  const node = document.createTextNode(text);
  if (!turnsAround(text) || element.namespaceURI === SVG) return node;
  const isolated = document.createElement("bdi");
  isolated.append(node);
  return isolated;
}

/** Replace the content of an element. */
export function put(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

// ---- values as text ----

const WHOLE = new Intl.NumberFormat("en-US");

export const count = (number) => (number == null ? "–" : WHOLE.format(number));

export function many(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}

export function bytes(number) {
  if (number == null) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (number < 1024) return `${number < 10 && unit !== "B" ? number.toFixed(1) : Math.round(number)} ${unit}`;
    number /= 1024;
  }
  return `${number.toFixed(1)} TiB`;
}

/** Which decision a prepared transaction waits for. */
export function decision(prepared) {
  if (!prepared.held) return [`batch ${prepared.batch} of sink `, prepared.sink];
  const [kind, database, id] = prepared.sink.split(":");
  if (kind === "sql" && database && id) return [`decision ${prepared.batch} of database `, database, "; to ask that: fencepost txn resolve --db URL"];
  return [`decision ${prepared.batch} under the ledger key `, prepared.sink, "; nothing else ends it"];
}

export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 0) return "none";
  const seconds = ms / 1000;
  if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min${seconds % 60 < 1 ? "" : ` ${Math.floor(seconds % 60)} s`}`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} days`;
}

export function time(ms) {
  if (ms == null || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (number, digits = 2) => String(number).padStart(digits, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`
    + `:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
}

/** The time of day; the date before it if that is not today. */
export function shortTime(ms) {
  const text = time(ms);
  const [date, clock] = text.split(" ");
  return h("span", { title: text }, clock === undefined || date !== time(Date.now()).slice(0, 10) ? text : clock);
}

// ---- ages that go on by themselves ----

/** An age that grows every second. since: when it was 0, if it was read a while ago. */
export function age(ms, since) {
  if (ms == null) return h("span", null, "–");
  const began = since ?? performance.now() - ms;
  return h("span", { class: "age", "data-since": began }, duration(performance.now() - began));
}

/** Age against timeout: a bar that turns red at 80 %. */
export function gauge(ageMs, timeoutMs, since) {
  const known = ageMs != null && timeoutMs > 0;
  const bar = h("span", { class: "gauge-fill" });
  const element = h("span", { class: "gauge", "data-timeout": known ? timeoutMs : null },
    h("span", { class: "gauge-track", "aria-hidden": "true" }, bar),
    age(ageMs, since), known ? faint(` of ${duration(timeoutMs)}`) : null);
  tickGauge(element);
  return element;
}

function tickGauge(element) {
  const timeout = Number(element.dataset.timeout);
  const since = element.querySelector("[data-since]");
  if (!timeout || !since) return;
  const share = (performance.now() - Number(since.dataset.since)) / timeout;
  element.querySelector(".gauge-fill").style.width = `${Math.min(100, Math.max(2, share * 100))}%`;
  element.classList.toggle("late", share >= 0.8);
}

setInterval(() => {
  if (document.hidden) return;
  for (const each of document.querySelectorAll("[data-since]")) {
    each.textContent = duration(performance.now() - Number(each.dataset.since));
  }
  document.querySelectorAll(".gauge[data-timeout]").forEach(tickGauge);
}, 1000);

// ---- small parts ----

/** A link to a page. parts: of the path, each encoded. */
export function to(parts, query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value != null && value !== "");
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${parts.map((each) => encodeURIComponent(each)).join("/")}${search}`;
}

const LONG = 120; // characters of a name: one of 32,767 would fill many screens

/** A name that may be long: what is shown of it is bounded by the style, all of it is there to be copied. */
export const isLong = (text) => String(text).length > LONG;

export const shortened = (text, most = 60) => (text.length > most ? `${text.slice(0, most)}…` : text);

export const link = (text, parts, query) => h("a", { href: to(parts, query), class: isLong(text) ? "long" : null }, text);

/** A link to more about what stands before it. */
export const aside = (text, parts, query) => h("a", { href: to(parts, query), class: "aside" }, text);

export const transactionLink = (id) => link(id, ["transactions", id]);

export const groupLink = (id, share) => link(id, ["groups", id], share ? { share: "yes" } : null);

export const partitionName = (each) => `${each.topic_name}-${each.partition_id}`;

export const partitionLink = (each) =>
  link(partitionName(each), ["topics", each.topic_name, "messages"], { partition: each.partition_id });

export const badge = (text, kind) => h("span", { class: `badge ${kind}` }, text);

export function stateBadge(state) {
  const kind = state === "Ongoing" ? "open" : state.startsWith("Prepare") ? "warn"
    : state === "CompleteCommit" || state === "Stable" ? "good" : state === "CompleteAbort" || state === "Dead" ? "bad" : "plain";
  return badge(state, kind);
}

export function problemOf(error) {
  return h("div", { class: "problem", role: "alert" }, h("strong", null, error.message ?? String(error)),
    error.hint ? h("p", null, error.hint) : null);
}

export const empty = (text, hint) => h("div", { class: "empty" }, h("p", null, text), hint ? quiet(hint) : null);

/** A remark beside what matters. */
export const quiet = (...content) => h("p", { class: "quiet" }, content);

/** The same, within a line. */
export const faint = (...content) => h("span", { class: "quiet" }, content);

/** What `of` makes of each, with commas between. */
export const listed = (all, of) => all.map((each, index) => [index ? ", " : "", of(each)]);

/** The way back to the list that a page belongs to. */
export const crumbs = (list) => h("p", { class: "crumbs" }, list, " / ");

/** Facts as a list of terms. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));
}

export function notice(text, kind = "good") {
  const element = h("div", { class: `notice ${kind}` }, text);
  document.getElementById("notices").append(element);
  setTimeout(() => element.remove(), 8000);
}

/** Run a call at most every `ms`, and once after the last request for it. */
export function throttle(call, ms) {
  let timer = null;
  let last = -ms;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(() => { timer = null; last = performance.now(); call(); }, Math.max(0, last + ms - performance.now()));
  };
}
