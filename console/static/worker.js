// The shared worker: one event stream for all tabs of this console; closed while every tab is hidden or gone.

import { Stream } from "./stream.js";

const FORGOTTEN_MS = 90_000; // a tab that ended without a word
const tabs = new Map();
const stream = new Stream((message) => tabs.forEach((_, port) => port.postMessage(message)));

function update() {
  const now = Date.now();
  for (const [port, tab] of tabs) if (now - tab.heard > FORGOTTEN_MS) tabs.delete(port);
  stream.want([...tabs.values()].some((tab) => tab.visible));
}

self.onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => {
    if (data === "bye") tabs.delete(port);
    else tabs.set(port, { visible: data === "visible", heard: Date.now() });
    update();
    if (data === "visible" && stream.source?.readyState === EventSource.OPEN) {
      port.postMessage({ name: "stream", data: { open: true } });
    }
  };
  port.start();
};

setInterval(update, 20_000);
