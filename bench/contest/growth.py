"""Measures servers that are started for one measurement only: start and idle memory, recovery after a kill, and how
costs grow with partitions, ids and connections.

Growth is the cost of a request on a broker that has very many partitions, transactional ids or connections, divided by
its cost on a broker that has few. Both brokers get the same load, alternately.
"""

import contextlib
import os
import resource
import signal
import socket
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ...protocol.messages.cluster import ApiVersionsRequest
from ...protocol.messages.transactions import InitProducerIdResponse
from .. import accounting, topics
from ..loads import closed_loop as load
from ..loads import many_ids
from ..loads.finding import Finding
from ..loads.small import PARTITIONS, Produce
from ..loads.window import Sample
from ..measured import Measured
from ..peers import apache, peers
from ..peers.names import FSYNC, KAFKA, KAFKA_FLUSH, OS
from ..peers.peers import Peer
from ..wire import frame, skip_answer
from .contest import Scenario, Step, contest, turns

IN_USE = 64  # connections or transactional ids; each always has a request in flight
IDLE_S = 3.0
CHUNK = 1_000  # partitions of one CreateTopics
SETTLED_CPU = 0.1  # of a processor: a server that uses less for SETTLED_S seconds has finished its preparation
SETTLED_S = 12
SETTLE_S = 90.0
INIT_PRODUCER_ID = 22


class Progress(Protocol):
    """Prints progress and failures."""

    def say(self, line: str) -> None:
        """Print a line about the progress."""
        ...

    def failed(self, line: str) -> None:
        """Print what could not be measured, and why."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. partitions, ids, connections: how many the large side of a comparison has.
    recovered_bytes: payload in the logs before the kill.

    seconds: of one measurement, as long as the time between two checkpoints, so that every window contains one.
    """

    rounds: int
    seconds: float
    partitions: int
    ids: int
    connections: int
    recovered_bytes: int


FULL = Size(3, 10.0, 10_000, 100_000, 5_000, 2 * 10**9)
QUICK = Size(1, 0.5, 200, 1_000, 500, 10**8)


STARTED = (FSYNC, KAFKA)
WITH_FILES = (FSYNC, OS, KAFKA, KAFKA_FLUSH)


def measurable(full: bool) -> list[str]:
    """Return the names of the measurements that outside() can make. full: False for only the ones that have a row in
    the short table.
    """
    return ["start", "recovery", *GROWN] if full else ["start"]


def outside(
    wanted: Collection[str], names: Collection[str], full: bool, size: Size, progress: Progress
) -> Iterator[Measured]:
    """Make those measurements of measurable() that are wanted, on the servers in `names`, and yield the results. A
    measurement that fails is reported and yields nothing.
    """
    if "start" in wanted:
        yield from starts([name for name in (WITH_FILES if full else STARTED) if name in names], size, progress)
    if "recovery" in wanted:
        for name in WITH_FILES:
            if name in names:
                yield from recovery(name, size, progress)
    for name in (FSYNC, OS):
        for what, grown in GROWN.items():
            if name in names and what in wanted:
                with _report_failure(f"{what}, {name}", progress):
                    yield from grown(name, size, progress)


@contextlib.contextmanager
def _report_failure(what: str, progress: Progress) -> Iterator[None]:
    """Report an exception of the block as a failure instead of raising it. what: names it."""
    try:
        yield
    except Exception as error:
        progress.failed(f"{what}: {type(error).__name__}: {error}")


# ---- start, idle memory, recovery --------------------------------------------------------------------------------


