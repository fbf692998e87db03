// Transactions by age, against their timeout; one transaction, and what can be done about it; hanging ones.

import { get, inCluster } from "../api.js";
import { askToEndHanging, endButtons } from "../actions.js";
import { aside, badge, count, crumbs, decision, duration, empty, facts, faint, gauge, groupLink, h, link, many, partitionLink, partitionName, problemOf, put, quiet, stateBadge, throttle, time, transactionLink } from "../dom.js";
import { session } from "../api.js";
import { recent, state } from "../live.js";
import { PagedList, Table } from "../table.js";

const SHOWN = [["open", "open ones"], ["", "all"], ["Ongoing", "Ongoing"], ["PrepareCommit", "PrepareCommit"], ["PrepareAbort", "PrepareAbort"],
  ["CompleteCommit", "CompleteCommit"], ["CompleteAbort", "CompleteAbort"], ["Empty", "Empty"]];

export async function show(root, place) {
  if (place.parts.length) return showOne(root, place);
  const which = h("select", { id: "which", "aria-label": "Which transactions" }, SHOWN.map(([value, text]) => h("option", { value }, text)));
  which.value = place.query.state ?? "open";
  const list = new PagedList({
    label: "Transactions",
    columns: [
      { label: "Transactional id", cell: (row) => transactionLink(row.transactional_id) },
      { label: "State", cell: (row) => [stateBadge(row.state), row.prepared ? [" ", badge(row.prepared.held ? "Held" : "Prepared", "warn")] : null] },
      { label: "Age, of its timeout", cell: (row) => (row.is_open ? gauge(row.age_ms, row.timeout_ms) : "–") },
      { label: "Partitions", kind: "number", cell: (row) => count(row.partitions_count ?? row.partitions?.length) },
      { label: "Holds back", kind: "number", cell: (row) => (row.blocks?.records ? many(row.blocks.records, "record") : "–") },
      { label: "Producer", kind: "number", cell: (row) => h("code", null, row.producer_epoch == null ? row.producer_id : `${row.producer_id}:${row.producer_epoch}`) },
    ],
    key: (row) => row.transactional_id,
    nothing: empty("No such transaction.", "Open ones appear here by themselves."),
    filters: which,
    path: ({ contains }) => inCluster(place.cluster, ["transactions"],
      { contains, sort: "age", open: which.value === "open" ? "true" : "", state: which.value === "open" ? "" : which.value }),
  });
  which.addEventListener("change", () => { place.go({ state: which.value === "open" ? "" : which.value || "all" }); void list.restart(); });
  if (place.query.state === "all") which.value = "";
  const hanging = h("section", { class: "card" });
  put(root, h("h1", null, "Transactions"), list.element, hanging);
  drawHanging(hanging, place.cluster);
  await list.load();
  const again = throttle(() => list.load(), 500);
  return { event: (name) => { if (name === "transactions" || name === "snapshot" || name === "blockers") again(); } };
}

function drawHanging(element, cluster) {
  const result = h("div", { role: "status" });
  const find = async () => {
    put(result, quiet("Looking at every partition …"));
    try {
      const { data } = await get(inCluster(cluster, []) + "/transactions:hanging");
      const table = new Table("Hanging transactions", [
        { label: "Partition", cell: partitionLink },
        { label: "Open from", kind: "number", cell: (row) => count(row.start_offset) },
        { label: "Producer", kind: "number", cell: (row) => h("code", null, `${row.producer_id}:${row.producer_epoch}`) },
        { label: "Last written", cell: (row) => time(row.last_timestamp_ms) },
        { label: "", cell: (row) => (session.changes_allowed ? h("button", { type: "button", class: "danger", on: { click: () => askToEndHanging(cluster, row, find) } }, "End it…") : "") },
      ], (row) => `${row.topic_name}-${row.partition_id}-${row.start_offset}`, "No transaction hangs.");
      table.set(data);
      put(result, table.element);
    } catch (error) {
      put(result, problemOf(error));
    }
  };
  put(element, h("h2", null, "Hanging transactions"),
    quiet("Open in a partition for over 15 minutes, while no coordinator knows of them: nobody will end them."),
    h("button", { type: "button", on: { click: find } }, "Find them"), result);
}

// ---- one transaction ----

