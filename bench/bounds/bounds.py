"""All bounds by name. Each is measured on servers of its own, one after the other.

A bound is a ratio to another library in the same run, measured alternately, or a limit with a reason; contest/aims.py
has all of them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from ..loads import stalls
from ..measured import Measured
from ..peers.names import AIOKAFKA, CONFLUENT, FSYNC, OS
from . import stored
from .clients import Compared, Start
from .commits import Commits
from .consoles import consoles
from .following import following
from .groups import groups
from .idle import idle
from .inboxes import Inboxes
from .mirrors import mirrors
from .outbox import rows
from .recovery import full_journal
from .share import transactions, workers
from .sizes import Say, Size, by_figure
from .spark import spark
from .steps import steps
from .takeovers import takeovers
from .transactions import aborted_fetch, many_ids
from .writes import durable_partitions, large_batches

STALLS_S = 20.0
SHORTEST_S = 1.0
READ, COPIED = 400_000, 50_000  # records


@dataclass(frozen=True, slots=True)
class Bound:
    """A measurement of fencepost that needs no other broker. server: the name of the server that is measured. measure:
    called with the bound's name.
    """

    server: str
    measure: Callable[[str, Size, Say], Iterable[Measured]]


def loop_stalls(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure how long an idle client waits at most while the broker is under load. Yields one result."""
    rounds = []
    for number in range(size.rounds):
        say(f"{name} · round {number + 1} of {size.rounds}")
        found = stalls.measure(max(SHORTEST_S, STALLS_S * size.share))
        waits = {"p50_ms": found.p50, "p99_ms": found.p99, "p999_ms": found.p999}
        rounds.append({"stall_ms": found.own} | waits)
    yield Measured(name, "answer", FSYNC, by_figure(rounds))


def _comparison(work: str, library: str, units: int, size: int = 100, unit: str = "record", filled: int = 0) -> Bound:
    """Return the bound that compares the SDK with another library. work: the name of the load. units: how many
    records or transactions. size: bytes of a record. filled: how many records the topic has before.
    """
    return Bound(OS, Compared(work, library, units, size, unit, filled).measure)


PLUGIN = Start("import fencepost.testing.plugin", "import pytest, fencepost")
BROKER = Start("broker.start()", "import fencepost; broker = fencepost.Broker()")

BOUNDS: dict[str, Bound] = {
    "bound idle": Bound(FSYNC, idle),
    "bound durable writes": Bound(FSYNC, durable_partitions),
    "bound batch 100 KB": Bound(FSYNC, large_batches),
    "bound aborted": Bound(OS, aborted_fetch),
    "bound many ids": Bound(OS, many_ids),
    "bound groups": Bound(OS, groups),
    "bound share workers": Bound(OS, workers),
    "bound share transactions": Bound(OS, transactions),
    "bound commit of 1 row": Bound(FSYNC, Commits(1).measure),
    "bound commit of 10 rows": Bound(FSYNC, Commits(10).measure),
    "bound commit of 100 rows": Bound(FSYNC, Commits(100).measure),
    "bound inbox of 1 record": Bound(OS, Inboxes(1, 1_000).measure),
    "bound inbox of 10 records": Bound(OS, Inboxes(10, 500).measure),
    "bound inbox of 100 records": Bound(OS, Inboxes(100, 100).measure),
    "bound outbox": Bound(FSYNC, rows),
    "bound mirror": Bound(OS, mirrors),
    "bound full journal": Bound(OS, full_journal),
    "bound steps of upkeep": Bound(FSYNC, steps),
    "bound stalls": Bound(FSYNC, loop_stalls),
    "bound consoles": Bound(FSYNC, consoles),
    "bound follower": Bound(FSYNC, following),
    "bound store produce": Bound(FSYNC, stored.lone),
    "bound store transactions": Bound(FSYNC, stored.transactions),
    "bound store batch 100 KB": Bound(FSYNC, stored.batches),
    "bound store requests": Bound(FSYNC, stored.requests),
    "bound store takeover": Bound(FSYNC, takeovers),
    "bound import": Bound(OS, Start("import fencepost").measure),
    "bound import of the plugin": Bound(OS, PLUGIN.measure),
    "bound Broker()": Bound(OS, BROKER.measure),
    "bound SDK produce 100 B": _comparison("produce", AIOKAFKA, 200_000),
    "bound SDK produce 100 B, equal batches": _comparison("produce_equal", AIOKAFKA, 200_000),
    "bound SDK produce 1 KB": _comparison("produce", AIOKAFKA, 200_000, 1000),
    "bound SDK produce 1 KB, equal batches": _comparison("produce_equal", AIOKAFKA, 200_000, 1000),
    "bound SDK getmany": _comparison("getmany", AIOKAFKA, READ, filled=READ),
    "bound SDK async for": _comparison("iterate", AIOKAFKA, READ, filled=READ),
    "bound SDK copy": _comparison("loop", AIOKAFKA, COPIED, filled=READ),
    "bound SDK transactions": _comparison("txn", CONFLUENT, 1_500, unit="transaction"),
    "bound Spark": Bound(OS, spark),
}


def outside(wanted: Collection[str], servers: Collection[str], size: Size, say: Say, failed: Say) -> Iterator[Measured]:
    """Measure those of the wanted bounds whose server is in `servers`, and yield the results. If one fails, `failed`
    is called with the reason, and it yields nothing.
    """
    for name, bound in BOUNDS.items():
        if name in wanted and bound.server in servers:
            say(name)
            try:
                yield from bound.measure(name, size, say)
            except Exception as error:
                failed(f"{name}: {type(error).__name__}: {error}")
