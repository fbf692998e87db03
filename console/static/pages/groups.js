// Groups: how far behind each is, up to the last stable offset and up to the high watermark; and one group.

import { get, getAll, inCluster } from "../api.js";
import { badge, count, crumbs, empty, facts, groupLink, h, link, partitionLink, partitionName, put, quiet, stateBadge, throttle } from "../dom.js";
import { state } from "../live.js";
import { PagedList, Table } from "../table.js";
import { memberCards } from "./members.js";
import { heldGroup } from "./overview.js";
import { showShareGroup } from "./share_group.js";

export async function show(root, place) {
  if (place.parts.length) return (place.query.share ? showShareGroup : showOne)(root, place);
  const list = new PagedList({
    label: "Groups",
    columns: [
      { label: "Group", cell: (row) => groupLink(row.consumer_group_id, row.group_type === "share") },
      { label: "State", cell: (row) => stateBadge(row.state || "unknown") },
      { label: "Protocol", cell: (row) => [row.group_type, row.partition_assignor].filter(Boolean).join(", ") || row.protocol_type || "–" },
      { label: "Members", kind: "number", cell: (row) => count(row.members) },
      { label: "Lag to LSO", kind: "number", cell: (row) => count(row.lag?.to_stable) },
      { label: "Lag to HW", kind: "number", cell: (row) => count(row.lag?.to_high_watermark) },
      { label: "Held back", cell: (row) => (row.offsets_held ? badge("its offsets", "bad") : row.lag?.blocked_partitions ? badge(`${row.lag.blocked_partitions} of ${row.lag.partitions} partitions`, "warn") : "–") },
    ],
    key: (row) => row.consumer_group_id,
    nothing: "There are no groups, or none with this name.",
    path: ({ contains }) => inCluster(place.cluster, ["consumer-groups"], { contains }),
  });
  put(root, h("h1", null, "Groups"),
    quiet("Readers with read_committed get records up to the last stable offset (LSO), others up to the high watermark (HW)."), list.element);
  await list.load();
  const again = throttle(() => list.load(), 1500);
  return { event: (name) => { if (name === "groups" || name === "snapshot") again(); } };
}

async function showOne(root, place) {
  const [group] = place.parts;
  const path = (...more) => inCluster(place.cluster, ["consumer-groups", group, ...more]);
  const about = h("div");
  const lags = new Table("Lags", [
    { label: "Partition", cell: partitionLink },
    { label: "Committed", kind: "number", cell: (row) => count(row.current_offset) },
    { label: "LSO", kind: "number", cell: (row) => count(row.last_stable_offset) },
    { label: "HW", kind: "number", cell: (row) => count(row.log_end_offset) },
    { label: "Lag to LSO", kind: "number", cell: (row) => count(row.lag_to_stable) },
    { label: "Lag to HW", kind: "number", cell: (row) => count(row.lag) },
    { label: "Reader", cell: (row) => row.client_id || "–" },
    { label: "", cell: (row) => (row.blocked ? [badge("held back", "warn"), " ", link("by what", [""])] : "") },
  ], partitionName, "This group has committed no offsets.");
  const members = h("div", { class: "cards" });
  const held = h("div");
  const drawHeld = () => put(held, (state.snapshot?.alarms ?? []).filter((each) => each.consumer_group_id === group).map((each) => heldGroup(place.cluster, each)));
  put(root, crumbs(link("Groups", ["groups"])), h("h1", { class: "name" }, group), about, held,
    h("h2", null, "Partitions"), lags.element, h("h2", null, "Members"), members);
  const load = async () => {
    const [one, summary, rows, consumers] = await Promise.all([get(path()), get(path("lag-summary")), getAll(`${path("lags")}?page_size=1000`), getAll(path("consumers"))]);
    put(about, facts([["State", stateBadge(one.state || "unknown")], ["Assignor", one.partition_assignor || "–"], ["Members", count(consumers.length)],
      ["Lag to LSO", count(summary.total_lag_to_stable)], ["Lag to HW", count(summary.total_lag)]]));
    lags.set(rows);
    put(members, memberCards(consumers));
  };
  drawHeld();
  await load().catch((error) => { // a group may have no offsets yet but those that are held
    if (!held.childElementCount) throw error;
    put(about, empty("This group has neither members nor offsets, but those that a transaction holds."));
  });
  const again = throttle(() => void load().catch(() => {}), 1500);
  return { event: (name, data) => { if (name === "alarms" || name === "snapshot") drawHeld(); if (name === "snapshot" || (name === "groups" && (data.more || data.changed.some((each) => each.consumer_group_id === group)))) again(); } };
}
