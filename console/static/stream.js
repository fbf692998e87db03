// One stream of the server's events, open while somebody listens. Used by the shared worker, or by a tab without one.

const NAMES = ["snapshot", "counts", "transactions", "partitions", "blockers", "alarms", "groups", "missing", "txn", "problem", "recovered"];
const AGAIN_MS = 3000;

export class Stream {
  constructor(send) {
    this.send = send;
    this.source = null;
    this.timer = null;
    this.wanted = false;
  }

  want(wanted) {
    this.wanted = wanted;
    if (!wanted) this.close();
    else if (!this.source && this.timer === null) this.open();
  }

  open() {
    this.timer = null;
    if (!this.wanted) return;
    const source = new EventSource("/v1/events");
    this.source = source;
    source.onopen = () => this.send({ name: "stream", data: { open: true } });
    source.onerror = () => {
      this.send({ name: "stream", data: { open: false } });
      if (source.readyState === EventSource.CLOSED && this.source === source) {
        this.source = null;
        this.timer = setTimeout(() => this.open(), AGAIN_MS);
      }
    };
    for (const name of NAMES) {
      source.addEventListener(name, (event) => this.send({ name, id: event.lastEventId, data: JSON.parse(event.data) }));
    }
  }

  close() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.source) this.source.close();
    this.source = null;
  }
}
