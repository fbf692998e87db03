"""Measures an idle broker: the time until it is ready, its memory, and what idle connections and partitions cost."""

import contextlib
import socket
import time
from collections.abc import Iterator

from .. import accounting, topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import FSYNC
from .sizes import Say, Size, by_figure

CONNECTIONS = 1_000
PARTITIONS = 2_000
REST_S = 1.0
SETTLE_S = 25.0  # the two checkpoints that the creation of partitions causes are done by then
WATCH_S = 5.0


def idle(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure start, memory and CPU time of an idle broker, a new one in each round. Yields one result."""
    rounds = []
    for number in range(size.rounds):
        say(f"{name} · round {number + 1} of {size.rounds}")
        rounds.append(_measure(size))
    yield Measured(name, "start", FSYNC, by_figure(rounds))


def _measure(size: Size) -> dict[str, float]:
    """Return the figures of one round: start a broker, open idle connections, create partitions, and read its memory
    and CPU time after each.
    """
    with peers.fencepost("fsync") as broker, contextlib.ExitStack() as stack:
        time.sleep(REST_S)
        before = accounting.usage(broker.pid).rss_bytes
        for _ in range(size.count(CONNECTIONS)):
            stack.enter_context(socket.create_connection((broker.host, broker.port)))
        time.sleep(REST_S)
        connected = accounting.usage(broker.pid).rss_bytes
        topics.create(broker.host, broker.port, "idle", size.count(PARTITIONS))
        time.sleep(SETTLE_S * size.share)
        books, began = accounting.usage(broker.pid), time.perf_counter()
        time.sleep(WATCH_S * size.share)
        cpu_s = accounting.usage(broker.pid).since(books).cpu_ns / 1e9
        return {
            "ready_s": broker.ready_s,
            "idle_mb": before / 1e6,
            "connections_mb": (connected - before) / 1e6,
            "idle_cpu": 100 * cpu_s / (time.perf_counter() - began),
        }
