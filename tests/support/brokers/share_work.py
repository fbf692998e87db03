"""The nastiest requests of share groups: rows for tests/broker/net/test_work_of_requests.py."""

from typing import Any

from fencepost.broker.share.values import Found, SharePartitionKey, Wanted
from fencepost.protocol.messages.share_fetch import AcknowledgementBatch
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from produce_requests import batch, produce
from share_client import ACCEPT, ShareClient, initialize
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


def sharing(world: World) -> ShareClient:
    """A member of a share group that has a session of all partitions, and all records."""
    initialize(world.broker, "wide", *range(PARTITIONS))
    world.broker.ask(produce("wide", *[batch(10)] * PARTITIONS))
    member = ShareClient(world.broker, "wide")
    member.fetch(*range(PARTITIONS))
    while member.fetch().responses:
        pass
    return member


def fetch(world: World) -> list[Any]:
    """All of it is acknowledged with a fetch, and then the session is asked again and again."""
    member = sharing(world)
    acks = {number: [(0, 9, ACCEPT)] for number in range(PARTITIONS)}
    again = [member.fetching(epoch=member.epoch + number) for number in range(1, 30)]
    return [member.fetching(acks=acks), *again]


def acknowledge(world: World) -> list[Any]:
    member = sharing(world)
    acks = {number: [(0, 4, [1, 2, 3, 1, 2])] for number in range(PARTITIONS)}
    return [member.acknowledging(acks)]


def acknowledge_in_transaction(world: World) -> list[Any]:
    """A range for each record that a member can have, so that none is like the one before."""
    broker = world.broker.broker
    topic_id = broker.topics.by_name["wide"].id
    shares, records = broker.share_partitions, 2_000
    unit = shares.initialize(GROUP, {(topic_id, 0): 0})
    shares.state_log.topic.commit(unit.parts)
    unit.apply()
    found = [Found(0, records - 1)]
    shares.acquire(SharePartitionKey(GROUP, topic_id, 0), "m", 0, found, Wanted(records, records))
    who = world.broker.ask(InitProducerIdRequest(transactional_id="shares", transaction_timeout_ms=60_000), 5)
    batches = [
        AcknowledgementBatch(first_offset=number, last_offset=number, acknowledge_types=[1 + 2 * (number % 2)])
        for number in range(records)
    ]
    made = TxnShareAcknowledgeRequest.Topic
    parts = [made.Partition(partition_index=0, acknowledgement_batches=batches)]
    return [
        TxnShareAcknowledgeRequest(
            transactional_id="shares",
            group_id=GROUP,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            member_id="m",
            topics=[made(topic_id=topic_id, partitions=parts)],
        )
    ]


ROWS: dict[str, tuple[Any, ...]] = {
    "ShareGroupHeartbeat": (heartbeats, 80_000, "one unit, of 1,000 share partitions at most"),
    "ShareGroupDescribe": (describe,),
    "ShareFetch": (fetch, 60_000, "one unit, of 200 share partitions"),
    "ShareAcknowledge": (acknowledge, 130_000, "one unit, of 1,000 ranges"),
    "TxnShareAcknowledge": (acknowledge_in_transaction, 300_000, "one unit, of 2,000 ranges here"),
    "DescribeShareGroupOffsets": (describe_offsets,),
    "AlterShareGroupOffsets": (alter_offsets, 30_000, "one unit, of 100 share partitions at most"),
    "DeleteShareGroupOffsets": (delete_offsets, 10_000, "one unit, of the share partitions of one topic"),
}
