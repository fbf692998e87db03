// The transaction timeline: a lane for each partition, offsets across, batches as blocks coloured by producer.
//
// A block is hatched while its transaction is open, solid once committed, struck once aborted; ◆ is a marker. Lines show
// LSO and HW, and the part between them, which read_committed readers cannot reach, is shaded.

import { get, inCluster } from "../api.js";
import { bytes, count, facts, h, link, problemOf, put, quiet, s, time, transactionLink } from "../dom.js";
import { STATES } from "./messages.js";

const LANES = 8; // at once
const SPANS = [50, 200, 1000, 5000];
const HEIGHT = 84;
const TOP = 26;
const BLOCK = 34;
const LABEL = 90; // of a line, about its width
const LEFT = 8;
const AGAIN_MS = 250;

export async function show(body, place) {
  const asked = { span: "200", first: "0", back: "0", ...place.query };
  if (asked.partition !== undefined && place.query.first === undefined && place.partitions.length > LANES) asked.first = asked.partition;
  const span = h("select", { id: "span" }, SPANS.map((each) => h("option", { value: each }, `${count(each)} offsets`)));
  const back = h("input", { id: "back", type: "range", min: "0", max: "100", step: "1", class: "scrub" });
  const says = h("output", { for: "back" });
  const lanes = h("div", { class: "lanes" });
  const detail = h("section", { class: "card detail", "aria-live": "polite" });
  const colours = new Map(); // producer id → number of its colour, in order of appearance
  const drawn = new Map(); // partition → Lane
  const field = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
  const up = h("button", { type: "button" }, "‹ Partitions");
  const down = h("button", { type: "button" }, "Partitions ›");
  put(body, h("div", { class: "tools" }, field("Width", span), h("div", { class: "field grow" }, h("label", { for: "back" }, "Back in time"), back), says,
    h("button", { type: "button", on: { click: () => { back.value = "0"; moved(); } } }, "Now"), place.partitions.length > LANES ? [up, down] : null),
  legend(), lanes, detail);
  span.value = SPANS.map(String).includes(asked.span) ? asked.span : "200";

  const chosen = () => place.partitions.slice(Number(asked.first) || 0, (Number(asked.first) || 0) + LANES);
  const select = (partition, block) => put(detail, details(place.topic, partition, block));
  const spanOf = () => Number(span.value);
  const longest = () => Math.max(1, ...chosen().map((each) => (each.high_watermark ?? 0) - (each.log_start_offset ?? 0)));
  const backOf = () => Math.round((Number(back.value) / 100) * Math.max(0, longest() - spanOf()));

  const load = () => Promise.all(chosen().map((each) => drawn.get(each.partition_id)?.read(spanOf(), backOf())));
  const build = () => {
    drawn.clear();
    put(lanes, chosen().map((each) => {
      const lane = new Lane(place, each.partition_id, colours, select, (by) => focusLane(each.partition_id, by));
      drawn.set(each.partition_id, lane);
      return lane.element;
    }));
    return load();
  };
  const focusLane = (partition, by) => {
    const all = [...drawn.keys()];
    drawn.get(all[all.indexOf(partition) + by])?.focus();
  };
  const moved = () => {
    says.textContent = backOf() ? `${count(backOf())} offsets back` : "follows the end";
    Object.assign(asked, { span: span.value, back: back.value === "0" ? undefined : back.value });
    place.go(asked);
    return load();
  };
  span.addEventListener("change", moved);
  back.addEventListener("input", moved);
  const turn = (by) => {
    asked.first = String(Math.min(Math.max(0, (Number(asked.first) || 0) + by), Math.max(0, place.partitions.length - 1)));
    place.go(asked);
    void build();
  };
  up.addEventListener("click", () => turn(-LANES));
  down.addEventListener("click", () => turn(LANES));
  back.value = asked.back ?? "0";
  says.textContent = backOf() ? `${count(backOf())} offsets back` : "follows the end";
  put(detail, quiet("Choose a batch to see what it is: by mouse, or with Tab and the arrow keys."));
  await build();
  const resized = new ResizeObserver(() => drawn.forEach((lane) => lane.draw()));
  resized.observe(lanes);
  return {
    event: (name, data) => {
      if (name === "snapshot") drawn.forEach((lane) => lane.readSoon());
      if (name !== "partitions" || backOf()) return;
      if (data.more) drawn.forEach((lane) => lane.readSoon());
      for (const each of data.changed) {
        if (each.topic_name !== place.topic) continue;
        const known = place.partitions.find((one) => one.partition_id === each.partition_id);
        if (known) Object.assign(known, each);
        drawn.get(each.partition_id)?.readSoon();
      }
    },
    close: () => { resized.disconnect(); drawn.forEach((lane) => { lane.closed = true; }); },
  };
}

