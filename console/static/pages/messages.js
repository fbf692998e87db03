// The message browser: records with their fate, from an offset or a time on, for either isolation level.

import { get, inCluster } from "../api.js";
import { badge, bytes, count, empty, faint, h, many, problemOf, put, quiet, shortTime, throttle, time, transactionLink } from "../dom.js";

export const STATES = {
  committed: ["committed", "good"], aborted: ["aborted", "bad"], open: ["open", "open"], plain: ["not transactional", "plain"],
  marker: ["marker", "marker"], undecided: ["undecided here", "warn"],
};
const VIEWS = ["text", "JSON", "hex"];

export async function show(body, place) {
  const asked = { partition: "0", limit: "50", isolation: "read_uncommitted", view: "text", ...place.query };
  const partition = h("select", { id: "partition" }, place.partitions.map((each) => h("option", { value: each.partition_id }, each.partition_id)));
  const offset = h("input", { id: "offset", class: "search", inputmode: "numeric", size: "10", placeholder: "the last ones" });
  const at = h("input", { id: "at", type: "datetime-local", step: "1" });
  const isolation = h("select", { id: "isolation" }, h("option", { value: "read_uncommitted" }, "everything, with its state"), h("option", { value: "read_committed" }, "what read_committed reads"));
  const view = h("select", { id: "view" }, VIEWS.map((each) => h("option", { value: each }, each)));
  const field = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
  const result = h("div", null);
  const newer = h("button", { type: "button" }, "Newer ›");
  const older = h("button", { type: "button" }, "‹ Older");
  const follow = h("button", { type: "button" }, "Newest");
  put(body,
    h("form", { class: "tools", on: { submit: (event) => { event.preventDefault(); apply(); } } },
      field("Partition", partition), field("From offset", offset), field("or time", at), field("Show", isolation), field("Values as", view), h("button", { class: "primary" }, "Read")),
    result, h("div", { class: "pager" }, older, newer, follow));
  partition.value = asked.partition;
  offset.value = asked.offset ?? "";
  isolation.value = asked.isolation;
  view.value = asked.view;
  if (asked.time_ms) at.value = time(Number(asked.time_ms)).slice(0, 19).replace(" ", "T");
  let page = null;
  let turn = 0;

  const read = async () => {
    const mine = ++turn;
    const query = { offset: asked.offset, time_ms: asked.time_ms, limit: asked.limit, isolation: asked.isolation };
    try {
      const found = await get(inCluster(place.cluster, ["topics", place.topic, "partitions", asked.partition, "records"], query));
      if (mine !== turn) return;
      page = found;
      put(result, rows(found, asked.view, place));
    } catch (error) {
      if (mine === turn) put(result, problemOf(error));
    }
    older.disabled = !page || page.start_offset <= page.log_start_offset;
    newer.disabled = !page || page.next_offset >= (page.isolation === "read_committed" ? page.last_stable_offset : page.high_watermark);
  };
  const jump = (to) => {
    Object.assign(asked, { offset: to, time_ms: undefined });
    offset.value = to ?? "";
    at.value = "";
    place.go(asked);
    return read();
  };
  const apply = () => {
    const ms = at.value && !offset.value.trim() ? new Date(at.value).getTime() : undefined;
    Object.assign(asked, { partition: partition.value, offset: offset.value.trim() || undefined, time_ms: ms, isolation: isolation.value, view: view.value });
    place.go(asked);
    return read();
  };
  for (const each of [partition, isolation, view]) each.addEventListener("change", apply);
  at.addEventListener("change", () => { if (at.value) { offset.value = ""; void apply(); } });
  older.addEventListener("click", async () => { // what read_committed leaves out may be many offsets: go on until something older is shown
    const first = page.data[0]?.offset ?? page.next_offset;
    for (let at = page.start_offset, step = Number(asked.limit); at > page.log_start_offset; step *= 4) {
      at = Math.max(page.log_start_offset, at - step);
      await jump(at);
      if (!page || (page.data[0]?.offset ?? first) < first) break;
    }
  });
  newer.addEventListener("click", () => jump(page.next_offset));
  follow.addEventListener("click", () => jump(undefined));
  await read();
  const again = throttle(read, 500);
  return {
    event: (name, data) => {
      if (name !== "partitions" || body.contains(document.activeElement?.closest?.("details"))) return;
      const mine = data.changed.some((each) => each.topic_name === place.topic && String(each.partition_id) === asked.partition);
      if (data.more || mine) again();
    },
  };
}

