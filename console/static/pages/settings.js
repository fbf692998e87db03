// Settings: the config of each broker, and what this console is.

import { get, inCluster, leave, session } from "../api.js";
import { facts, h, problemOf, put } from "../dom.js";
import { state } from "../live.js";
import { configTable } from "./topic.js";

export async function show(root, place) {
  const { cluster } = state.snapshot;
  const broker = h("select", { id: "broker" }, cluster.brokers.map((each) => h("option", { value: each.broker_id }, `${each.broker_id}, ${each.host}:${each.port}`)));
  if (place.query.broker) broker.value = place.query.broker;
  const body = h("div");
  put(root, h("h1", null, "Settings"),
    h("section", { class: "card" }, h("h2", null, "This console"), facts([
      ["Broker", h("code", null, session.bootstrap ?? "")],
      ["Version", session.version ?? ""],
      ["Changes", session.changes_allowed ? "allowed" : session.changes_hint ?? "not allowed"],
      state.snapshot.events_from ? ["Events come from", state.snapshot.events_from === "log" ? "the transaction log" : "questions to the coordinators, again and again"] : null,
      state.snapshot.missing?.length ? ["Not all is shown", state.snapshot.missing.join("; ")] : null,
    ]), session.login_required ? h("button", { type: "button", on: { click: async () => { await leave(); location.reload(); } } }, "Log out") : null),
    h("h2", null, "Broker settings"), h("div", { class: "tools" }, h("div", { class: "field" }, h("label", { for: "broker" }, "Broker"), broker)), body);
  const load = async () => {
    try {
      const { data } = await get(inCluster(place.cluster, ["brokers", broker.value, "configs"]));
      put(body, configTable(data));
    } catch (error) {
      put(body, problemOf(error));
    }
  };
  broker.addEventListener("change", () => { place.go({ broker: broker.value }); void load(); });
  await load();
  return {};
}
