"""The bound of the mirror: how fast it copies, compared with a consumer and a producer of the SDK."""

from collections.abc import Iterator
from functools import partial
from itertools import count

from .. import librdkafka, topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import COPIED, MIRRORED
from ..peers.peers import Peer
from . import mirror_loads
from .processes import Figures, figures_of
from .sizes import Say, Size, by_figure, in_turns

TOPIC = "bench-mirror"
RECORDS = 400_000
FEWEST = 20_000  # of a quick run: several transactions
RECORD_BYTES = 100
BATCH_BYTES = 1 << 14


def mirrors(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure one task of a mirror, and a loop of a consumer and a transactional producer, alternately, each with a
    topic of its own. Yields a result for each.
    """
    records = max(FEWEST, size.count(RECORDS))
    with peers.fencepost("os") as source, peers.fencepost("os") as target:
        numbers = count()
        works = [partial(_figures, work, source, target, numbers, records) for work in ("mirrored", "copied")]
        found = in_turns(size.rounds, *works)
    for peer, rounds in zip((MIRRORED, COPIED), found, strict=True):
        yield Measured(name, "record", peer, by_figure(rounds))


def _figures(work: str, source: Peer, target: Peer, numbers: Iterator[int], records: int) -> Figures:
    """Fill a topic of the source, and run one load of mirror_loads in a process. numbers: count
    up; the next one is part of the topic's name.
    """
    topic = f"{TOPIC}-{next(numbers)}"
    topics.create(source.host, source.port, topic, mirror_loads.PARTITIONS)
    topics.create(target.host, target.port, f"{topic}-copied", mirror_loads.PARTITIONS)
    load = librdkafka.ProduceLoad(topic, records, RECORD_BYTES, BATCH_BYTES)
    librdkafka.produce(source.bootstrap, load, lambda _done: None)
    return figures_of(mirror_loads, work, source.bootstrap, target.bootstrap, topic, str(records))
