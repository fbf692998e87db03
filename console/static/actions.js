// Dialogs, and the changes that a person can make: ending a transaction. The rule: nothing changes without a question
// that names what is ended; a prepared transaction asks a second time and names its sink and batch.

import { inCluster, post, session } from "./api.js";
import { duration, h, many, notice, partitionName, problemOf, put, quiet, shortened } from "./dom.js";

/** Show a dialog. content: its children; buttons: [label, kind, call]. A call that throws shows its error. */
export function dialog(title, content, buttons) {
  const problem = h("div");
  const element = h("dialog", { "aria-labelledby": "dialog-title" });
  const close = () => element.close();
  const bar = h("div", { class: "buttons" }, buttons.map(([label, kind, call]) => h("button", {
    type: "button", class: kind, on: { click: async (event) => {
      const button = event.currentTarget;
      button.disabled = true;
      try {
        if ((await call?.()) !== false) close();
      } catch (error) {
        put(problem, problemOf(error));
      } finally {
        button.disabled = false;
      }
    } },
  }, label)));
  put(element, h("h2", { id: "dialog-title" }, title), content, problem, bar);
  element.addEventListener("close", () => element.remove());
  document.body.append(element);
  element.showModal();
  return element;
}

/** The buttons that end a transaction, or why there are none. row: a transaction, or a blocker. after(): when it has ended. */
export function endButtons(cluster, row, after) {
  if (!session.changes_allowed) {
    return quiet("This console may not change anything", session.changes_hint ? `: ${session.changes_hint}` : "", ".");
  }
  const id = row.transactional_id;
  if (row.hangs) {
    return h("button", { type: "button", class: "danger", on: { click: () => askToEndHanging(cluster, row, after) } }, "End it…");
  }
  if (!id) return null;
  return h("div", { class: "buttons" },
    h("button", { type: "button", class: "danger", on: { click: () => askToEnd(cluster, row, "abort", after) } }, "Abort…"),
    h("button", { type: "button", on: { click: () => askToEnd(cluster, row, "fence", after) } }, "Fence producer…"));
}

const WHAT = {
  abort: ["Abort", "Its records are aborted in every partition, and waiting readers go on. Its producer is fenced: its next request fails."],
  fence: ["Fence", "The producer's epoch is raised: its next request fails, and an open transaction of it is aborted."],
};

function askToEnd(cluster, row, action, after) {
  const id = row.transactional_id;
  const [verb, meaning] = WHAT[action];
  const places = row.partitions_count ?? row.partitions?.length ?? 1 + (row.also_in_count ?? 0);
  const seen = action === "abort" ? { producer_id: row.producer_id, producer_epoch: row.producer_epoch } : {};
  if (action === "abort" && row.started_ms != null) seen.started_ms = row.started_ms;
  const send = async (more) => {
    const path = `${inCluster(cluster, ["transactions", id])}:${action}`;
    try {
      const done = await post(path, { confirm: id, ...seen, ...more });
      notice(done.message ?? [id, `: ${done.done}`]);
      after?.();
    } catch (error) {
      if (error.code !== 40902 || more) throw error;
      askAboutPrepared(id, verb, error.body.prepared ?? {}, ({ sink, batch }) => send({ confirm_prepared: { sink, batch } }));
    }
  };
  dialog([verb, " ", id, "?"], [
    h("p", null, `${row.state ?? "Open"} for ${duration(row.since === undefined ? row.age_ms : performance.now() - row.since)}, on ${many(places, "partition")}, by producer ${row.producer_id} epoch ${row.producer_epoch}.`),
    h("p", null, meaning),
  ], [["Keep it", "", null], [[verb, " ", shortened(id)], "danger", () => send()]]);
}

function askAboutPrepared(id, verb, prepared, go) {
  const what = prepared.sink ? [`batch ${prepared.batch} of sink `, prepared.sink] : "a decision that another system takes";
  dialog([id, " is prepared"], [
    h("p", null, "It waits for ", what, ". Its records are complete, and its owner may still commit it."),
    h("p", null, "If it is ended here, these records are lost for that batch, even if the owner decides to commit."),
  ], [["Keep it", "", null], [`${verb} it in spite of that`, "danger", () => go(prepared)]]);
}

export function askToEndHanging(cluster, row, after) {
  const where = partitionName(row);
  const path = `${inCluster(cluster, ["topics", row.topic_name, "partitions", row.partition_id])}:abort-hanging`;
  dialog(`End the hanging transaction in ${where}?`, [
    h("p", null, `No coordinator will end it: producer ${row.producer_id} epoch ${row.producer_epoch}, open from offset ${row.start_offset}.`),
    h("p", null, "An abort marker is written to this partition, and waiting readers go on."),
  ], [["Keep it", "", null], ["Write an abort marker", "danger", async () => {
    const body = { confirm: where, start_offset: row.start_offset, producer_id: row.producer_id, producer_epoch: row.producer_epoch };
    const done = await post(path, body);
    notice(done.message ?? `${where}: ${done.done}`);
    after?.();
  }]]);
}
