"""Two clusters with a mirror between them: what is written to the source, and what a reader finds on both sides."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

from fencepost.client.admin.admin import Admin
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.group.heartbeat import MEMBER_CHOOSES_ID
from fencepost.client.mirror.cutover.record import is_cutover_key
from fencepost.client.mirror.names import MAP_TOPIC, group_id
from fencepost.client.mirror.offset_map import EntryKey, Run, decode_entry, decode_key
from fencepost.client.mirror.positions import decode_position
from fencepost.client.mirror.task import MirrorTask
from fencepost.client.net.environment import SYSTEM, Environment
from fencepost.client.settings import IsolationLevel
from fencepost.client.values import Record, TopicPartition
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

_numbers = itertools.count()
PATIENCE_S = 60
"""No test waits for longer: what has not come by then does not come."""


class Content(NamedTuple):
    """What a mirror keeps of a record; its offset is not among it."""

    key: bytes | None
    value: bytes | None
    headers: Any
    timestamp_ms: int


class Sides:
    """A source and a target by their addresses, and the tasks of mirrors between them."""

    def __init__(self, source: str, target: str, **more: Any) -> None:
        """more: settings of the target's clients."""
        self.source, self.target = source, target
        self._more = more
        self.told: list[str] = []

    def task(
        self,
        topics: str = ".*",
        mirror: str = "default",
        name: str = "",
        environment: Environment = SYSTEM,
        **more: Any,
    ) -> MirrorTask:
        """Return a task that is not running yet. name: by default one that no other has."""
        target = {"bootstrap.servers": self.target, "retry.backoff.max.ms": 100, **self._more, **more}
        return MirrorTask(
            {"bootstrap.servers": self.source, "retry.backoff.max.ms": 100},
            target,
            mirror=mirror,
            topics=topics,
            task=name or f"{next(_numbers)}",
            tell=self.told.append,
            environment=environment,
            follow_ms=300,
        )

    @asynccontextmanager
    async def running(self, task: MirrorTask | None = None) -> AsyncIterator[MirrorTask]:
        """Run a task for as long as the block takes; an error of it ends the test."""
        task = task or self.task()
        work = asyncio.ensure_future(task.run())
        try:
            yield task
        finally:
            work.cancel()
            for error in await asyncio.gather(work, return_exceptions=True):
                if isinstance(error, Exception):
                    raise error

    async def told_something(self) -> None:
        """Wait until a task has told the first line of its log, which is for people."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.told:  # noqa: ASYNC110  # a list, that a task appends to
                await asyncio.sleep(0.05)

    async def joined(self, tasks: int, mirror: str) -> None:
        """Wait until the group of this mirror has this many members, and each has partitions."""
        async with asyncio.timeout(PATIENCE_S), Admin(self.target) as admin:
            while True:
                group = (await admin.describe_groups([group_id(mirror)])).get(group_id(mirror))
                members = [] if group is None or group.state != "Stable" else group.members
                if len([each for each in members if each.assignment]) == tasks:
                    return
                await asyncio.sleep(0.05)

    async def drained(self, *topics: str, mirror: str = "default") -> None:
        """Wait until the mirror's positions are at the source's ends, and its last transactions have ended in all
        partitions: an Apache Kafka writes the markers to the positions, the copies and the map one after the other.
        """
        async with asyncio.timeout(PATIENCE_S), Admin(self.source) as source, Admin(self.target) as target:
            while True:
                found = await source.describe_topics(topics)
                wanted = [tp for topic in found.values() for tp in topic.topic_partitions]
                ends = await source.ends(wanted, -1, "read_committed")
                listed = await target.list_group_offsets(group_id(mirror))
                at = {tp: each.offset for tp, each in listed.items() if tp in ends}
                if at == ends:
                    copies = [*ends, TopicPartition(MAP_TOPIC, 0)]
                    if await target.ends(copies, -1) == await target.ends(copies, -1, "read_committed"):
                        return
                await asyncio.sleep(0.05)


async def group_protocols_of(bootstrap: str) -> list[Literal["classic", "consumer"]]:
    """Return the group protocols that a broker has: before Kafka 4.0 only the classic one."""
    async with Admin(bootstrap) as admin:
        newest = await admin._version(ConsumerGroupHeartbeatRequest)
    return ["classic", "consumer"] if newest >= MEMBER_CHOOSES_ID else ["classic"]


async def records_of(
    bootstrap: str, topic: str, isolation_level: IsolationLevel = "read_committed"
) -> dict[int, list[Record]]:
    """Return the records of each partition, in order: by default the committed ones."""
    found = dict[int, list[Record]]()
    async with Consumer(bootstrap, isolation_level=isolation_level) as consumer:
        partitions = [TopicPartition(topic, each) for each in sorted(await consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        found = {tp.partition: [] for tp in partitions}
        for tp in partitions:
            while await consumer.position(tp) < ends[tp]:
                for records in (await consumer.getmany(tp, timeout_ms=1000)).values():
                    found[tp.partition] += records
    return found


def contents(records: Sequence[Record]) -> list[Content]:
    """Return what must be equal on both sides."""
    return [Content(each.key, each.value, each.headers, each.timestamp_ms) for each in records]


async def map_entries(sides: Sides) -> dict[EntryKey, tuple[Run, ...]]:
    """Return the newest runs of each entry of the map on the target."""
    found = dict[EntryKey, tuple[Run, ...]]()
    for record in (await records_of(sides.target, MAP_TOPIC))[0]:
        if is_cutover_key(record.key):
            continue
        key = decode_key(record.key)
        found.pop(key, None)
        if record.value is not None:
            found[key] = decode_entry(key.first, record.value).runs
    return found


async def assert_exact(sides: Sides, topic: str, mirror: str = "default") -> int:
    """Compare the topic on both sides, record by record, and each record's place with the map. Returns how many."""
    source, target = await records_of(sides.source, topic), await records_of(sides.target, topic)
    assert {p: contents(each) for p, each in target.items()} == {p: contents(each) for p, each in source.items()}
    async with Admin(sides.source) as admin, Admin(sides.target) as there:
        topic_id = (await admin.describe_topics([topic]))[topic].topic_id
        listed = await there.list_group_offsets(group_id(mirror))
    entries = await map_entries(sides)
    for partition, records in source.items():
        tp = TopicPartition(topic, partition)
        assert decode_position(listed[tp]).topic_id == topic_id
        went = {each.offset: copy.offset for each, copy in zip(records, target[partition], strict=True)}
        mapped = dict[int, int]()
        for key, runs in entries.items():
            if (key.mirror, key.topic_id, key.partition) == (mirror, topic_id, partition):
                mapped |= {run.source + each: run.target + each for run in runs for each in range(run.count)}
        assert {offset: mapped.get(offset) for offset in went} == went
    return sum(map(len, source.values()))