async function showOne(root, place) {
  const [id] = place.parts;
  const about = h("div");
  const machine = h("div", { class: "machine" });
  const actions = h("div", { class: "actions" });
  const where = h("section");
  const waiting = h("section");
  const story = h("section");
  put(root, crumbs(link("Transactions", ["transactions"])), h("h1", { class: "name" }, id), machine, about, actions,
    h("div", { class: "columns" }, where, h("div", null, waiting, story)));
  const load = async () => {
    const row = await get(inCluster(place.cluster, ["transactions", id]));
    drawMachine(machine, row);
    put(about, facts([
      ["State", [stateBadge(row.state), row.prepared ? [" ", badge(row.prepared.held ? "Held" : "Prepared", "warn")] : null]],
      ["Age, of its timeout", row.is_open ? gauge(row.age_ms, row.timeout_ms) : "not open"],
      row.is_open ? ["Began", time(row.started_ms)] : ["Timeout", row.timeout_ms > 0 ? duration(row.timeout_ms) : "–"],
      ["Producer", h("code", null, `${row.producer_id}, epoch ${row.producer_epoch}`)],
      ["Coordinator", `broker ${row.coordinator_id}`],
      row.transaction_id ? [row.is_open ? "Transaction" : "Last transaction", h("code", null, row.transaction_id)] : null,
      row.prepared ? ["Prepared for", decision(row.prepared)] : null,
      row.owner ? ["Owner", [h("strong", null, row.owner.client_id || "a client without an id"), ` at ${row.owner.host}`, row.owner.software ? [", ", row.owner.software] : "",
        row.owner.principal ? [", ", row.owner.principal] : "", " ", badge(row.owner.connected ? "connected" : "gone", row.owner.connected ? "good" : "bad")]] : null,
    ]));
    put(actions, row.is_open ? endButtons(place.cluster, row, () => void load().catch(() => {})) : null);
    const blockers = (state.snapshot?.blockers ?? []).filter((each) => each.transactional_id === id || each.producer_id === row.producer_id);
    const stops = new Map(blockers.map((each) => [partitionName(each), each]));
    put(where, h("h2", null, "Partitions"), row.partitions.length ? h("ul", { class: "plain-list" }, row.partitions.map((each) => {
      const stop = stops.get(partitionName(each));
      return h("li", null, partitionLink(each), aside("timeline", ["topics", each.topic_name, "timeline"], { partition: each.partition_id }),
        stop ? [" ", badge(`${count(stop.waiting)} held back from ${count(stop.last_stable_offset)}`, "warn")] : null);
    })) : empty("It has no partitions now."), row.partitions_count > row.partitions.length ? quiet(`and ${count(row.partitions_count - row.partitions.length)} more`) : null);
    const groups = new Map(blockers.flatMap((each) => each.groups ?? []).map((each) => [each.consumer_group_id, each]));
    put(waiting, h("h2", null, "Groups that read there"), groups.size ? h("ul", { class: "plain-list" }, [...groups.values()].map((each) =>
      h("li", null, groupLink(each.consumer_group_id), " ",
        each.would_wait ? badge("waits if it reads committed", "warn") : faint(`${count(each.lag_to_stable)} records to read before it waits`))),
      blockers.some((each) => each.groups_count > each.groups.length) ? h("li", { class: "quiet" }, "and others") : null) : empty("No group waits behind it."));
    drawStory();
  };
  const drawStory = () => {
    const rows = recent().filter((each) => each.transactional_id === id).slice(0, 12);
    put(story, h("h2", null, "Lately"), rows.length ? h("ol", { class: "story" }, rows.map((each) => h("li", null, h("span", null, each.type === "state" ? "now" : each.type.replace("txn.", "").replaceAll("_", " ")),
      faint(each.state), h("time", { class: "quiet" }, time(each.at_ms).slice(11, 23))))) : empty("Nothing while this console was looked at."));
  };
  await load();
  const again = throttle(() => void load().catch(() => {}), 300);
  return { event: (name, data) => {
    const mine = name === "transactions" && ([...data.changed.map((each) => each.transactional_id), ...data.removed].includes(id) || data.more);
    if (mine || name === "snapshot" || name === "blockers" || (name === "txn" && data.transactional_id === id)) again();
  } };
}

const WAYS = [["Empty"], ["Ongoing"], ["PrepareCommit", "PrepareAbort"], ["CompleteCommit", "CompleteAbort"]];

/** The states of a transactional id, the present one lit. */
function drawMachine(element, row) {
  put(element, h("ol", { "aria-label": "States" }, WAYS.map((some) => h("li", null, some.map((each) =>
    h("span", { class: `step ${each === row.state ? "now" : ""}`, "aria-current": each === row.state ? "step" : null }, each))))));
}
