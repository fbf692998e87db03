"""Bounds of transactions: reading a range with many aborted ones, and very many transactional ids."""

from collections.abc import Iterator

from ..loads import aborted
from ..loads import many_ids as ids
from ..measured import Measured
from ..peers.names import COMMITTED, OS, UNCOMMITTED
from .sizes import Say, Size, by_figure


def aborted_fetch(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure the broker's CPU time for reading a range in which very many transactions were aborted. Yields a result
    for each isolation level.
    """
    committed, uncommitted = aborted.measure(size.count(aborted.ABORTED), size.rounds)
    yield Measured(name, "read", COMMITTED, {"cpu_us": committed})
    yield Measured(name, "read", UNCOMMITTED, {"cpu_us": uncommitted})


def many_ids(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure the longest time that a client waits while very many producers and transactional ids are created, and
    how long the next start takes.
    """
    rounds = []
    for number in range(size.rounds):
        say(f"{name} · round {number + 1} of {size.rounds}")
        found = ids.measure(size.count(ids.PRODUCERS), size.count(ids.TRANSACTIONAL_IDS))
        rounds.append({"stall_ms": found.stall_ms, "ready_s": found.ready_s})
    yield Measured(name, "id", OS, by_figure(rounds))
