// Topics, and one topic: its timeline, messages, partitions and config.

import { inCluster } from "../api.js";
import { badge, count, h, link, put, throttle } from "../dom.js";
import { PagedList } from "../table.js";

export async function show(root, place) {
  if (place.parts.length) return (await import("./topic.js")).show(root, place);
  const internal = h("input", { type: "checkbox", id: "internal" });
  const list = new PagedList({
    label: "Topics",
    columns: [
      { label: "Topic", cell: (row) => [link(row.topic_name, ["topics", row.topic_name]), row.is_internal ? [" ", badge("internal", "plain")] : null] },
      { label: "Partitions", kind: "number", cell: (row) => count(row.partitions_count) },
      { label: "Records", kind: "number", cell: (row) => count(row.offsets?.retained) },
      { label: "Held back", kind: "number", cell: (row) => (row.offsets?.held ? badge(count(row.offsets.held), "warn") : "–") },
      { label: "Blocked partitions", kind: "number", cell: (row) => (row.offsets?.blocked_partitions ? badge(count(row.offsets.blocked_partitions), "bad") : "–") },
      { label: "Replicas", kind: "number", cell: (row) => count(row.replication_factor) },
    ],
    key: (row) => row.topic_name,
    nothing: "There are no topics, or none with this name.",
    filters: h("label", { class: "check" }, internal, " internal topics"),
    path: ({ contains }) => inCluster(place.cluster, ["topics"], { contains, internal: internal.checked ? "true" : "" }),
  });
  internal.addEventListener("change", () => list.restart());
  put(root, h("h1", null, "Topics"), list.element);
  await list.load();
  const again = throttle(() => list.load(), 1500);
  return { event: (name) => { if (name === "partitions" || name === "counts" || name === "snapshot") again(); } };
}
