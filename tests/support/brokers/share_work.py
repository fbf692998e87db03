"""The most expensive requests of share groups: rows for tests/broker/net/test_work_of_requests.py."""

from typing import Any

from fencepost.broker.share.values import AcquiredRange
from fencepost.protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from produce_requests import batch, produce
from share_client import ACCEPT, Ack, ShareClient, initialize
from share_transactions import begin
from work_of_requests import PARTITIONS, World, consumer_descriptions

MANY = 400
MEMBERS = 30
GROUP = "queue"
RANGES = 10_000  # of one request
RUNS = 1_000  # of one range, or of a session


def _joining(number: int, topics: list[str]) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=f"m{number}", member_epoch=0, subscribed_topic_names=topics
    )


def _altering() -> AlterShareGroupOffsetsRequest:
    made = AlterShareGroupOffsetsRequest.Topic
    parts = [made.Partition(partition_index=number % PARTITIONS, start_offset=0) for number in range(MANY)]
    return AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[made(topic_name="wide", partitions=parts)])


def heartbeats(world: World) -> list[Any]:
    """Return heartbeats of members that subscribe to one topic that exists and many that do not."""
    return [_joining(number, ["wide", *(f"n{each}" for each in range(MANY))]) for number in range(MEMBERS)]


def describe(world: World) -> list[Any]:
    """Return requests that describe a group again and again, each of whose members names many other topics."""
    for number in range(MEMBERS):
        topics = ["wide", *(f"n{number}-{each}" for each in range(MANY))]
        assert world.broker.ask(_joining(number, topics)).error_code == 0
    return [ShareGroupDescribeRequest(group_ids=[GROUP] * MANY)]


def describe_offsets(world: World) -> list[Any]:
    """Return requests that describe the offsets of a group with many partitions again and again."""
    assert world.broker.ask(_altering()).error_code == 0
    asked = DescribeShareGroupOffsetsRequest.Group(group_id=GROUP, topics=None)
    return [DescribeShareGroupOffsetsRequest(groups=[asked] * MANY)]


def alter_offsets(world: World) -> list[Any]:
    """Return a request that sets the offsets of many partitions, twice: the second time the group has offsets there."""
    return [_altering()] * 2


def delete_offsets(world: World) -> list[Any]:
    """Return a request that deletes the group's offsets of all partitions of a topic, and of many missing topics."""
    assert world.broker.ask(_altering()).error_code == 0
    named = [DeleteShareGroupOffsetsRequest.Topic(topic_name=name) for name in ("wide", *map(str, range(MANY)))]
    return [DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=named)]


def sharing(world: World) -> ShareClient:
    """Return a member of a share group that has a session of all partitions, and has acquired all their records."""
    initialize(world.broker, "wide", *range(PARTITIONS))
    world.broker.ask(produce("wide", *[batch(10)] * PARTITIONS))
    member = ShareClient(world.broker, "wide")
    member.fetch(*range(PARTITIONS))
    while member.fetch().responses:
        pass
    return member


def fetch(world: World) -> list[Any]:
    """Return a fetch that acknowledges all acquired records, and many fetches of the same session after it."""
    member = sharing(world)
    acks = {number: [(0, 9, ACCEPT)] for number in range(PARTITIONS)}
    again = [member.fetching(epoch=member.epoch + number) for number in range(1, 30)]
    return [member.fetching(acks=acks), *again]


def member_with_many_records(world: Any) -> ShareClient:
    """Return a member that has acquired RANGES records, as many as one request may name ranges."""
    (key,) = begin(world.broker, "wide", GROUP)
    member = ShareClient(world.broker, "wide", group=GROUP)
    machine = world.broker.broker.share_partitions.state_log.known[key].machine
    machine.acquire([AcquiredRange(0, RANGES - 1, 1)], member.member, 1 << 60)
    member.fetch(0)
    return member


def many_acks(*kinds: int) -> dict[int, list[Ack]]:
    """Return acknowledgements of RANGES single records by these types in turn, so that no two neighbours are alike."""
    return {0: [(number, number, kinds[number % len(kinds)]) for number in range(RANGES)]}


def small_requests_with_much_work(world: Any) -> list[Any]:
    """Return small requests that make much work.

    They acknowledge many ranges; one range of many runs; and nothing, but end a session whose member has many runs.
    """
    members = [member_with_many_records(world)]
    ((_, kept),) = world.broker.broker.share_partitions.state_log.known.items()
    for number, name in enumerate(("one range", "leaving"), 1):
        member = ShareClient(world.broker, "wide", group=GROUP, member=name)
        member.fetch(0)
        begin = number * RANGES
        kept.machine.acquire([AcquiredRange(n, n, 1 + n % 2) for n in range(begin, begin + RUNS)], name, 1 << 60)
        members.append(member)
    many, one, leaving = members
    acks: dict[int, list[Ack]] = {0: [(RANGES, RANGES + RUNS - 1, ACCEPT)]}
    return [acknowledging(many), one.acknowledging(acks), leaving.acknowledging({}, epoch=-1)]


def acknowledging(member: ShareClient) -> ShareAcknowledgeRequest:
    return member.acknowledging(many_acks(1, 2, 3))


def fetching(member: ShareClient) -> ShareFetchRequest:
    """Return a fetch that acknowledges RANGES records, and renews the locks of some of them."""
    nothing = {"max_wait_ms": 0, "max_bytes": 0, "min_bytes": 0, "max_records": 0}
    return member.fetching(acks=many_acks(2, 1, 4), is_renew_ack=True, **nothing)


def in_transaction(
    world: Any, member: ShareClient, acks: dict[int, list[Ack]], name: str = "shares"
) -> TxnShareAcknowledgeRequest:
    """Return a request by which the member acknowledges these records in a transaction with a new producer id."""
    who = world.broker.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 5)
    made = TxnShareAcknowledgeRequest.Topic
    parts = [
        made.Partition(partition_index=part.partition_index, acknowledgement_batches=part.acknowledgement_batches)
        for part in member.acknowledging(acks).topics[0].partitions
    ]
    return TxnShareAcknowledgeRequest(
        transactional_id=name,
        group_id=member.group,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        member_id=member.member,
        topics=[made(topic_id=member.topic_id, partitions=parts)],
    )


ROWS: dict[str, tuple[Any, ...]] = {
    "ShareGroupHeartbeat": (heartbeats, 80_000, "one unit, of 1,000 share partitions at most"),
    "ShareGroupDescribe": (describe,),
    "ConsumerGroupDescribe": (consumer_descriptions(MANY, MANY),),
    "ShareFetch": (fetch, 60_000, "one unit, of 200 share partitions"),
    "ShareAcknowledge": (small_requests_with_much_work,),
    "TxnShareAcknowledge": (lambda world: [in_transaction(world, member_with_many_records(world), many_acks(1, 3))],),
    "DescribeShareGroupOffsets": (describe_offsets,),
    "AlterShareGroupOffsets": (alter_offsets, 30_000, "one unit, of 100 share partitions at most"),
    "DeleteShareGroupOffsets": (delete_offsets, 10_000, "one unit, of the share partitions of one topic"),
}
