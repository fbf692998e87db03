"""Measures how much CPU time `backup --follow` costs a broker, how much would be lost with the broker's disk, and how
long a restore takes.

Broker, follower and producer are processes of their own. In each round a new broker is started, and the producer writes
a steady 50 MB a second to it, once with a follower and once without. The backup's store is a directory on the broker's
disk, so this disk has to take every byte three times. `python -m fencepost.bench.bounds.following HOST:PORT SECONDS` is
the producer.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from .. import accounting, topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import FOLLOWED, FSYNC
from .sizes import Say, Size, by_figure

TOPIC, PARTITIONS = "bench", 4
RATE_BYTES = 50_000_000  # a second
RECORD_BYTES = 10_000
SLICE_S = 0.02  # the producer sleeps between two bursts of so much time
SECONDS = 20.0
SHORTEST_S = 1.0
FIRST_POINT_S = 60.0


def following(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure what a load costs a new broker in each round, with and without a backup follower; which comes first
    alternates. Yields a result for each.
    """
    alone, followed = [], []
    for number in range(size.rounds):
        say(f"{name} · round {number + 1} of {size.rounds}")
        with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
            figures = _measure(directory, max(SHORTEST_S, SECONDS * size.share), alone_first=number % 2 == 0)
        alone.append({"cpu_ms_per_mb": figures.pop("alone")})
        followed.append(figures)
    yield Measured(name, "MB", FSYNC, by_figure(alone))
    yield Measured(name, "MB", FOLLOWED, by_figure(followed))


def _measure(directory: str, seconds: float, *, alone_first: bool) -> dict[str, float]:
    """Return the figures of one round: the broker's CPU in ms per MB, alone and followed; the largest loss window in
    s; the seconds to restore a GB.
    """
    figures: dict[str, float] = {}
    data, store = f"{directory}/data", f"file://{directory}/store"
    with peers.fencepost("fsync", data) as broker:
        topics.create(broker.host, broker.port, TOPIC, PARTITIONS)
        if alone_first:
            figures["alone"] = _cpu_ms_per_mb(broker, seconds)
        with _follower(data, store) as windows_ms:
            figures["cpu_ms_per_mb"] = _cpu_ms_per_mb(broker, seconds)
            figures["window_s"] = max(windows_ms) / 1e3
        if not alone_first:
            figures["alone"] = _cpu_ms_per_mb(broker, seconds)
    began = time.perf_counter()
    restored = _run("restore", store, "--data-dir", f"{directory}/restored", "-o", "json")
    took_s = time.perf_counter() - began
    figures["s_per_gb"] = took_s / (json.loads(restored)["bytes"] / 1e9)
    return figures


def _cpu_ms_per_mb(broker: peers.Peer, seconds: float) -> float:
    """Run the load for this many seconds. Returns the broker's CPU time in ms per MB written."""
    before = accounting.usage(broker.pid)
    written = int(_run(broker.bootstrap, str(seconds), module=__name__))
    return accounting.usage(broker.pid).since(before).cpu_ns / written  # ns per byte = ms per MB


@contextlib.contextmanager
def _follower(data: str, store: str) -> Iterator[list[int]]:
    """Run a follower during the block. Yields, once its first backup is complete, a list to which each loss window in
    ms is added when the follower prints it.
    """
    command = [sys.executable, "-m", "fencepost", "backup", "--follow", data, store, "-o", "json"]
    windows_ms: list[int] = []
    has_point = threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=peers.environment()) as process:

        def take() -> None:
            """Read the follower's output to its end, and add its loss windows to the list."""
            assert process.stdout is not None
            for line in process.stdout:
                window_ms = json.loads(line)["loss_window_ms"]
                if window_ms is not None:
                    windows_ms.append(window_ms)
                    has_point.set()
            has_point.set()

        reader = threading.Thread(target=take)
        reader.start()
        try:
            if not has_point.wait(FIRST_POINT_S) or not windows_ms:
                raise RuntimeError("the follower took no point")
            windows_ms.clear()  # the first backup copied everything: its window does not count
            windows_ms.append(0)  # so that max() has a value if no backup follows
            yield windows_ms
        finally:
            process.terminate()
            reader.join()


def _run(*words: str, module: str = "fencepost") -> str:
    """Run a Python module to its end. words: its arguments. Returns the last line of its output."""
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=peers.environment())
    return done.stdout.splitlines()[-1]


def produce(bootstrap: str, seconds: float) -> int:
    """Write at a steady rate (RATE_BYTES a second) for this many seconds. Returns how many bytes were acknowledged."""
    from confluent_kafka import KafkaError, Message, Producer

    acknowledged = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        """Count an acknowledged record. Raises RuntimeError for one that failed."""
        nonlocal acknowledged
        if error is not None:
            raise RuntimeError(f"a record was not acknowledged: {error}")
        acknowledged += RECORD_BYTES

    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.kbytes": 1 << 19}
    producer = Producer(settings, on_delivery=delivered)
    value = bytes(RECORD_BYTES)
    began = time.perf_counter()
    sent = 0
    while (passed_s := time.perf_counter() - began) < seconds:
        while sent < passed_s * RATE_BYTES:
            producer.produce(TOPIC, value, on_delivery=delivered)
            sent += RECORD_BYTES
        producer.poll(SLICE_S)
    producer.flush()
    return acknowledged


if __name__ == "__main__":
    print(produce(sys.argv[1], float(sys.argv[2])))
