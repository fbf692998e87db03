"""Measures the inbox: database transactions that also store the place in the topic, compared to the same inserts
without it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from .. import librdkafka, topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import INBOX, INSERTS
from ..peers.postgres import postgres
from . import inbox_loads
from .processes import figures_of
from .sizes import Say, Size, by_figure, in_turns

TOPIC = "bench-inbox"
RECORD_BYTES = 100
FEWEST = 50  # transactions of a quick run


@dataclass(frozen=True, slots=True)
class Inboxes:
    """Batches of this many records, with an insert for each. transactions: how many in a full run."""

    records: int
    transactions: int

    def measure(self, name: str, size: Size, say: Say) -> Iterator[Measured]:
        """Measure transactions with and without an inbox, alternately. Yields a result for each."""
        count = max(FEWEST, size.count(self.transactions))
        with postgres() as url, peers.fencepost("os") as broker:
            topics.create(broker.host, broker.port, TOPIC, 1)
            load = librdkafka.ProduceLoad(TOPIC, count * self.records, RECORD_BYTES)
            librdkafka.produce(broker.bootstrap, load, lambda _done: None)
            words = broker.bootstrap, TOPIC, url, str(self.records), str(count)
            runs = (partial(figures_of, inbox_loads, work, *words) for work in inbox_loads.WORKS)
            found = in_turns(size.rounds, *runs)
        for peer, rounds in zip((INBOX, INSERTS), found, strict=True):
            yield Measured(name, "transaction", peer, by_figure(rounds))
