"""Groups that stand at chosen offsets of a mirror's source, and what each of them reads at the target after a cutover.

Each value says where its record is (mirror_kills.value_of), so that one list of a consumer's values tells the order in
every partition.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from java_clients import JavaClients
from mirror_kills import value_of
from mirrored import records_of

COMPACTED_PARTITIONS = 3
QUICKLY_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": "1048576",
}
PATIENCE_S = 120
LATE_MS = 1_500
"""What comes twice would have come by then."""

Places = Mapping[TopicPartition, int]
Values = Mapping[str, list[str]]


class MovedGroup(NamedTuple):
    """A group by its protocol, and by which client its member is."""

    protocol: Literal["classic", "consumer"]
    by: Literal["sdk", "java"]

    @property
    def name(self) -> str:
        return f"moved-{self.protocol}-{self.by}"


GROUPS = [MovedGroup(protocol, by) for protocol in ("classic", "consumer") for by in ("sdk", "java")]  # type: ignore[arg-type]


async def make_compacted(bootstrap: str, topic: str) -> None:
    """Make a topic of which compaction has taken records of each partition, and takes no more of them once the broker
    is started again.
    """
    async with Admin(bootstrap) as admin:
        await admin.create_topics(NewTopic(topic, COMPACTED_PARTITIONS, configs=QUICKLY_COMPACTED))
        deadline, number, gaps = time.monotonic() + PATIENCE_S, 0, list[list[int]]()
        while not (gaps and all(gaps)):
            assert time.monotonic() < deadline, "compaction took nothing"
            async with Producer(bootstrap) as producer:
                for each in range(number, number + 600):
                    at = each % COMPACTED_PARTITIONS
                    key = each if each % 7 == 0 else -(each % 97)  # some keys come once, and stay between gaps
                    await producer.send(topic, value_of(topic, at, each), key=b"%d" % key, partition=at)
                await producer.flush()
            number += 600
            await asyncio.sleep(0.5)  # compaction takes only segments that are older
            there = await records_of(bootstrap, topic)
            gaps = [gaps_in([each.offset for each in records]) for records in there.values()]
        await admin.alter_configs(topic=topic, set={"cleanup.policy": "delete", "retention.ms": "-1"})


def gaps_in(offsets: list[int]) -> list[int]:
    """Return the offsets between the first and the last of these ascending offsets that are not among them."""
    return sorted({*range(offsets[0], offsets[-1])}.difference(offsets))


class Source:
    """The records of the source's topics, and in each partition an offset of each kind at which a group may stand."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, list[tuple[int, str]]] = {}
        self.kinds: dict[TopicPartition, dict[str, int]] = {}

    async def look(self, bootstrap: str, topics: Iterable[str]) -> None:
        """Read all of these topics, and keep their committed records and an offset of each kind."""
        async with Admin(bootstrap) as admin:
            for topic in topics:
                everything = await records_of(bootstrap, topic, "read_uncommitted")
                for partition, records in (await records_of(bootstrap, topic)).items():
                    tp = TopicPartition(topic, partition)
                    self.committed[tp] = [(each.offset, (each.value or b"").decode()) for each in records]
                    end = (await admin.ends([tp], -1, "read_committed"))[tp]
                    self.kinds[tp] = self._kinds_in(tp, {each.offset for each in everything[partition]}, end)

    def _kinds_in(self, tp: TopicPartition, there: set[int], end: int) -> dict[str, int]:
        """Return an offset of each kind in a partition, by words: a record, an aborted record, the end, …

        there: the offsets that have a record, committed or not.
        """
        committed = [offset for offset, _ in self.committed[tp]]
        gaps = gaps_in(committed)
        aborted = [each for each in gaps if each in there]
        empty = [each for each in gaps if each not in there]  # markers, and what compaction took
        kinds = {"a record": committed[len(committed) // 2], "an offset without a record": empty[len(empty) // 2]}
        if aborted:
            kinds["an aborted record"] = aborted[len(aborted) // 2]
        return kinds | {"after the last record": committed[-1] + 1, "the end": end, "the beginning": 0}

    def places(self, number: int) -> dict[TopicPartition, int]:
        """Return the offsets that group `number` commits, by partition. Their kinds (see _kinds_in) go round over the
        partitions, and begin with another one in each group.
        """
        found = {}
        for place, (tp, kinds) in enumerate(sorted(self.kinds.items())):
            names = list(kinds)
            found[tp] = kinds[names[(place + number) % len(names)]]
        return found

    def rest(self, places: Places) -> dict[str, list[str]]:
        """Return the values at these offsets and after them, by topic and partition."""
        return {
            f"{tp.topic}-{tp.partition}": [value for offset, value in self.committed[tp] if offset >= place]
            for tp, place in places.items()
        }


async def commit_as(group: MovedGroup, java: JavaClients, bootstrap: str, topics: list[str], places: Places) -> None:
    """Commit these offsets as a member of the group, which then leaves."""
    if group.by == "java":
        reader = java.consumer(bootstrap, group.name, group_protocol=group.protocol)
        reader.do("subscribe", topic=",".join(topics))
        deadline = time.monotonic() + PATIENCE_S
        while not reader.do("assigned")["assigned"]:
            assert time.monotonic() < deadline, "the member was assigned nothing"
            reader.poll(200)
        written = " ".join(f"{tp.topic}/{tp.partition}/{offset}" for tp, offset in places.items())
        reader.do("commitAt", places=written)
        reader.do("close")
        return
    async with Consumer(
        bootstrap, group_id=group.name, topics=topics, group_protocol=group.protocol, auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=200)
        await consumer.commit(places)


async def read_as(group: MovedGroup, java: JavaClients, bootstrap: str, topics: list[str], count: int) -> Values:
    """Read `count` values as a member of the group, and a moment longer. Returns them by topic and partition.

    A partition without a committed offset is an error.
    """
    values = list[str]()
    deadline = time.monotonic() + PATIENCE_S
    if group.by == "java":
        reader = java.consumer(bootstrap, group.name, group_protocol=group.protocol, auto_offset_reset="none")
        reader.do("subscribe", topic=",".join(topics))
        while len(values) < count and time.monotonic() < deadline:
            values += reader.poll()
        values += reader.poll(LATE_MS)
        reader.do("close")
    else:
        async with Consumer(
            bootstrap, group_id=group.name, topics=topics, group_protocol=group.protocol, auto_offset_reset="none",
        ) as consumer:  # fmt: skip
            for wait_ms in (500, LATE_MS):
                while True:
                    polled = await consumer.getmany(timeout_ms=wait_ms)
                    values += [(each.value or b"").decode() for records in polled.values() for each in records]
                    if wait_ms == LATE_MS or len(values) >= count or time.monotonic() > deadline:
                        break
    found = defaultdict(list)
    for value in values:
        found[value.partition("/")[0]].append(value)
    return found
