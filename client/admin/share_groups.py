"""Admin's calls about share groups: their members, and where they stand in each partition.

The rule: only a group without members can be changed from outside, as with consumer groups. A share group stands at its
start offset: all before it is done, some after it may be done too, and the lag counts what is not.
Source: KIP-932, KIP-1226; Kafka's KafkaAdminClient.
"""

from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode
from ...protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ...protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ..values import TopicPartition
from .asking import Answer, Asking, all_of, by_topic, one_or_more, only, refuse
from .values import GroupDescription, MemberDescription, PendingRange, SharePartitionOffsets, ShareWindow

SHARE = "share"
_DEAD = "Dead"
_Window = DescribeShareGroupOffsetsResponse.Group.Topic.Partition.Window


class ShareGroupAdmin(Asking):
    """Share groups. They are listed by list_groups(types=["share"]) and deleted by delete_groups()."""

    async def describe_share_groups(self, groups: str | Iterable[str]) -> dict[str, GroupDescription]:
        """Return the share groups by name. One that does not exist, or is not a share group, is left out."""
        described = await all_of(self._describe_share_group(each) for each in one_or_more(groups))
        return {each.group_id: each for each in described if each is not None}

    async def _describe_share_group(self, group: str) -> GroupDescription | None:
        """Describe one share group with ShareGroupDescribe. Returns None if it does not exist; raises any other error
        of the broker.
        """
        response: ShareGroupDescribeResponse = await self._ask(
            ("group", group),
            ShareGroupDescribeRequest(group_ids=[group]),
            lambda r: [each.error_code for each in r.groups],
        )
        found = only(response.groups, f"group {group}")
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == _DEAD:
            return None
        refuse([Answer(f"group {group}", found.error_code, found.error_message)])
        coordinator = await self._cluster.coordinator("group", group)
        return GroupDescription(
            group,
            found.group_state,
            SHARE,
            found.assignor_name,
            coordinator.node_id,
            tuple(_member(each) for each in found.members),
            SHARE,
            found.group_epoch,
        )

    async def list_share_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, SharePartitionOffsets]:
        """Return the group's start offset and lag in these partitions, or in all. One without a start offset has no
        entry.
        """
        Group = DescribeShareGroupOffsetsRequest.Group
        topics = None
        if partitions is not None:
            wanted = by_topic(partitions)
            topics = [Group.Topic(topic_name=name, partitions=which) for name, which in wanted.items()]
        response: DescribeShareGroupOffsetsResponse = await self._ask(
            ("group", group),
            DescribeShareGroupOffsetsRequest(groups=[Group(group_id=group, topics=topics)]),
            _codes_of_description,
        )
        found = only(response.groups, f"group {group}")
        refuse([Answer(f"group {group}", found.error_code, found.error_message)])
        refuse(
            Answer(f"{topic.topic_name}-{one.partition_index}", one.error_code, one.error_message)
            for topic in found.topics
            for one in topic.partitions
        )
        return {
            TopicPartition(topic.topic_name, one.partition_index): SharePartitionOffsets(
                one.start_offset, one.leader_epoch, one.lag if one.lag >= 0 else None, _window(one.window)
            )
            for topic in found.topics
            for one in topic.partitions
            if one.start_offset >= 0
        }

    async def alter_share_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the group's start offsets. A group that does not exist is created.

        Raises NON_EMPTY_GROUP while the group has members, or while a transaction is open that has acknowledged records
        of the group.
        """
        Topic = AlterShareGroupOffsetsRequest.Topic
        request = AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                Topic(
                    topic_name=name,
                    partitions=[
                        Topic.Partition(partition_index=each, start_offset=offsets[TopicPartition(name, each)])
                        for each in which
                    ],
                )
                for name, which in by_topic(offsets).items()
            ],
        )
        response: AlterShareGroupOffsetsResponse = await self._ask(
            ("group", group),
            request,
            lambda r: [r.error_code, *(one.error_code for topic in r.responses for one in topic.partitions)],
        )
        refuse([Answer(f"group {group}", response.error_code, response.error_message)])
        refuse(
            Answer(f"{topic.topic_name}-{one.partition_index}", one.error_code, one.error_message)
            for topic in response.responses
            for one in topic.partitions
        )

    async def delete_share_group_offsets(self, group: str, topics: str | Iterable[str]) -> None:
        """Delete the group's start offsets of these topics. Raises NON_EMPTY_GROUP while it has members."""
        Topic = DeleteShareGroupOffsetsRequest.Topic
        request = DeleteShareGroupOffsetsRequest(
            group_id=group, topics=[Topic(topic_name=name) for name in one_or_more(topics)]
        )
        response: DeleteShareGroupOffsetsResponse = await self._ask(
            ("group", group), request, lambda r: [r.error_code, *(each.error_code for each in r.responses)]
        )
        refuse([Answer(f"group {group}", response.error_code, response.error_message)])
        refuse(Answer(f"topic {each.topic_name}", each.error_code, each.error_message) for each in response.responses)


def _member(member: ShareGroupDescribeResponse.Group.Member) -> MemberDescription:
    topics = member.assignment.topic_partitions
    assigned = (TopicPartition(topic.topic_name, number) for topic in topics for number in topic.partitions)
    return MemberDescription(
        member.member_id,
        None,
        member.client_id,
        member.client_host.lstrip("/"),
        tuple(sorted(assigned)),
        member.member_epoch,
        is_classic=False,
    )


def _window(answer: _Window | None) -> ShareWindow | None:
    """Convert the window of a share partition (records delivered and not done); None stays None."""
    if answer is None:
        return None
    pending = tuple(
        PendingRange(each.first_offset, each.last_offset, each.transactional_id, each.producer_id, each.member_id)
        for each in answer.pending
    )
    return ShareWindow(answer.size, answer.limit, answer.pending_count, pending, answer.runs, answer.lacks_memory)


def _codes_of_description(response: DescribeShareGroupOffsetsResponse) -> list[int]:
    """Return all error codes of a DescribeShareGroupOffsets response: of the groups and of their partitions."""
    parts = [one.error_code for each in response.groups for topic in each.topics for one in topic.partitions]
    return [each.error_code for each in response.groups] + parts