function legend() {
  const sample = (state, text) => h("li", null, s("svg", { class: "sample", width: "34", height: "18", viewBox: "0 0 34 18", "aria-hidden": "true" },
    state === "marker" ? s("path", { d: diamond(17, 9, 7), class: "marker commit" })
      : shape({ state, transactional: state !== "plain", producer_id: 0 }, 2, 2, 30, 14, 0, "legend")), text);
  return h("ul", { class: "legend", "aria-label": "Legend" }, sample("committed", "committed"), sample("open", "open"), sample("aborted", "aborted"),
    sample("plain", "not transactional"), sample("undecided", "undecided here"), sample("marker", "marker"),
    h("li", { class: "quiet" }, "Each producer has a colour."));
}

const diamond = (x, y, r) => `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`;

/** A block: filled by its producer's colour; the pattern says the state. */
function shape(block, x, y, width, height, colour, id) {
  const hue = block.transactional ? `tx${colour % 8}` : "tx-none";
  const parts = [s("rect", { x, y, width, height, rx: Math.min(4, width / 3), class: `fill ${hue}` })];
  if (block.state === "open" || block.state === "undecided") {
    const pattern = `hatch-${id}`;
    parts.push(s("defs", null, s("pattern", { id: pattern, width: "8", height: "8", patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("rect", { width: "4", height: "8", class: "hatch" }))),
    s("rect", { x, y, width, height, rx: Math.min(4, width / 3), fill: `url(#${pattern})`, class: "over" }));
  }
  if (block.state === "aborted") parts.push(s("path", { d: `M${x} ${y + height}L${x + width} ${y}M${x} ${y + height / 2}H${x + width}`, class: "strike" }));
  return s("g", { class: `block ${block.state}` }, parts);
}

/** One partition. */
class Lane {
  constructor(place, partition, colours, select, beyond) {
    Object.assign(this, { place, partition, colours, select, beyond });
    this.found = null;
    this.chosen = -1;
    this.closed = false;
    this.asking = false;
    this.again = false;
    this.timer = null;
    this.span = 200;
    this.back = 0;
    this.svg = s("svg", { class: "lane", height: HEIGHT, tabindex: "0", role: "application",
      "aria-label": `Timeline of partition ${partition}`, "aria-roledescription": "timeline",
      on: { keydown: (event) => this.key(event), click: (event) => this.click(event) } });
    this.summary = h("span", { class: "quiet" });
    this.problem = h("div");
    this.element = h("div", { class: "lane-row", "data-partition": partition },
      h("div", { class: "lane-head" }, h("strong", null, link(`Partition ${partition}`, ["topics", place.topic, "messages"], { partition })), this.summary), this.svg, this.problem);
  }

  focus() {
    this.svg.focus();
  }

  readSoon() {
    if (this.timer === null) {
      this.timer = setTimeout(() => { this.timer = null; void this.read(this.span, this.back); }, AGAIN_MS);
    }
  }

  async read(span, back) {
    Object.assign(this, { span, back });
    if (this.asking) { this.again = true; return; }
    if (this.closed) return;
    this.asking = true;
    try {
      const query = { span };
      if (back) {
        const known = this.place.partitions.find((each) => each.partition_id === this.partition);
        query.to = Math.max(known.log_start_offset ?? 0, (known.high_watermark ?? 0) - back);
      }
      this.found = await get(inCluster(this.place.cluster, ["topics", this.place.topic, "partitions", this.partition, "timeline"], query));
      put(this.problem, this.found.problem ? problemOf({ message: this.found.problem }) : null);
      this.draw();
    } catch (error) {
      put(this.problem, problemOf(error));
    } finally {
      this.asking = false;
    }
    if (this.again) { this.again = false; await this.read(this.span, this.back); }
  }

  draw() {
    const found = this.found;
    const width = this.svg.clientWidth || this.element.clientWidth;
    if (!found || !width) return;
    const from = found.from;
    const to = Math.max(found.to, from + Math.min(this.span, 20));
    const scale = (width - 2 * LEFT) / (to - from);
    this.x = (offset) => LEFT + (Math.min(Math.max(offset, from), to) - from) * scale;
    const { last_stable_offset: stable, high_watermark: high } = found;
    this.summary.textContent = stable < high ? `LSO ${count(stable)}, HW ${count(high)}: ${count(high - stable)} held back` : `LSO = HW = ${count(high)}`;
    const parts = [s("line", { x1: 0, x2: width, y1: TOP + BLOCK + 6, y2: TOP + BLOCK + 6, class: "axis" })];
    if (stable < high && high > from) {
      parts.push(s("rect", { x: this.x(stable), y: TOP - 8, width: Math.max(1, this.x(high) - this.x(stable)), height: BLOCK + 14, class: "held" }));
    }
    for (const tick of ticks(from, to, width)) {
      parts.push(s("line", { x1: this.x(tick), x2: this.x(tick), y1: TOP + BLOCK + 6, y2: TOP + BLOCK + 10, class: "axis" }),
        s("text", { x: this.x(tick), y: HEIGHT - 3, class: "tick" }, count(tick)));
    }
    found.blocks.forEach((block, index) => parts.push(this.block(block, index)));
    const crowded = stable < high && this.x(high) - this.x(Math.max(stable, from)) < LABEL; // the line above has both
    parts.push(this.line(high, "hw", crowded ? "" : stable < high ? `HW ${count(high)}` : `LSO = HW ${count(high)}`, width));
    if (stable < high) parts.push(this.line(stable, "lso", `LSO ${count(stable)}`, width));
    this.svg.replaceChildren(...parts.filter(Boolean));
    this.mark();
  }

  block(block, index) {
    const left = this.x(block.base_offset);
    const width = Math.max(2, this.x(block.last_offset + 1) - left - (block.marker ? 0 : 1));
    const key = block.producer_id;
    if (block.transactional && !this.colours.has(key)) this.colours.set(key, this.colours.size);
    let element;
    if (block.marker) {
      const x = left + Math.min(width, 14) / 2;
      element = s("g", { class: "block marker" }, s("path", { d: diamond(x, TOP + BLOCK / 2, 7), class: `marker ${block.marker === "commit" ? "commit" : "abort"} tx${this.colours.get(key) % 8}` }));
    } else {
      element = shape(block, left, TOP, width, BLOCK, this.colours.get(key) ?? 0, `${this.partition}-${index}`);
    }
    element.dataset.index = index;
    element.dataset.state = block.state;
    element.append(s("title", null, sentence(block)));
    return element;
  }

  line(offset, kind, text, width) {
    const { from, to } = this.found;
    if (offset < from || offset > Math.max(to, from)) return null;
    const x = this.x(offset);
    const flip = x > width / 2;
    return s("g", { class: `mark ${kind}` }, s("line", { x1: x, x2: x, y1: 6, y2: TOP + BLOCK + 8 }),
      s("text", { x: flip ? x - 5 : x + 5, y: 14, "text-anchor": flip ? "end" : "start" }, text));
  }

  mark() {
    for (const each of this.svg.querySelectorAll(".chosen")) each.classList.remove("chosen");
    this.svg.querySelector(`[data-index="${this.chosen}"]`)?.classList.add("chosen");
  }

  choose(index) {
    const block = this.found?.blocks[index];
    if (!block) return;
    this.chosen = index;
    this.mark();
    this.select(this.partition, block);
  }

  click(event) {
    const group = event.target.closest("[data-index]");
    if (group) this.choose(Number(group.dataset.index));
  }

  key(event) {
    const last = (this.found?.blocks.length ?? 0) - 1;
    const next = { ArrowLeft: this.chosen < 0 ? last : Math.max(0, this.chosen - 1), ArrowRight: Math.min(last, this.chosen + 1), Home: 0, End: last }[event.key];
    if (next !== undefined) this.choose(next);
    else if (event.key === "ArrowUp") this.beyond(-1);
    else if (event.key === "ArrowDown") this.beyond(1);
    else return;
    event.preventDefault();
  }
}

function ticks(from, to, width) {
  const wanted = Math.max(2, Math.floor(width / 130));
  const raw = (to - from) / wanted;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, raw)));
  const step = Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw) ?? 10 * power);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to && found.length < 50; at += step) found.push(at);
  return found;
}

