// One topic: tabs for its timeline, messages, partitions and config, each with an address of its own.

import { get, getAll, inCluster } from "../api.js";
import { badge, count, crumbs, h, link, put, throttle } from "../dom.js";
import { Table } from "../table.js";

const TABS = [["timeline", "Timeline"], ["messages", "Messages"], ["partitions", "Partitions"], ["config", "Config"]];

export async function show(root, place) {
  const [topic, tab = "timeline"] = place.parts;
  const body = h("div", null);
  put(root,
    crumbs(link("Topics", ["topics"])),
    h("h1", { class: "name" }, topic),
    h("nav", { class: "tabs", "aria-label": "Of this topic" }, TABS.map(([name, title]) =>
      h("a", { href: `#/topics/${encodeURIComponent(topic)}/${name}`, "aria-current": name === tab ? "page" : null }, title))),
    body);
  const all = await getAll(inCluster(place.cluster, ["topics", topic, "partitions"], { page_size: 1000 }));
  if (tab === "timeline") return (await import("./timeline.js")).show(body, { ...place, topic, partitions: all });
  if (tab === "messages") return (await import("./messages.js")).show(body, { ...place, topic, partitions: all });
  if (tab === "config") return showConfig(body, place.cluster, topic);
  return showPartitions(body, place.cluster, topic, all);
}

function showPartitions(body, cluster, topic, rows) {
  const table = new Table("Partitions", [
    { label: "Partition", cell: (row) => link(row.partition_id, ["topics", topic, "messages"], { partition: row.partition_id }) },
    { label: "Leader", kind: "number", cell: (row) => row.leader_id ?? "none" },
    { label: "Replicas in sync", cell: (row) => `${row.isr_ids?.length ?? "–"} of ${row.replica_ids?.length ?? "–"}` },
    { label: "Start", kind: "number", cell: (row) => count(row.log_start_offset) },
    { label: "LSO", kind: "number", cell: (row) => count(row.last_stable_offset) },
    { label: "HW", kind: "number", cell: (row) => count(row.high_watermark) },
    { label: "Readers", cell: (row) => (row.blocked ? badge(`${count(row.high_watermark - row.last_stable_offset)} held back`, "bad") : badge("free", "good")) },
  ], (row) => row.partition_id);
  table.set(rows);
  put(body, table.element);
  const again = throttle(async () => {
    table.set(await getAll(inCluster(cluster, ["topics", topic, "partitions"], { page_size: 1000 })));
  }, 1000);
  return { event: (name, data) => { if (name === "partitions" && (data.more || data.changed.some((each) => each.topic_name === topic))) again(); } };
}

async function showConfig(body, cluster, topic) {
  const { data } = await get(inCluster(cluster, ["topics", topic, "configs"]));
  put(body, configTable(data));
  return {};
}

/** A filter, and the configs it leaves; those that were set come first. */
export function configTable(rows) {
  const table = new Table("Config", [
    { label: "Name", kind: "code", cell: (row) => row.name },
    { label: "Value", kind: "code", cell: (row) => (row.is_sensitive ? "secret" : row.value === null ? "–" : row.value) },
    { label: "From", cell: (row) => badge(String(row.source).toLowerCase().replaceAll("_", " "), row.is_default ? "plain" : "open") },
    { label: "", cell: (row) => (row.is_read_only ? badge("read-only", "plain") : "") },
  ], (row) => row.name);
  const search = h("input", { type: "search", class: "search", placeholder: "Filter by name  /", "aria-label": "Filter config" });
  const sorted = [...rows].sort((a, b) => a.is_default - b.is_default || (a.name < b.name ? -1 : 1));
  const draw = () => table.set(sorted.filter((row) => row.name.includes(search.value.toLowerCase())));
  search.addEventListener("input", draw);
  draw();
  return h("section", null, h("div", { class: "tools" }, search), table.element);
}
