"""Bounds of share groups: workers of the SDK, and acknowledgement in transactions."""

from collections.abc import Iterator
from functools import partial

from .. import librdkafka, topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import ACKNOWLEDGED, OFFSETS, OS
from ..peers.peers import Peer
from . import share_loads
from .processes import figures_of
from .sizes import Say, Size, by_figure, in_turns

TOPIC = "bench-share"
WORKED, IN_TRANSACTIONS = 100_000, 20_000  # records
FEWEST = 200  # records of a quick run
RECORD_BYTES = 100
BATCH_BYTES = 1 << 14


def workers(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure four workers of the SDK that read one partition as a share group."""
    records = max(FEWEST, size.count(WORKED))
    with peers.fencepost("os") as broker:
        _fill(broker, records)
        words = broker.bootstrap, TOPIC, str(records)
        rounds = [figures_of(share_loads, "workers", *words) for _ in range(size.rounds)]
    yield Measured(name, "record", OS, by_figure(rounds))


def transactions(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure transactions that acknowledge 100 records of a share group, and transactions that commit a consumer's
    offsets, alternately. Yields a result for each.
    """
    records = max(FEWEST, size.count(IN_TRANSACTIONS))
    with peers.fencepost("os") as broker:
        _fill(broker, records)
        topics.create(broker.host, broker.port, f"{TOPIC}-done", 1)
        words = broker.bootstrap, TOPIC, str(records)
        works = (partial(figures_of, share_loads, work, *words) for work in ("acknowledged", "offsets"))
        found = in_turns(size.rounds, *works)
    for peer, rounds in zip((ACKNOWLEDGED, OFFSETS), found, strict=True):
        yield Measured(name, "transaction", peer, by_figure(rounds))


def _fill(peer: Peer, records: int) -> None:
    """Create the topic with one partition, and write this many records to it."""
    topics.create(peer.host, peer.port, TOPIC, 1)
    load = librdkafka.ProduceLoad(TOPIC, records, RECORD_BYTES, BATCH_BYTES)
    librdkafka.produce(peer.bootstrap, load, lambda _done: None)