const nameOf = (block) => block.transactional_id ?? (block.producer_id == null ? "no producer id" : `producer ${block.producer_id} epoch ${block.producer_epoch}`);

function sentence(block) {
  if (block.marker) return `${block.base_offset}: ${block.marker} marker of ${nameOf(block)}`;
  const at = block.base_offset === block.last_offset ? `${block.base_offset}` : `${block.base_offset} to ${block.last_offset}`;
  return `${at}: ${STATES[block.state]?.[0] ?? block.state}, ${nameOf(block)}`;
}

function details(topic, partition, block) {
  return [
    h("h2", null, block.marker ? `The ${block.marker} marker at ${count(block.base_offset)}` : `Offsets ${count(block.base_offset)} to ${count(block.last_offset)}`),
    facts([
      ["State", STATES[block.state]?.[0] ?? block.state],
      block.transactional ? ["Transaction", block.transactional_id ? transactionLink(block.transactional_id) : "its transactional id is no longer known"] : null,
      block.producer_id != null ? ["Producer", h("code", null, `${block.producer_id}, epoch ${block.producer_epoch}`)] : null,
      block.base_sequence != null ? ["First sequence", count(block.base_sequence)] : null,
      block.marker ? null : ["Records", count(block.count)],
      ["Size", bytes(block.bytes)], ["Time", time(block.timestamp_ms)],
      ["Read", link("messages from here", ["topics", topic, "messages"], { partition, offset: block.base_offset })],
    ])];
}
