"""What a cutover looks at on both sides: topics, groups, ends, whether the source refuses writes. Changes nothing."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ...admin.admin import Admin
from ...admin.offsets import EARLIEST, LATEST
from ...admin.security_values import AclBinding, AclFilter
from ...admin.values import GroupDescription, TopicDescription
from ...errors import UnsupportedVersionError
from ...values import TopicPartition
from ..names import group_id
from ..positions import Position, decode_position
from .plan import Barrier, Found, GroupFound, Offsets

SETTING = "fencepost.writes.refused"


def denial_of(topic: str) -> AclBinding:
    """Return the rule of access by which a cutover refuses writes to the topic."""
    return AclBinding("User:*", "write", "topic", topic, "literal", "*", "deny")


@dataclass(frozen=True)
class Looking:
    """Both clusters, the mirror's name, and the names of the groups as a regular expression. producers_stopped, partly:
    as in Found.
    """

    source: Admin
    target: Admin
    mirror: str
    groups: str
    producers_stopped: bool = False
    partly: bool = False

    async def positions(self) -> dict[TopicPartition, Position]:
        """Return the mirror's position in each source partition, once no open transaction may move one."""
        committed = await self.target.list_group_offsets(group_id(self.mirror), require_stable=True)
        return {partition: decode_position(at) for partition, at in committed.items()}

    async def source_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Return the descriptions of these topics, by name, without topics that the source does not have."""
        there = await self.source.describe_topics()
        return {name: there[name] for name in sorted(set(names)) if name in there}

    async def copies(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the ids of these topics on the target, without those that it does not have."""
        there = await self.target.describe_topics()
        return {name: bytes(there[name].topic_id) for name in names if name in there}

    async def look(self, *, waits_for_stable: bool, named: Collection[str] | None = None) -> Found:
        """Return all that the plan of a cutover has to know. named: as in find_groups().

        waits_for_stable: wait for offsets of groups that an open transaction holds. Before such transactions are
        aborted, that may take any time.
        """
        positions = await self.positions()
        names = sorted({partition.topic for partition in positions})
        topics = await self.source_topics(names)
        partitions = [each for topic in topics.values() for each in topic.topic_partitions]
        starts = await self.source.ends(partitions, EARLIEST)
        ends = await self.source.ends(partitions, LATEST)
        barrier = await self.barrier(topics)
        return Found(
            tuple(topics),
            await self.find_groups(set(topics), waits_for_stable=waits_for_stable, named=named),
            barrier,
            await self.refusing(topics, barrier),
            ends,
            find_stopped(positions, topics, starts, ends, await self.copies(names)),
            self.producers_stopped,
            self.partly,
        )

    async def barrier(self, topics: Iterable[str]) -> Barrier:
        """Return how the source can refuse writes to these topics."""
        for name in topics:
            configs = await self.source.describe_configs(topics=name)
            if any(each.name == SETTING for each in configs[name]):
                return "setting"
            break
        try:
            await self.source.describe_acls(AclFilter(resource_type="topic"))
        except KafkaError as error:
            if error.code == ErrorCode.SECURITY_DISABLED or isinstance(error, UnsupportedVersionError):
                return "none"
            raise
        return "rule"

    async def refusing(self, topics: Iterable[str], barrier: Barrier) -> frozenset[str]:
        """Return which of these topics refuse writes now."""
        names = list(topics)
        if barrier == "setting":
            configs = await self.source.describe_configs(topics=names) if names else {}
            return frozenset(
                name
                for name, entries in configs.items()
                if any(each.name == SETTING and each.value == "true" for each in entries)
            )
        if barrier == "rule":
            rules = await self.source.describe_acls(AclFilter(resource_type="topic", permission="deny"))
            return frozenset(name for name in names if denial_of(name) in rules)
        return frozenset()

    async def find_groups(
        self, topics: set[str], *, waits_for_stable: bool, named: Collection[str] | None = None
    ) -> dict[str, GroupFound]:
        """Return, by name, those groups of the source that match the regular expression and have offsets in these
        topics. named: these groups instead, even where the source has nothing of them.
        """
        meant = [
            each
            for each in await self.source.list_groups()
            if (re.fullmatch(self.groups, each.group_id) if named is None else each.group_id in named)
        ]
        found = {name: GroupFound("classic", {}) for name in named or ()}
        for each in meant:
            kind = each.group_type or "classic"
            offsets: Offsets = {}
            if kind == "share":
                shared = await self.source.list_share_group_offsets(each.group_id)
                read = {partition.topic for partition in shared}
            else:
                committed = await self.source.list_group_offsets(each.group_id, require_stable=waits_for_stable)
                offsets = {partition: at for partition, at in committed.items() if partition.topic in topics}
                read = {partition.topic for partition in committed}
            if read & topics:
                others = tuple(sorted(read - topics))
                found[each.group_id] = GroupFound(kind, offsets, others)
        return {name: await self._with_members(name, group, topics) for name, group in sorted(found.items())}

    async def _with_members(self, name: str, group: GroupFound, topics: set[str]) -> GroupFound:
        """Return the group with its members on both sides, and with its offsets on the target."""
        if group.kind == "share":
            return group
        here = (await self.source.describe_groups(name)).get(name)
        there = (await self.target.describe_groups(name)).get(name)
        offsets = await self.target.list_group_offsets(name)
        return GroupFound(
            group.kind,
            group.offsets,
            group.others,
            _members(here),
            {partition: at for partition, at in offsets.items() if partition.topic in topics},
            _members(there),
        )


def _members(group: GroupDescription | None) -> tuple[str, ...]:
    """Return the group's members as client@host."""
    if group is None:
        return ()
    return tuple(f"{each.client_id or each.member_id}@{each.client_host.lstrip('/')}" for each in group.members)


def find_stopped(
    positions: Mapping[TopicPartition, Position],
    topics: Mapping[str, TopicDescription],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    copies: Mapping[str, bytes],
) -> dict[TopicPartition, str]:
    """Return, for each partition that is not copied any more, a text that says why: its log on the source is no longer
    the one that was copied, its copy was deleted, or what the mirror's task has written down. copies: the ids of the
    topics on the target.
    """
    found: dict[TopicPartition, str] = {}
    for partition, position in positions.items():
        topic = topics.get(partition.topic)
        if topic is None or partition not in ends:
            found[partition] = "it is not at the source any more"
        elif bytes(topic.topic_id) != position.topic_id:
            found[partition] = "it was deleted and made again at the source"
        elif partition.topic not in copies or not position.is_of_copy(copies[partition.topic]):
            found[partition] = "it was deleted at the target, and has to be copied anew"
        elif ends[partition] < position.offset:
            found[partition] = f"it ends at {ends[partition]} at the source, and was copied up to {position.offset}"
        elif starts[partition] > position.offset:
            found[partition] = (
                f"it begins at {starts[partition]} at the source, and was copied up to {position.offset}: retention "
                "has taken what is between"
            )
        elif position.stopped:
            found[partition] = position.stopped
    return found
