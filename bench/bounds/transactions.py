"""Bounds of transactions: reading over aborted ones, and very many ids."""

from collections.abc import Iterator

from ..loads import aborted
from ..loads import many_ids as ids
from ..measured import Measured
from ..peers.names import COMMITTED, OS, UNCOMMITTED
from .sizes import Say, Size, by_figure


def aborted_fetch(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """CPU of reading a range in which very many transactions were aborted, at both isolation levels."""
    committed, uncommitted = aborted.measure(size.count(aborted.ABORTED), size.rounds)
    yield Measured(name, "read", COMMITTED, {"cpu_us": committed})
    yield Measured(name, "read", UNCOMMITTED, {"cpu_us": uncommitted})


def many_ids(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Very many producers and transactional ids: the longest stall while they come, and the next start."""
    rounds = []
    for number in range(size.rounds):
        say(f"{name} · round {number + 1} of {size.rounds}")
        found = ids.measure(size.count(ids.PRODUCERS), size.count(ids.TRANSACTIONAL_IDS))
        rounds.append({"stall_ms": found.stall_ms, "ready_s": found.ready_s})
    yield Measured(name, "id", OS, by_figure(rounds))
