"""Admin's calls about groups: their members, and their committed offsets.

The rule: only an empty group can be changed from outside; for others the broker returns an error.
Sources: KIP-222, KIP-396, KIP-496, KIP-518, KIP-709, KIP-848; Kafka's KafkaAdminClient.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ...protocol.errors import ErrorCode, MalformedFrame
from ...protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ...protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
)
from ...protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ..arguments import offset_of
from ..assignors.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from ..errors import ClientError, UnsupportedVersionError
from ..settings import CLASSIC, CONSUMER
from ..values import OffsetAndMetadata, TopicPartition
from .asking import Answer, Asking, all_of, by_topic, one_or_more, only, refuse
from .values import GroupDescription, GroupListing, MemberDescription

_BY_NAME_UNTIL = 9  # of OffsetCommit and OffsetFetch: from version 10 on they have topic ids instead of names
_MANY_MEMBERS_SINCE = 3  # of LeaveGroup
_DEAD = "Dead"
_CLASSIC_MEMBER = 0  # KIP-1099


class GroupAdmin(Asking):
    """Consumer groups."""

    async def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Return all groups of all brokers, or those in these states or of these types, sorted by name.

        types: "classic", "consumer" for those whose broker assigns the partitions (KIP-848), "share" (KIP-932).
        """
        if isinstance(states, str) or isinstance(types, str):
            raise TypeError("states and types are lists of str")
        request = ListGroupsRequest(states_filter=list(states))
        answers = await self._at_all_nodes(request, lambda r: [r.error_code])
        refuse(Answer(f"broker {node}", response.error_code) for node, response in answers)
        found = {
            each.group_id: GroupListing(each.group_id, each.group_state, each.protocol_type, each.group_type)
            for _, response in answers
            for each in response.groups
        }
        wanted = {each.lower() for each in types}  # older brokers have classic groups only, and cannot choose
        listed = [found[name] for name in sorted(found)]
        return [each for each in listed if not wanted or (each.group_type.lower() or CLASSIC) in wanted]

    async def describe_groups(self, groups: str | Iterable[str]) -> dict[str, GroupDescription]:
        """Return the descriptions of these groups, by group id. A group that does not exist is left out."""
        described = await all_of(self._describe_group(each) for each in one_or_more(groups))
        return {each.group_id: each for each in described if each is not None}

    async def _describe_group(self, group: str) -> GroupDescription | None:
        """Describe one group with DescribeGroups, or as a group of the KIP-848 protocol if the broker says that there
        is no such classic group. Returns None if it is neither; raises any other error of the broker.
        """
        response: DescribeGroupsResponse = await self._ask(
            ("group", group), DescribeGroupsRequest(groups=[group]), lambda r: [each.error_code for each in r.groups]
        )
        found = only(response.groups, f"group {group}")
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == _DEAD:
            return await self._describe_newer_group(group)
        refuse([Answer(f"group {group}", found.error_code, found.error_message)])
        coordinator = await self._cluster.coordinator("group", group)
        return GroupDescription(
            group,
            found.group_state,
            found.protocol_type,
            found.protocol_data,
            coordinator.node_id,
            tuple(_member(each) for each in found.members),
        )

    async def _describe_newer_group(self, group: str) -> GroupDescription | None:
        """Describe a group of the KIP-848 protocol with ConsumerGroupDescribe. Returns None if there is none, or if
        the broker does not support that request; raises any other error of the broker.
        """
        coordinator = await self._cluster.coordinator("group", group)
        if not coordinator.knows(ConsumerGroupDescribeRequest, 0):
            return None
        response: ConsumerGroupDescribeResponse = await self._ask(
            ("group", group),
            ConsumerGroupDescribeRequest(group_ids=[group]),
            lambda r: [each.error_code for each in r.groups],
        )
        found = only(response.groups, f"group {group}")
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == _DEAD:
            return None
        refuse([Answer(f"group {group}", found.error_code, found.error_message)])
        return GroupDescription(
            group,
            found.group_state,
            PROTOCOL_TYPE,
            found.assignor_name,
            coordinator.node_id,
            tuple(_newer_member(each) for each in found.members),
            CONSUMER,
            found.group_epoch,
        )

    async def delete_groups(self, groups: str | Iterable[str]) -> None:
        """Delete the groups and their offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        wanted = list(one_or_more(groups))
        responses = await all_of(
            self._ask(
                ("group", each),
                DeleteGroupsRequest(groups_names=[each]),
                lambda r: [one.error_code for one in r.results],
            )
            for each in wanted
        )
        refuse(Answer(f"group {one.group_id}", one.error_code) for response in responses for one in response.results)

    async def remove_members(
        self, group: str, member_ids: Iterable[str] = (), instance_ids: Iterable[str] = ()
    ) -> None:
        """Remove members; static ones are named by their group_instance_id. Raises UNKNOWN_MEMBER_ID."""
        Member = LeaveGroupRequest.Member
        reason = "removed by an administrator"
        members = [Member(member_id=each, reason=reason) for each in member_ids]
        members += [Member(group_instance_id=each, reason=reason) for each in instance_ids]
        coordinator = await self._cluster.coordinator("group", group)
        if coordinator.version_of(LeaveGroupRequest) < _MANY_MEMBERS_SINCE:
            raise UnsupportedVersionError("removing members of a group needs a broker of Kafka 2.4 or newer")
        request = LeaveGroupRequest(group_id=group, members=members)
        response = await self._ask(("group", group), request, lambda r: [r.error_code])
        refuse([Answer(f"group {group}", response.error_code)])
        refuse(
            Answer(f"member {each.group_instance_id or each.member_id}", each.error_code) for each in response.members
        )

    # ---- offsets -------------------------------------------------------------------------------------------------

    async def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets, of these partitions or of all. A partition without one has no entry.

        require_stable: wait for the end of open transactions that commit offsets of the group.
        """
        Group = OffsetFetchRequest.Group
        wanted = None if partitions is None else by_topic(partitions)
        request = OffsetFetchRequest(
            group_id=group,
            topics=None
            if wanted is None
            else [OffsetFetchRequest.Topic(name=name, partition_indexes=which) for name, which in wanted.items()],
            groups=[
                Group(
                    group_id=group,
                    topics=None
                    if wanted is None
                    else [Group.Topic(name=name, partition_indexes=which) for name, which in wanted.items()],
                )
            ],
            require_stable=require_stable,
        )
        response = await self._ask(("group", group), request, _codes_of_fetch, cap=_BY_NAME_UNTIL)
        refuse(Answer(f"group {group}", code) for code in _codes_of_group(response))
        topics = [topic for each in response.groups for topic in each.topics] or response.topics
        _refuse_partitions(topics)
        return {
            TopicPartition(topic.name, one.partition_index): OffsetAndMetadata(
                one.committed_offset, one.metadata or "", one.committed_leader_epoch
            )
            for topic in topics
            for one in topic.partitions
            if one.committed_offset >= 0
        }

    async def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Set committed offsets of the group. Raises NON_EMPTY_GROUP while it has members."""
        Topic = OffsetCommitRequest.Topic
        positions = {each: offset_of(at) for each, at in offsets.items()}
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                Topic(
                    name=name,
                    partitions=[_commit_entry(each, positions[TopicPartition(name, each)]) for each in which],
                )
                for name, which in by_topic(positions).items()
            ],
        )
        response = await self._ask(("group", group), request, _codes_of_partitions, cap=_BY_NAME_UNTIL)
        if any(code == ErrorCode.UNKNOWN_MEMBER_ID for code in _codes_of_partitions(response)):
            raise ClientError(
                f"group {group} has active members: only they can commit its offsets",
                code=ErrorCode.NON_EMPTY_GROUP,
                hint="stop its consumers first",
            )
        _refuse_partitions(response.topics)

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets of the group. Raises GROUP_SUBSCRIBED_TO_TOPIC while members read the topic."""
        Topic = OffsetDeleteRequest.Topic
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                Topic(name=name, partitions=[Topic.Partition(partition_index=each) for each in which])
                for name, which in by_topic(partitions).items()
            ],
        )
        response = await self._ask(("group", group), request, lambda r: [r.error_code, *_codes_of_partitions(r)])
        refuse([Answer(f"group {group}", response.error_code)])
        _refuse_partitions(response.topics)


