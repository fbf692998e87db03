// What the cluster is now: a snapshot, kept up to date by events. Pages subscribe to the events they show.
//
// The rule: all tabs share one stream through a shared worker; a hidden tab listens to nothing and reads a new snapshot
// when it is shown again. Events that arrive while a snapshot is read are applied if they are newer than it.

import { get } from "./api.js";
import { Stream } from "./stream.js";

export const state = { snapshot: null, open: false, receivedAt: 0 };

const listeners = new Set();
let waiting = null; // events that arrive while a snapshot is read
let say = () => {};

/** Call with (event name, data) for each event. Returns a function that ends it. */
export function listen(call) {
  listeners.add(call);
  return () => listeners.delete(call);
}

function tell(name, data) {
  for (const each of [...listeners]) each(name, data);
}

const sequenceOf = (id) => Number(String(id ?? "").split("-").pop()) || 0;

function apply({ name, id, data }) {
  const now = state.snapshot;
  if (name === "stream") {
    const opened = data.open && !state.open;
    state.open = data.open;
    tell(name, data);
    if (opened && waiting === null) void refresh();
    return;
  }
  if (waiting !== null && name !== "snapshot") waiting.push({ name, id, data });
  if (name === "snapshot") adopt(data);
  else if (now) {
    if (name === "counts") now.counts = dated(data, data.oldest_open_ms);
    else if (name === "blockers") Object.assign(now, { blockers: data.rows.map((each) => dated(each)), blockers_complete: data.complete });
    else if (name === "alarms") now.alarms = data.rows.map((each) => dated(each));
    else if (name === "missing") now.missing = data.rows;
    else if (name === "txn") remember([data]);
    else if (name === "problem") Object.assign(now, { reachable: false, problem: data });
    else if (name === "recovered") Object.assign(now, { reachable: true, problem: null });
    else if (name === "transactions") {
      now.open_transactions = changed(now.open_transactions, data);
      if (!now.events_from) remember(data.changed.map(lately)); // a server that does not tell the story itself
    }
  }
  tell(name, data);
}

function changed(open, { changed: some, removed }) {
  const gone = new Set([...removed, ...some.map((each) => each.transactional_id)]);
  const kept = open.filter((each) => !gone.has(each.transactional_id));
  return [...kept, ...some.filter((each) => each.is_open)].slice(0, 100);
}

/** A line of the story, from the state that a transaction has now. */
const lately = (row) => ({ type: "state", transactional_id: row.transactional_id, state: row.state, partitions: row.partitions ?? [], at_ms: Date.now() });

const story = [];

function remember(lines) {
  story.unshift(...lines);
  story.length = Math.min(story.length, 50);
}

/** What happened lately, the newest first. */
export const recent = () => story;

/** Ages are those of the moment of arrival: note when each was 0, as what is drawn later needs it. */
function dated(row, age = row.age_ms) {
  if (age != null) row.since = performance.now() - age;
  return row;
}

function adopt(snapshot) {
  state.snapshot = snapshot;
  for (const each of [...snapshot.blockers, ...snapshot.open_transactions, ...(snapshot.alarms ?? [])]) dated(each);
  if (snapshot.counts) dated(snapshot.counts, snapshot.counts.oldest_open_ms);
  if (snapshot.recent) story.splice(0, story.length, ...snapshot.recent);
  state.receivedAt = performance.now();
}

/** Read a snapshot now. */
export async function refresh() {
  if (waiting !== null) return;
  waiting = [];
  try {
    const snapshot = await get("/v1/snapshot");
    adopt(snapshot);
    const later = waiting.filter((each) => sequenceOf(each.id) > snapshot.sequence);
    waiting = null;
    tell("snapshot", snapshot);
    later.forEach(apply);
  } catch (error) {
    tell("failed", error);
  } finally {
    waiting = null;
  }
}

/** Begin to listen. */
export function begin() {
  if (typeof SharedWorker === "function") {
    const { port } = new SharedWorker("/static/worker.js", { type: "module", name: "fencepost" });
    port.onmessage = ({ data }) => apply(data);
    port.start();
    say = (word) => port.postMessage(word);
  } else {
    const stream = new Stream(apply);
    say = (word) => stream.want(word === "visible");
  }
  const report = () => say(document.hidden ? "hidden" : "visible");
  document.addEventListener("visibilitychange", () => {
    report();
    if (document.hidden) state.open = false;
    else void refresh();
  });
  window.addEventListener("pagehide", () => say("bye"));
  window.addEventListener("pageshow", (event) => { if (event.persisted) report(); });
  setInterval(report, 25_000);
  report();
  return refresh();
}
