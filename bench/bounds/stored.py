"""Measures a broker whose journal is in an object store that takes 30 ms for each PUT: rates, latencies, and the number
of PUTs.

The store is a bucket in memory, in this process (peers/memory_s3.py); the loads are processes of their own.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

from ..loads.finding import Finding
from ..loads.small import Produce
from ..loads.txn import Transactions
from ..loads.window import Sample
from ..measured import Measured
from ..peers import peers
from ..peers.memory_s3 import BUCKET, MemoryS3
from ..peers.names import FSYNC, STORED, STORED_FEW, STORED_IDLE, STORED_MANY
from .sizes import Say, Size, by_figure, in_turns

URL = f"s3://{BUCKET}/journal"
PUT_MS, GET_MS = 30.0, 30.0
UNLIMITED = ("-X", "store.puts.per.second=10000")
PRODUCERS = 16
IN_FLIGHT = 48, 4  # connections, requests in flight on each: with less, the broker only waits for PUTs of 30 ms
FEW, MANY = 10, 1_000  # partitions
WARM_S = 2.0  # the burst of PUTs that the limit allows after a pause is over then
IDLE_S = 20.0
SHORTEST_S = 0.5


@contextlib.contextmanager
def store() -> Iterator[MemoryS3]:
    """Run a bucket during the block, and set the environment so that child processes use this bucket."""
    server = MemoryS3(PUT_MS, GET_MS)
    # Over TLS the broker does not sign bodies, which would cost CPU time. Here it must not either.
    names = {**server.environment, "AWS_UNSIGNED_PAYLOAD": "true"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield server
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        server.close()


@contextlib.contextmanager
def broker(*options: str) -> Iterator[peers.Peer]:
    """Run a broker on the bucket during the block, in a new directory."""
    with (
        tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory,
        peers.fencepost("fsync", directory, "--store", URL, *options) as peer,
    ):
        yield peer


def lone(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure one client that sends one record at a time and waits for each answer."""
    load = Produce(name, 1, 1)
    with store(), broker(*UNLIMITED) as peer:
        load.prepare(peer)
        yield _measure_rounds(name, load.unit, size, say, partial(load.window, peer, size.seconds))


def transactions(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure producers that each commit one transaction after the other."""
    load = Transactions(PRODUCERS)
    with store(), broker(*UNLIMITED) as peer:
        load.prepare(peer)
        yield _measure_rounds(name, load.unit, size, say, partial(load.window, peer, size.seconds))


def batches(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure batches of 100 KB, alternately with a broker whose journal is on disk."""
    load = Produce(name, *IN_FLIGHT, 1000, 100)
    with store(), broker(*UNLIMITED) as ours, peers.fencepost("fsync") as local:
        for peer in (ours, local):
            load.prepare(peer)
        windows = [partial(load.window, peer, size.seconds) for peer in (ours, local)]
        for which, samples in zip((STORED, FSYNC), in_turns(size.rounds, *windows), strict=True):
            yield Finding(name, load.unit, which, samples).as_measured()


def requests(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Count PUTs: of an idle broker, and under load over few and over many partitions, with the default limit."""
    idle, few, many = [], [], []
    for number in range(size.rounds):
        say(f"{name} · round {number + 1} of {size.rounds}")
        with store() as server, broker() as peer:
            time.sleep(WARM_S * size.share)
            idle.append(_count_puts(server, lambda: time.sleep(max(SHORTEST_S, IDLE_S * size.share))))
            few.append(_puts_under_load(server, peer, size, FEW))
        with store() as server, broker() as peer:
            many.append(_puts_under_load(server, peer, size, size.count(MANY)))
    for which, rounds in ((STORED_IDLE, idle), (STORED_FEW, few), (STORED_MANY, many)):
        yield Measured(name, "PUT", which, by_figure(rounds))


def _puts_under_load(server: MemoryS3, peer: peers.Peer, size: Size, partitions: int) -> dict[str, float]:
    """Return how many PUTs a second 16 clients cause that send small requests to this many partitions."""
    load = Produce("puts", 16, 1, partitions=partitions)
    load.prepare(peer)
    load.window(peer, max(SHORTEST_S, WARM_S * size.share))
    return _count_puts(server, lambda: load.window(peer, 2 * size.seconds))


def _count_puts(server: MemoryS3, work: Callable[[], object]) -> dict[str, float]:
    """Call `work`, and return how many PUTs a second came to the server meanwhile, as the figure "puts"."""
    before, began = server.asked.get("PUT", 0), time.perf_counter()
    work()
    return {"puts": (server.asked.get("PUT", 0) - before) / (time.perf_counter() - began)}


def _measure_rounds(name: str, unit: str, size: Size, say: Say, window: "partial[Sample]") -> Measured:
    """Call `window` once in each round, and return what was measured."""
    samples = []
    for number in range(size.rounds):
        say(f"{name} · round {number + 1} of {size.rounds}")
        samples.append(window())
    return Finding(name, unit, STORED, samples).as_measured()