def _member(member: DescribeGroupsResponse.Group.Member) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.lstrip("/"),
        _assigned_partitions(member.member_assignment),
    )


def _newer_member(member: ConsumerGroupDescribeResponse.Group.Member) -> MemberDescription:
    """Describe a member of a group of the KIP-848 protocol, with its epoch and target assignment."""
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.lstrip("/"),
        _partitions_of(member.assignment),
        member.member_epoch,
        _partitions_of(member.target_assignment),
        member.member_type == _CLASSIC_MEMBER,
    )


def _partitions_of(assignment: ConsumerGroupDescribeResponse.Group.Member.Assignment) -> tuple[TopicPartition, ...]:
    topics = assignment.topic_partitions
    return tuple(sorted(TopicPartition(topic.topic_name, number) for topic in topics for number in topic.partitions))


def _assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the member's partitions; none if the group uses another protocol or is rebalancing."""
    try:
        return tuple(sorted(decode_assignment(assignment).partitions))
    except MalformedFrame:
        return ()


def _commit_entry(partition: int, at: OffsetAndMetadata) -> OffsetCommitRequest.Topic.Partition:
    return OffsetCommitRequest.Topic.Partition(
        partition_index=partition,
        committed_offset=at.offset,
        committed_leader_epoch=at.leader_epoch,
        committed_metadata=at.metadata,
    )


def _codes_of_group(response: OffsetFetchResponse) -> list[int]:
    return [response.error_code, *(each.error_code for each in response.groups)]


def _codes_of_fetch(response: OffsetFetchResponse) -> list[int]:
    """Return all error codes of an OffsetFetch response: of the group and of each partition."""
    topics = [topic for each in response.groups for topic in each.topics] or response.topics
    return _codes_of_group(response) + [one.error_code for topic in topics for one in topic.partitions]


def _codes_of_partitions(response: Any) -> list[int]:
    return [one.error_code for topic in response.topics for one in topic.partitions]


def _refuse_partitions(topics: Iterable[Any]) -> None:
    """Raise the error of the first partition that has one, in the topics of a response."""
    refuse(
        Answer(f"{topic.name}-{one.partition_index}", one.error_code) for topic in topics for one in topic.partitions
    )
