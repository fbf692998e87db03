"""Measures one commit over broker and database, and two commits, between which a crash leaves rows without records.

Broker and PostgreSQL both sync.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from .. import topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import APART, DECIDED, ENDED
from ..peers.postgres import postgres
from . import commit_loads
from .outbox import TWO_PHASE
from .processes import figures_of
from .sizes import Say, Size, by_figure, in_turns

TRANSACTIONS = 300
FEWEST = 10  # transactions of a quick run
WORKS = {ENDED: "ended", DECIDED: "decided", APART: "apart"}  # as commit_loads names them


@dataclass(frozen=True, slots=True)
class Commits:
    """Transactions of this many rows, each with a record."""

    rows: int

    def measure(self, name: str, size: Size, say: Say) -> Iterator[Measured]:
        """Measure the three ways of WORKS alternately. Yields a result for each."""
        count = max(FEWEST, size.count(TRANSACTIONS))
        with postgres() as url, peers.fencepost("fsync", None, "-X", TWO_PHASE) as broker:
            topics.create(broker.host, broker.port, commit_loads.TOPIC, 1)
            words = broker.bootstrap, url, str(self.rows), str(count)
            found = in_turns(size.rounds, *(partial(figures_of, commit_loads, work, *words) for work in WORKS.values()))
        for peer, rounds in zip(WORKS, found, strict=True):
            yield Measured(name, "transaction", peer, by_figure(rounds))
