"""What a broker costs that does nothing: time to ready, memory, idle connections, idle partitions."""

import contextlib
import socket
import statistics
import time
from dataclasses import dataclass

from .. import accounting, topics
from ..peers import peers

STARTS = 5
CONNECTIONS = 1_000
PARTITIONS = 2_000
WATCH_S = 5.0


@dataclass(frozen=True, slots=True)
class Idle:
    """Seconds, megabytes, percent of a core."""

    ready_s: float
    rss_mb: float
    connections_mb: float
    partitions_cpu: float


def measure() -> Idle:
    """Start a broker several times; then hold connections and partitions, and look."""
    starts = []
    for _ in range(STARTS):
        began = time.perf_counter()
        with peers.fencepost("fsync"):
            starts.append(time.perf_counter() - began)
    with peers.fencepost("fsync") as broker, contextlib.ExitStack() as stack:
        time.sleep(1.0)
        before = accounting.usage(broker.pid).rss_bytes
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection((broker.host, broker.port)))
        time.sleep(1.0)
        connected = accounting.usage(broker.pid).rss_bytes
        topics.create(broker.host, broker.port, "idle", PARTITIONS)
        time.sleep(25.0)  # past the two checkpoints that the creation asks for
        books = accounting.usage(broker.pid)
        time.sleep(WATCH_S)
        busy = accounting.usage(broker.pid).since(books).cpu_ns / 1e9 / WATCH_S * 100
    return Idle(statistics.median(starts), before / 1e6, (connected - before) / 1e6, busy)
