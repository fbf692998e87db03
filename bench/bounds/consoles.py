"""Measures how much the console slows producers: their latency while 100 event streams are open and /metrics is read
each second, compared to their latency without a console.

Broker, console, browsers and producer are processes of their own. Measurements with and without a console alternate on
one broker. `python -m fencepost.bench.bounds.consoles URL STREAMS` plays the browsers: it opens the event streams and
reads them until it is killed.
"""

import asyncio
import contextlib
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from ...client.producer.producer import Producer
from .. import topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import FSYNC, WATCHED
from .sizes import Say, Size, in_turns

STREAMS = 100
SECONDS = 10.0
SHORTEST_S = 1.0
SCRAPE_S = 1.0
SETTLE_S = 2.0
PAUSE_S = 0.002  # between two records, so that latency and not throughput is measured
TOPIC = "bench"


def consoles(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure the latency with and without a console, alternately on one broker. Yields a result for each."""
    seconds = max(SHORTEST_S, SECONDS * size.share)
    streams = size.count(STREAMS)
    with peers.fencepost("fsync") as broker:
        topics.create(broker.host, broker.port, TOPIC, 1)

        def with_consoles() -> float:
            """Return the median latency in ms while a console runs with its event streams open."""
            with _console(broker.bootstrap) as url, _browsers(url, streams):
                time.sleep(SETTLE_S * size.share)
                return _latency_ms(broker.bootstrap, seconds)

        found = in_turns(size.rounds, partial(_latency_ms, broker.bootstrap, seconds), with_consoles)
    for peer, latencies in zip((FSYNC, WATCHED), found, strict=True):
        yield Measured(name, "record", peer, {"p50_ms": tuple(latencies)})


def _latency_ms(bootstrap: str, seconds: float) -> float:
    """Return the median latency from send to acknowledgement in ms, sending one record at a time for so
    many seconds.
    """
    return asyncio.run(_latency(bootstrap, seconds))


async def _latency(bootstrap: str, seconds: float) -> float:
    """Return the median latency from send to acknowledgement in ms."""
    took = []
    async with Producer(bootstrap) as producer:
        await producer.send_and_wait(TOPIC, bytes(100))
        ends = time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            await producer.send_and_wait(TOPIC, bytes(100))
            took.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_S)
    return 1e3 * sorted(took)[len(took) // 2]


@contextlib.contextmanager
def _console(bootstrap: str) -> Iterator[str]:
    """Run a console as a process. Yields its URL."""
    command = [sys.executable, "-m", "fencepost", "console", "--http", "127.0.0.1:0", "-b", bootstrap]
    with _running(command) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("console"):
                yield line.split()[1]
                return
        raise RuntimeError("the console did not become ready")


@contextlib.contextmanager
def _browsers(url: str, streams: int) -> Iterator[None]:
    """Run a process that reads this many event streams of the console, during the block, which begins when all are
    open.
    """
    with _running([sys.executable, "-m", __name__, url, str(streams)]) as process:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "open":
            raise RuntimeError("the event streams could not be opened")
        yield


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a process during the block, with its output as a pipe. Terminates the process at the end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=peers.environment()) as process:
        try:
            yield process
        finally:
            process.terminate()


def browse(url: str, streams: int) -> None:
    """Open the event streams, read everything that arrives, and request /metrics every SCRAPE_S; runs until it is
    killed.
    """
    host, _, port = url.removeprefix("http://").strip("/").rpartition(":")
    selector = selectors.DefaultSelector()
    for _ in range(streams):
        selector.register(_ask(host, int(port), "/v1/events"), selectors.EVENT_READ)
    print("open", flush=True)
    due = time.monotonic()
    while True:
        for key, _ in selector.select(max(0.0, due - time.monotonic())):
            stream = key.fileobj
            assert isinstance(stream, socket.socket)
            if not stream.recv(1 << 16):
                raise ConnectionError("an event stream has ended")
        if time.monotonic() >= due:
            due += SCRAPE_S
            with _ask(host, int(port), "/metrics", "Connection: close\r\n") as scrape:
                while scrape.recv(1 << 16):
                    pass


def _ask(host: str, port: int, path: str, more: str = "") -> socket.socket:
    """Send a GET request and return the connection, after the first bytes of the answer. more: further header lines.
    Raises ConnectionError unless the status is 200.
    """
    connection = socket.create_connection((host, port), timeout=30)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n".encode())
    begins = connection.recv(1 << 16)
    if b" 200 " not in begins.split(b"\r\n", 1)[0]:
        raise ConnectionError(f"{path}: {begins[:100]!r}")
    return connection


if __name__ == "__main__":
    browse(sys.argv[1], int(sys.argv[2]))
