"""Measures the inbox: database transactions that also store the place in the topic, compared to the same inserts
without it.
"""

from collections.abc import Iterator
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
TRANSACTIONS, RECORD_BYTES = 1_000, 100
FEWEST = 50  # transactions of a quick run


def inboxes(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure transactions of one insert with and without an inbox, alternately. Yields a result for each."""
    count = max(FEWEST, size.count(TRANSACTIONS))
    with postgres() as url, peers.fencepost("os") as broker:
        topics.create(broker.host, broker.port, TOPIC, 1)
        load = librdkafka.ProduceLoad(TOPIC, count, RECORD_BYTES)
        librdkafka.produce(broker.bootstrap, load, lambda _done: None)
        words = broker.bootstrap, TOPIC, url, str(count)
        found = in_turns(size.rounds, *(partial(figures_of, inbox_loads, work, *words) for work in inbox_loads.WORKS))
    for peer, rounds in zip((INBOX, INSERTS), found, strict=True):
        yield Measured(name, "transaction", peer, by_figure(rounds))
