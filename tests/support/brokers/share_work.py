"""The nastiest requests of share groups: rows for tests/broker/net/test_work_of_requests.py."""

from typing import Any

from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from work_of_requests import PARTITIONS, World

MANY = 400
MEMBERS = 30
GROUP = "queue"


def _joining(number: int, topics: list[str]) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=f"m{number}", member_epoch=0, subscribed_topic_names=topics
    )


def _altering() -> AlterShareGroupOffsetsRequest:
    made = AlterShareGroupOffsetsRequest.Topic
    parts = [made.Partition(partition_index=number % PARTITIONS, start_offset=0) for number in range(MANY)]
    return AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[made(topic_name="wide", partitions=parts)])


def heartbeats(world: World) -> list[Any]:
    """Members who name topics that are not there, and one that is."""
    return [_joining(number, ["wide", *(f"n{each}" for each in range(MANY))]) for number in range(MEMBERS)]


def describe(world: World) -> list[Any]:
    """A group with members is described again and again."""
    for number in range(MEMBERS):
        assert world.broker.ask(_joining(number, ["wide"])).error_code == 0
    return [ShareGroupDescribeRequest(group_ids=[GROUP] * MANY)]


def describe_offsets(world: World) -> list[Any]:
    """A group that stands in many partitions is described again and again."""
    assert world.broker.ask(_altering()).error_code == 0
    asked = DescribeShareGroupOffsetsRequest.Group(group_id=GROUP, topics=None)
    return [DescribeShareGroupOffsetsRequest(groups=[asked] * MANY)]


def alter_offsets(world: World) -> list[Any]:
    """First where the group stands nowhere, then where it stands."""
    return [_altering()] * 2


def delete_offsets(world: World) -> list[Any]:
    """All partitions of a topic, and topics that are not there."""
    assert world.broker.ask(_altering()).error_code == 0
    named = [DeleteShareGroupOffsetsRequest.Topic(topic_name=name) for name in ("wide", *map(str, range(MANY)))]
    return [DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=named)]


ROWS: dict[str, tuple[Any, ...]] = {
    "ShareGroupHeartbeat": (heartbeats, 80_000, "one unit, of 1,000 share partitions at most"),
    "ShareGroupDescribe": (describe,),
    "DescribeShareGroupOffsets": (describe_offsets,),
    "AlterShareGroupOffsets": (alter_offsets, 30_000, "one unit, of 100 share partitions at most"),
    "DeleteShareGroupOffsets": (delete_offsets, 10_000, "one unit, of the share partitions of one topic"),
}
