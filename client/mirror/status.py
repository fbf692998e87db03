"""How far a mirror is, by what both clusters know of it: positions, ends, tasks. `gather` asks; the rest is pure.

Why a partition has stopped follows from the logs, or its task has written it into the position. A topic in which the
mirror has no position yet is not among them.

Offsets are counted, not records: markers and what was aborted are among them. The rate is that of the positions over
the time between two looks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...protocol.errors import KafkaError
from ..admin.offsets import EARLIEST, LATEST
from ..values import TopicPartition
from .cutover.looking import Looking, find_stopped
from .names import group_id


@dataclass(frozen=True)
class Look:
    """What was seen at once. tasks: the mirror's tasks, "client@host", with the partitions that each has. unavailable:
    partitions of which the source does not say the end now, and why.
    """

    positions: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    stopped: Mapping[TopicPartition, str]
    tasks: Mapping[str, int]
    unavailable: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])


@dataclass(frozen=True)
class TopicStatus:
    """One topic of the mirror. lag: offsets up to the source's end. rate: offsets in a second. left_s: the time that
    the lag takes at this rate; None if the rate is 0 and there is a lag. stopped, unavailable: partitions, and why;
    those of which the source does not say the end now have no part in the lag.
    """

    topic: str
    partitions: int
    lag: int
    rate: float
    left_s: float | None
    stopped: Mapping[int, str]
    unavailable: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def state(self) -> str:
        """Return in a word what the mirror does with the topic: stopped, copied, copying or waiting."""
        if self.stopped:
            return "stopped"
        if self.unavailable and not self.rate:
            return "waiting"
        return "copied" if not self.lag else "copying" if self.rate > 0 else "waiting"


def topics_of(before: Look, after: Look, seconds: float) -> list[TopicStatus]:
    """Return the status of each topic, from two looks. seconds: the time between them."""
    names = sorted({partition.topic for partition in {*after.ends, *after.positions}})
    return [_topic(name, before, after, seconds) for name in names]


def _topic(name: str, before: Look, after: Look, seconds: float) -> TopicStatus:
    """Return the status of one topic."""
    partitions = sorted(each for each in {*after.ends, *after.positions} if each.topic == name)
    lag = sum(_lag(after, each) for each in partitions)
    moved = sum(_position(after, each) - _position(before, each) for each in partitions if each in before.positions)
    rate = max(0, moved) / seconds
    left = 0.0 if not lag else lag / rate if rate else None
    stopped = {each.partition: after.stopped[each] for each in partitions if each in after.stopped}
    unavailable = {each.partition: after.unavailable[each] for each in partitions if each in after.unavailable}
    return TopicStatus(name, len(partitions), lag, rate, left, stopped, unavailable)


def _position(look: Look, partition: TopicPartition) -> int:
    """Return the mirror's position in the partition; without one, the first offset of the source."""
    return look.positions.get(partition, look.starts.get(partition, 0))


def _lag(look: Look, partition: TopicPartition) -> int:
    return max(0, look.ends.get(partition, 0) - _position(look, partition))


async def gather(looking: Looking) -> Look:
    """Return what the mirror's status is made of: its positions, where the source's logs begin and end, which
    partitions have stopped or are unavailable, and the tasks.
    """
    positions = await looking.positions()
    names = {each.topic for each in positions}
    described = await looking.source_topics(names)
    partitions = [each for topic in described.values() for each in topic.topic_partitions]
    unavailable = dict[TopicPartition, KafkaError]()
    starts = await looking.source.ends(partitions, EARLIEST, unavailable=unavailable)
    ends = await looking.source.ends(partitions, LATEST, unavailable=unavailable)
    seen = {each: position for each, position in positions.items() if each not in unavailable}
    group = (await looking.target.describe_groups(group_id(looking.mirror))).get(group_id(looking.mirror))
    tasks = (
        {f"{each.client_id}@{each.client_host.lstrip('/')}": len(each.assignment) for each in group.members}
        if group
        else {}
    )
    return Look(
        {each: position.offset for each, position in positions.items()},
        starts,
        ends,
        find_stopped(seen, described, starts, ends, await looking.copies(names)),
        tasks,
        {each: error.text for each, error in unavailable.items()},
    )
