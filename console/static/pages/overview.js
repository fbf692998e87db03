// The overview: what holds readers up, first of all; then the counts, what happened lately, and the brokers.

import { endButtons } from "../actions.js";
import { age, aside, badge, bytes, count, decision, duration, empty, faint, gauge, groupLink, h, listed, many, partitionLink, partitionName, put, quiet, throttle, time, transactionLink } from "../dom.js";
import { recent, state } from "../live.js";

export async function show(root, { cluster }) {
  const stuck = h("section", { "aria-labelledby": "stuck" });
  const missing = h("p", { class: "quiet", id: "missing" });
  const alarms = h("section", { id: "alarms" });
  const tiles = h("div", { class: "tiles" });
  const story = h("section", { class: "card", "aria-labelledby": "story" });
  const brokers = h("section", { class: "card", "aria-labelledby": "brokers" });
  put(root, h("h1", null, "Overview"), missing, alarms, stuck, tiles, h("div", { class: "columns" }, story, brokers));
  const draw = throttle(() => {
    const now = state.snapshot;
    missing.hidden = !now.missing?.length;
    put(missing, now.missing?.length ? `Not all is shown: ${now.missing.join("; ")}.` : null);
    drawAlarms(alarms, cluster, now.alarms ?? []);
    drawStuck(stuck, cluster, now);
    drawTiles(tiles, now.counts);
    drawStory(story);
    drawBrokers(brokers, now.cluster);
  }, 100);
  draw();
  return { event: (name) => { if (state.snapshot.counts && name !== "partitions" && name !== "groups" && name !== "stream") draw(); } };
}

// ---- what stops somebody though no partition is blocked ----

function drawAlarms(element, cluster, rows) {
  const text = JSON.stringify(rows, (name, value) => (["age_ms", "since", "usable_bytes"].includes(name) ? undefined : value));
  if (element.dataset.drawn === text) return;
  element.dataset.drawn = text;
  put(element, h("div", { class: "cards" }, rows.map((each) => (each.kind === "low_disk" ? lowDisk(each) : each.kind === "without_leader" ? withoutLeader(each) : heldGroup(cluster, each)))));
}

const withoutLeader = (row) => h("article", { class: "card stuck" }, h("h3", null, many(row.partitions_count, "partition"), " without a leader"),
  h("p", { class: "lead" }, "Nobody can write there or read. The broker is down, or the log is offline: the broker's own log says why."), places(row));

const places = (row) => h("ul", { class: "places" }, row.partitions.map((each) => h("li", null, partitionLink(each))),
  row.partitions_count > row.partitions.length ? h("li", { class: "quiet" }, `and ${many(row.partitions_count - row.partitions.length, "partition")} more`) : null);

const lowDisk = (row) => h("article", { class: "card stuck" }, h("h3", null, "The disk of broker ", row.broker_id, " is nearly full"),
  h("p", { class: "lead" }, h("code", null, row.log_dir), `: ${bytes(row.usable_bytes)} are free.`,
    row.floor_bytes == null ? null : ` ${bytes(row.floor_bytes)} stay free (storage.min.free.bytes): produce requests are refused until there is room.`));

const preparedFor = (row) => (row.prepared ? h("p", null, row.prepared.held ? "It is held for " : "It is prepared as ", decision(row.prepared), ".") : null);

/** A transaction that a group waits for: it holds offsets, or has filled the window of a share group. */
export const heldGroup = (cluster, row) => h("article", { class: "card stuck" },
  h("header", null, h("h3", null, "Group ", groupLink(row.share_group_id ?? row.consumer_group_id, row.share_group_id), row.share_group_id ? " gets nothing new" : " cannot begin"),
    badge(row.hangs ? "hanging" : row.state ?? "unknown", row.hangs ? "bad" : row.prepared ? "warn" : "open"), h("span", { class: "spring" }), gauge(row.age_ms, row.timeout_ms, row.since)),
  h("p", { class: "lead" }, row.share_group_id ? "Its window is full, and its first records are pending in " : "Its offsets are held by ", row.transactional_id ? ["transaction ", transactionLink(row.transactional_id)] : "a transaction without a known id",
    ` of producer ${row.producer_id}${row.producer_epoch == null ? "" : ` epoch ${row.producer_epoch}`}: `, row.share_group_id ? "workers wait for the end of it." : "a member that starts waits for the end of it."),
  preparedFor(row),
  places(row),
  row.hangs ? null : endButtons(cluster, row));

// ---- what holds readers up ----

function drawStuck(element, cluster, now) {
  const rows = now.blockers;
  const text = JSON.stringify([rows, now.missing, now.alarms?.map((each) => each.kind)], (name, value) => (["age_ms", "since", "timeout_share", "sentence"].includes(name) ? undefined : value));
  if (element.dataset.drawn === text) return;
  element.dataset.drawn = text;
  const cards = [...grouped(rows).values()].map((some) => stuckCard(cluster, some));
  put(element, h("h2", { id: "stuck" }, "What holds readers up"),
    cards.length ? h("div", { class: "cards" }, cards)
      : h("div", { class: "card calm" }, h("span", { class: "big-sign", "aria-hidden": "true" }, "✓"),
        h("div", null, h("strong", null, "Nothing. "), now.missing?.length ? "In every partition that is shown" : "In every partition", (now.alarms ?? []).some((each) => each.kind === "without_leader") ? " with a leader" : "", ", read_committed readers can read up to the end."),
      ),
    now.blockers_complete === false ? quiet("There are more blocked partitions than are shown here.") : null);
}