def starts(names: Sequence[str], size: Size, progress: Progress) -> list[Measured]:
    """Measure the servers alternately: the seconds until one without files answers, and its memory in MB after some
    idle seconds.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(size.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            progress.say(f"start · {name} · round {number + 1} of {size.rounds}")
            with _report_failure(f"start, {name}", progress), peers.start(name) as peer:
                if peer is not None:
                    time.sleep(IDLE_S)
                    found[name].append((peer.ready_s, accounting.usage(peer.pid).rss_bytes / 1e6))
    return [
        Measured("start", "start", name, {"ready_s": tuple(s for s, _ in each), "idle_mb": tuple(mb for _, mb in each)})
        for name, each in found.items()
        if each
    ]


def recovery(name: str, size: Size, progress: Progress) -> Iterator[Measured]:
    """Fill four partitions with batches of 100 KB, kill the server, start it again on its files. Yields the seconds
    until it is ready, in all and per GB.
    """
    for_each_gb: list[float] = []
    in_all: list[float] = []
    for number in range(min(size.rounds, 3)):
        progress.say(f"recovery · {name} · round {number + 1} of {min(size.rounds, 3)}")
        with (
            _report_failure(f"recovery, {name}", progress),
            tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory,
        ):
            with _server(name, directory) as peer:
                if peer is None:
                    return
                written = _fill(peer, size.recovered_bytes)
                os.kill(peer.pid, signal.SIGKILL)
            ready_s = _ready_again(name, directory, peer)
            in_all.append(ready_s)
            for_each_gb.append(ready_s / (written / 1e9))
    if in_all:
        yield Measured("recovery", "start", name, {"ready_s": tuple(in_all), "s_per_gb": tuple(for_each_gb)})


@contextlib.contextmanager
def _server(name: str, directory: str) -> Iterator[Peer | None]:
    """Run a new server by its name during the block; its data directory is not deleted. Yields None if this machine
    cannot run it.
    """
    if name in (FSYNC, OS):
        with peers.fencepost(name.split()[-1], directory) as ours:
            yield ours
    else:
        with peers.kafka(flush=name == KAFKA_FLUSH, directory=directory) as theirs:
            yield theirs


def _fill(peer: Peer, size: int) -> int:
    """Write until at least `size` bytes of payload are acknowledged. Returns how many were."""
    topics.create(peer.host, peer.port, "filled", PARTITIONS)
    batches = Produce("fill", 4, 2, 1000, 100)
    written = 0
    while written < size:
        written += batches.load(peer, "filled", 0.25).bytes
    return written


def _ready_again(name: str, directory: str, before: Peer) -> float:
    """Start the killed server again on its directory. Returns the seconds from its start to its first answer. before:
    the peer as it was.
    """
    if name in (FSYNC, OS):
        with peers.fencepost(name.split()[-1], directory) as peer:
            return peer.ready_s
    libraries = apache.jars()
    assert libraries is not None  # it has run before
    began = time.perf_counter()
    with peers.ended(apache.start(Path(directory), libraries)) as process:
        apache.wait_until_ready(process, before.port, Path(directory))
        return time.perf_counter() - began


# ---- growth ------------------------------------------------------------------------------------------------------


def partitions(name: str, size: Size, progress: Progress) -> Iterator[Measured]:
    """Compare a broker with ten partitions and one with very many, under the same load on four of them."""
    with _start_pair(name) as (few, many):
        progress.say(f"growth partitions · {name} · {size.partitions:,} partitions are made")
        _fill_up(few, 10 - PARTITIONS)
        _fill_up(many, size.partitions - PARTITIONS)
        yield _growth("growth partitions", name, few, many, Produce("growth", IN_USE, 1), size, progress)


def ids(name: str, size: Size, progress: Progress) -> Iterator[Measured]:
    """Compare a broker with one transactional id and one with very many: CPU of small requests, and
    of InitProducerId.
    """
    with _start_pair(name) as (few, many):
        progress.say(f"growth ids · {name} · {size.ids:,} transactional ids are made")
        many_ids.load(few.host, few.port, 0, 1)
        many_ids.load(many.host, many.port, 0, size.ids)
        yield _growth("growth ids", name, few, many, Produce("growth", IN_USE, 1), size, progress)
        if load.program() is not None:
            yield _growth("growth ids, initialised", name, few, many, Initialise(), size, progress)


def connections(name: str, size: Size, progress: Progress) -> Iterator[Measured]:
    """Compare a broker that has only the connections in use with one that has very many idle ones as well."""
    with _start_pair(name) as (few, many), contextlib.ExitStack() as opened:
        progress.say(f"growth connections · {name} · {size.connections:,} connections are made")
        _allow_files(size.connections + 200)
        for _ in range(size.connections - IN_USE):
            opened.enter_context(_idle_connection(many))
        yield _growth("growth connections", name, few, many, Produce("growth", IN_USE, 1), size, progress)


GROWN = {"growth partitions": partitions, "growth ids": ids, "growth connections": connections}


@contextlib.contextmanager
def _start_pair(name: str) -> Iterator[tuple[Peer, Peer]]:
    """Run two brokers of the same kind during the block, one to be left small and one to be filled."""
    with contextlib.ExitStack() as stack:
        few, many = stack.enter_context(peers.start(name)), stack.enter_context(peers.start(name))
        assert few is not None
        assert many is not None
        yield replace(few, name=f"{name}, few"), replace(many, name=f"{name}, many")


def _growth(
    what: str, name: str, few: Peer, many: Peer, scenario: Scenario, size: Size, progress: Progress
) -> Measured:
    """Run the scenario on both brokers alternately and return the growth. what: the name of the result. Raises:
    RuntimeError with the failures.
    """
    _settle(few, many)
    failures: list[str] = []

    def on_step(step: Step) -> None:
        """Take a step of the contest: collect failures, and print each round once."""
        if step.failed:
            failures.append(f"{step.peer}: {step.doing}")
        elif step.doing.startswith("round") and step.peer == turns((few, many), int(step.doing.split()[1]) - 1)[0].name:
            progress.say(f"{what} · {name} · {step.doing}")

    found = {finding.peer: finding for finding in contest([scenario], [few, many], size.rounds, size.seconds, on_step)}
    if len(found) < 2:
        raise RuntimeError("; ".join(failures))
    for failure in failures:
        progress.say(f"{what} · {name} · {failure}")
    return growth_figures(what, name, found[few.name], found[many.name])


def growth_figures(what: str, name: str, few: Finding, many: Finding) -> Measured:
    """Return two figures of each round: `cpu_us`, the CPU time of the filled broker per request in µs, and `growth`,
    this time divided by that of the small broker.
    """
    below, above = few.as_measured(), many.as_measured()
    with_few, with_many = below.figures["cpu_us"], above.figures["cpu_us"]
    ratios = tuple(one / other for one, other in zip(with_many, with_few, strict=True))
    return Measured(what, above.unit, name, {"growth": ratios, "cpu_us": with_many}, others_cpu=above.others_cpu)


def _settle(*servers: Peer) -> None:
    """Wait until the servers are idle after their preparation, SETTLE_S at most."""
    deadline = time.monotonic() + SETTLE_S
    quiet = 0
    while quiet < SETTLED_S and time.monotonic() < deadline:
        before = [accounting.usage(peer.pid) for peer in servers]
        time.sleep(1.0)
        taken = (accounting.usage(peer.pid).since(was).cpu_ns for peer, was in zip(servers, before, strict=True))
        quiet = quiet + 1 if max(taken) < SETTLED_CPU * 1e9 else 0


def _fill_up(peer: Peer, count: int) -> None:
    """Create this many partitions that nobody uses."""
    for number, begin in enumerate(range(0, count, CHUNK)):
        topics.create(peer.host, peer.port, f"unused-{number}", min(CHUNK, count - begin))


def _idle_connection(peer: Peer) -> socket.socket:
    """Open a connection that has sent ApiVersions once, as every client does."""
    connection = socket.create_connection((peer.host, peer.port), 30)
    connection.sendall(frame(ApiVersionsRequest(), 0))
    skip_answer(connection)
    return connection


def _allow_files(count: int) -> None:
    """Allow this process to have `count` files open. Raises: OSError if the system does not let it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise OSError(f"{count} open files are needed, {hard} are allowed (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@dataclass(frozen=True, slots=True)
class Initialise:
    """A scenario of InitProducerId requests: each connection has a transactional id of its own, of those that many_ids
    creates.
    """

    name: str = "growth"
    unit: str = "request"
    peers: frozenset[str] | None = None
    client_threads: int = 1

    def prepare(self, peer: Peer) -> None:
        """Create the ids in use."""
        many_ids.load(peer.host, peer.port, 0, IN_USE)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Send InitProducerId requests for this many seconds, and return what was measured. Raises: LoadFailed."""
        frames = b"".join(many_ids.id_frame(number) for number in range(IN_USE))
        error_at = load.error_place(
            INIT_PRODUCER_ID,
            1,
            lambda code: InitProducerIdResponse(error_code=code, producer_id=0, producer_epoch=0, throttle_time_ms=0),
        )
        return load.run(peer, load.Loop(frames, error_at, IN_USE), seconds)
