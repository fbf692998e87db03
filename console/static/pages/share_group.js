// One share group: its members, and where it stands in each partition; what of its window is pending, and in which transaction.

import { get, getAll, inCluster } from "../api.js";
import { badge, count, crumbs, facts, h, link, listed, partitionLink, partitionName, put, quiet, stateBadge, throttle, transactionLink } from "../dom.js";
import { Table } from "../table.js";
import { memberCards } from "./members.js";

export async function showShareGroup(root, place) {
  const [group] = place.parts;
  const path = (...more) => inCluster(place.cluster, ["share-groups", group, ...more]);
  const about = h("div");
  const members = h("div", { class: "cards" });
  const partitions = new Table("Partitions", [
    { label: "Partition", cell: partitionLink },
    { label: "Start", kind: "number", cell: (row) => count(row.start_offset) },
    { label: "Lag", kind: "number", cell: (row) => count(row.lag) },
    { label: "Window", kind: "number", cell: (row) => (row.window == null ? "–" : `${count(row.window)} of ${count(row.window_limit)}`) },
    { label: "Pending", kind: "number", cell: (row) => count(row.pending) },
    { label: "In transactions", cell: holders },
    { label: "", cell: (row) => (row.held_by_transaction ? badge("window full", "warn") : "") },
  ], partitionName, "This group has no offsets: nobody has read with it.");
  put(root, crumbs(link("Groups", ["groups"])), h("h1", { class: "name" }, group), about,
    h("h2", null, "Partitions"),
    quiet("All before the start is done. The window is what was given out from there on; while it is full, nothing new is."),
    partitions.element, h("h2", null, "Members"), members);
  const load = async () => {
    const [one, rows, consumers] = await Promise.all([get(path()), getAll(`${path("partitions")}?page_size=1000`), getAll(path("consumers"))]);
    put(about, facts([["Kind", "share group"], ["State", stateBadge(one.state || "unknown")], ["Assignor", one.assignor || "–"],
      ["Members", count(consumers.length)], ["Lag", count(rows.reduce((sum, row) => sum + (row.lag ?? 0), 0))]]));
    partitions.set(rows);
    put(members, memberCards(consumers));
  };
  await load();
  const again = throttle(() => void load().catch(() => {}), 1500);
  return { event: (name) => { if (["groups", "transactions", "snapshot"].includes(name)) again(); } };
}

/** The transactions in which records are pending, each once. */
function holders(row) {
  const found = new Map(row.pending_ranges.map((each) => [each.producer_id, each.transactional_id]));
  if (!found.size) return "–";
  return listed([...found], ([producer, id]) => (id == null ? `producer ${producer}` : transactionLink(id)));
}