/** The rows of each transaction: one transaction may hold several partitions. */
function grouped(rows) {
  const found = new Map();
  for (const row of rows) {
    const key = `${row.producer_id}:${row.producer_epoch}:${row.hangs}:${row.hangs ? partitionName(row) : ""}`;
    found.set(key, [...(found.get(key) ?? []), row]);
  }
  return found;
}

function stuckCard(cluster, rows) {
  const [first] = rows;
  const waiting = rows.reduce((sum, row) => sum + row.waiting, 0);
  const groups = new Map();
  for (const each of rows.flatMap((row) => row.groups ?? [])) { // one that has reached it in one partition waits, wherever else it is
    if (!groups.get(each.consumer_group_id)?.would_wait) groups.set(each.consumer_group_id, each);
  }
  const name = first.transactional_id ? transactionLink(first.transactional_id) : h("code", null, `producer ${first.producer_id} epoch ${first.producer_epoch}`);
  return h("article", { class: "card stuck" },
    h("header", null,
      h("h3", null, name),
      first.hangs ? badge("hanging", "bad") : badge(first.prepared ? (first.prepared.held ? "Held" : "Prepared") : first.state ?? "unknown", first.prepared ? "warn" : "open"),
      h("span", { class: "spring" }), gauge(first.age_ms, first.timeout_ms, first.since)),
    h("p", { class: "lead" }, h("strong", null, many(waiting, "record")), ` in ${many(rows.length, "partition")} cannot be read by read_committed readers`,
      first.hangs ? ", and no coordinator will end this transaction." : "."),
    preparedFor(first),
    h("ul", { class: "places" }, rows.slice(0, 12).map((row) => h("li", null, partitionLink(row),
      faint(` stops at ${count(row.last_stable_offset)} of ${count(row.high_watermark)}`),
      aside("timeline", ["topics", row.topic_name, "timeline"], { partition: row.partition_id }))),
    rows.length > 12 ? h("li", { class: "quiet" }, `and ${many(rows.length - 12, "partition")} more`) : null),
    groups.size ? h("p", null, faint("Groups there: "), listed([...groups.values()].slice(0, 12), (each) =>
      [groupLink(each.consumer_group_id), each.would_wait ? " (waits here if it reads committed)" : ""]),
      groups.size > 12 || rows.some((row) => row.groups_count > row.groups.length) ? faint(" and more") : null) : null,
    endButtons(cluster, first));
}

// ---- counts, story, brokers ----

function drawTiles(element, counts) {
  const tile = (label, value, where, kind = "") => h("a", { class: `tile ${kind}`, href: where }, h("span", { class: "tile-value" }, value), h("span", { class: "tile-label" }, label));
  put(element,
    tile("topics", count(counts.topics), "#/topics"),
    tile("records kept", count(counts.retained_records), "#/topics"),
    tile("records held back", count(counts.held_records), "#/topics", counts.held_records ? "warn" : ""),
    tile("groups", count(counts.groups), "#/groups"),
    tile("open transactions", count(counts.open_transactions), "#/transactions", counts.open_transactions ? "open" : ""),
    h("a", { class: "tile", href: "#/transactions" }, h("span", { class: "tile-value" }, counts.oldest_open_ms == null ? "–" : age(counts.oldest_open_ms, counts.since)),
      h("span", { class: "tile-label" }, "oldest open")));
}

const SIGNS = {
  "txn.begin": ["▸", "began", "open"], "txn.partition_added": ["+", "writes to", "open"], "txn.prepare_commit": ["…", "is being committed", "warn"],
  "txn.prepare_abort": ["…", "is being aborted", "warn"], "txn.commit": ["✓", "committed", "good"], "txn.abort": ["✕", "aborted", "bad"],
  "txn.fence": ["⊘", "fenced its producer", "warn"], "txn.expire": ["◌", "was forgotten", "plain"],
};

const STATE_SIGNS = {
  Ongoing: ["▸", "is open", "open"], PrepareCommit: ["…", "is being committed", "warn"], PrepareAbort: ["…", "is being aborted", "warn"],
  CompleteCommit: ["✓", "committed", "good"], CompleteAbort: ["✕", "aborted", "bad"],
};

function drawStory(element) {
  const rows = recent().slice(0, 12);
  put(element, h("h2", { id: "story" }, "Lately"),
    rows.length ? h("ol", { class: "story" }, rows.map((each) => {
      const [sign, verb, kind] = SIGNS[each.type] ?? STATE_SIGNS[each.state] ?? ["·", `is ${each.state}`, "plain"];
      const where = each.added ?? [];
      return h("li", null, h("span", { class: `sign ${kind}`, "aria-hidden": "true" }, sign), h("span", null, transactionLink(each.transactional_id), ` ${verb} `, listed(where, partitionLink)),
        h("time", { class: "quiet" }, time(each.at_ms).slice(11, 19)));
    })) : empty("No transaction has begun or ended while this console was looked at."));
}

function drawBrokers(element, cluster) {
  put(element, h("h2", { id: "brokers" }, "Brokers"),
    h("ul", { class: "plain-list" }, cluster.brokers.map((each) => h("li", null, h("strong", null, `${each.broker_id} `), h("code", null, `${each.host}:${each.port}`),
      each.broker_id === cluster.controller_id ? [" ", badge("controller", "plain")] : null))),
    quiet("Cluster ", h("code", null, cluster.cluster_id ?? "without an id"), cluster.fencepost_version ? `, fencepost ${cluster.fencepost_version}` : ""));
}
