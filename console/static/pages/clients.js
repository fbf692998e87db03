// Clients: who is connected. Only brokers that answer fencepost's own request for it have this page.

import { inCluster } from "../api.js";
import { bytes, count, duration, empty, h, put, throttle } from "../dom.js";
import { PagedList } from "../table.js";
import { state } from "../live.js";

export async function show(root, place) {
  put(root, h("h1", null, "Clients"));
  if (!state.snapshot.cluster.fencepost) {
    root.append(empty("This broker does not say who is connected.", "A fencepost broker does."));
    return {};
  }
  const list = new PagedList({
    label: "Clients",
    columns: [
      { label: "Client id", cell: (row) => row.client_id || "–" },
      { label: "Software", cell: (row) => row.software || "–" },
      { label: "Address", cell: (row) => [h("code", null, row.host), h("div", { class: "quiet" }, row.listener)] },
      { label: "User", cell: (row) => (row.principal || "–").replace(/^User:/, "") },
      { label: "Connections", kind: "number", cell: (row) => count(row.connections) },
      { label: "Requests", kind: "number", cell: (row) => count(row.requests) },
      { label: "Received, sent", kind: "number", cell: (row) => [h("div", null, bytes(row.bytes_in)), h("div", null, bytes(row.bytes_out))] },
      { label: "Idle", kind: "number", cell: (row) => duration(row.idle_ms) },
    ],
    key: (row) => [row.client_id, row.software, row.host, row.listener, row.principal].join("\u0000"),
    nothing: "Nobody but this console is connected.",
    path: ({ contains }) => inCluster(place.cluster, ["clients"], { contains }),
  });
  root.append(list.element);
  await list.load();
  const timer = setInterval(() => { if (!document.hidden) void list.load(); }, 5000);
  const again = throttle(() => list.load(), 2000);
  return { event: (name) => { if (name === "snapshot") again(); }, close: () => clearInterval(timer) };
}