function rows(page, view, place) {
  const notes = [];
  if (page.problem) notes.push(problemOf({ message: page.problem, hint: "What is before it is shown." }));
  if (page.isolation === "read_committed" && page.last_stable_offset < page.high_watermark && page.next_offset >= page.last_stable_offset) {
    notes.push(rule(page));
  }
  if (!page.data.length) return [empty(page.high_watermark === page.log_start_offset ? "This partition is empty." : "There are no records here."), notes];
  const body = h("tbody");
  let ruled = page.last_stable_offset >= page.high_watermark || page.isolation === "read_committed";
  for (const each of page.data) {
    if (!ruled && each.offset >= page.last_stable_offset) {
      ruled = true;
      body.append(h("tr", { class: "rule" }, h("td", { colspan: "6" }, rule(page))));
    }
    body.append(row(each, view, page, place));
  }
  const heads = ["Offset", "State", "Time", "Producer", "Key", "Value"].map((label) => h("th", { scope: "col", class: label === "Offset" ? "number" : null }, label));
  return [
    quiet(`Offsets ${count(page.log_start_offset)} to ${count(page.high_watermark)}, LSO ${count(page.last_stable_offset)}`),
    h("div", { class: "table messages" }, h("table", null, h("caption", { class: "hidden" }, "Records"), h("thead", null, h("tr", null, heads)), body)), notes];
}

const rule = (page) => h("p", { class: "lso-rule" }, h("strong", null, `LSO ${count(page.last_stable_offset)} < HW ${count(page.high_watermark)}: `),
  `read_committed readers stop here, ${many(page.high_watermark - page.last_stable_offset, "offset waits", "offsets wait")}`);

function row(each, view, page, place) {
  const [word, kind] = STATES[each.state] ?? [each.state, "plain"];
  const producer = each.producer_id == null ? "–" : h("div", { class: "who" },
    each.transactional_id ? transactionLink(each.transactional_id) : null,
    h("code", { class: "quiet nowrap" }, ` ${each.producer_id}:${each.producer_epoch}`, each.sequence == null ? "" : ` #${each.sequence}`));
  const cells = [
    h("td", { class: "number" }, h("a", { href: `#/topics/${encodeURIComponent(place.topic)}/messages?${new URLSearchParams({ partition: page.partition_id, offset: each.offset })}` }, each.offset)),
    h("td", null, badge(each.marker ? `◆ ${each.marker} marker` : word, kind)),
    h("td", { class: "time" }, shortTime(each.timestamp_ms)), h("td", null, producer)];
  if (each.problem) return h("tr", { class: `record ${each.state}` }, cells, h("td", { colspan: "2" }, problemOf({ message: each.problem })));
  if (each.marker) return h("tr", { class: "record marker" }, cells, h("td", { colspan: "2", class: "quiet" }, `ends the transaction of producer ${each.producer_id} here`));
  const where = (what) => inCluster(place.cluster, ["topics", place.topic, "partitions", page.partition_id, "records", each.offset, what]);
  const headers = each.headers.length ? h("details", { class: "headers" }, h("summary", null, many(each.headers_count, "header")),
    h("dl", null, each.headers.map((one, at) => h("div", null, h("dt", null, one.name), h("dd", null, content(one.value, view, where(`header-${at}`))))))) : null;
  return h("tr", { class: `record ${each.state}` }, cells, h("td", { class: "content" }, content(each.key, view, where("key"))),
    h("td", { class: "content" }, content(each.value, view, where("value")), headers));
}

/** A key, value or header in the chosen form, and a way to download all of it. */
function content(found, view, path) {
  if (!found) return faint("null");
  if (!found.size) return faint("empty");
  const text = view === "hex" ? hex(found) : found.text !== undefined ? (view === "JSON" ? pretty(found) : found.text) : hex(found);
  const block = text.length > 160 || text.includes("\n");
  const raw = h("a", { class: "raw", href: path, download: "", title: `Download all ${bytes(found.size)}`, "aria-label": "Download" }, "⤓");
  const more = found.truncated ? faint(` … ${bytes(found.size)} in all `) : null;
  if (!block) return [h("code", null, text), more, raw];
  const first = text.slice(0, 120).replaceAll("\n", " ");
  return [h("details", { open: view === "JSON" && text.length < 2000 }, h("summary", null, h("code", null, `${first}…`)), h("pre", { tabindex: "0" }, text)), more, raw];
}

function pretty(found) {
  try {
    return JSON.stringify(JSON.parse(found.text), null, 2);
  } catch {
    return found.text;
  }
}

function hex(found) {
  const all = found.text === undefined ? Uint8Array.from(atob(found.base64), (each) => each.charCodeAt(0)) : new TextEncoder().encode(found.text);
  const lines = [];
  for (let at = 0; at < Math.min(all.length, 2048); at += 16) {
    const part = [...all.slice(at, at + 16)];
    const digits = part.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${digits.padEnd(47)}  ${part.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : "·")).join("")}`);
  }
  return lines.length === 1 ? lines[0].slice(6) : lines.join("\n");
}
