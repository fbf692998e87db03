"""Two users with different rights on one share group and in one transaction, each logged in over a socket of its own.

Alice may read group `packing` and topic `jobs`, and write in transaction `alices`. Bob has the rights that tests give.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from acl_client import creating
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.broker.share.values import SharePartitionKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_fetch import AcknowledgementBatch, ShareAcknowledgeRequest, ShareFetchRequest
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from login_client import add_users, log_in
from produce_requests import batch, code, create, produce
from served_broker import ServedBroker
from terminal import Terminal
from wire_client import WireClient

LIMIT = 100
GROUP, MEMBER = "packing", "m-1"
NO_GROUP, NO_TOPIC = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
ALICE = ("READ GROUP = packing", "READ TOPIC = jobs", "READ TOPIC = secret", "WRITE TRANSACTIONAL_ID = alices")


class World:
    """A broker, and one connection for each user. Alice has acquired all LIMIT records of jobs-0."""

    def __init__(self, broker: ServedBroker, *bobs: str) -> None:
        self.broker = broker
        broker.inside(lambda inside: add_users(inside, "alice", "bob", "root"))
        self.alice, self.bob, self.root = (self.connect(name) for name in ("alice", "bob", "root"))
        for topic in ("jobs", "secret"):
            assert not self.root.call(create(topic)).topics[0].error_code
            assert code(self.root.call(produce(topic, batch(LIMIT)), 9)) is ErrorCode.NONE
        rules = [f"allow User:alice {rule}" for rule in ALICE] + [f"allow User:bob {rule}" for rule in bobs]
        assert not any(each.error_code for each in self.root.call(creating(*rules)).results)
        self.jobs, self.secret = (
            broker.inside(lambda inside, name=name: inside.topics.by_name[name].id) for name in ("jobs", "secret")
        )
        assert not self.alice.call(starts("jobs", "secret")).error_code
        answer = self.alice.call(self.fetching(0))
        assert [(each.first_offset, each.last_offset) for each in acquired(answer)] == [(0, LIMIT - 1)]

    def connect(self, name: str) -> WireClient:
        client = self.broker.connect()
        assert not log_in(client, name).error_code
        return client

    def fetching(self, epoch: int, *acks: AcknowledgementBatch) -> ShareFetchRequest:
        """Return a ShareFetch of jobs-0 in the session of Alice's member."""
        part = ShareFetchRequest.Topic.Partition(partition_index=0, acknowledgement_batches=list(acks))
        return ShareFetchRequest(
            group_id=GROUP,
            member_id=MEMBER,
            share_session_epoch=epoch,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=LIMIT,
            batch_size=LIMIT,
            topics=[ShareFetchRequest.Topic(topic_id=self.jobs, partitions=[part])],
        )

    def acknowledging(self, epoch: int) -> ShareAcknowledgeRequest:
        """Return a ShareAcknowledge of the first record, in the session of Alice's member."""
        part = ShareAcknowledgeRequest.Topic.Partition(partition_index=0, acknowledgement_batches=[ranges(0, 0)])
        topics = [ShareAcknowledgeRequest.Topic(topic_id=self.jobs, partitions=[part])]
        return ShareAcknowledgeRequest(group_id=GROUP, member_id=MEMBER, share_session_epoch=epoch, topics=topics)

    def in_transaction(self, transactional_id: str, who: tuple[int, int], last: int = 0) -> TxnShareAcknowledgeRequest:
        """Return a TxnShareAcknowledge of the records 0 to last of Alice's member. who: producer id and epoch."""
        Topic = TxnShareAcknowledgeRequest.Topic
        part = Topic.Partition(partition_index=0, acknowledgement_batches=[ranges(0, last)])
        return TxnShareAcknowledgeRequest(
            transactional_id=transactional_id,
            producer_id=who[0],
            producer_epoch=who[1],
            group_id=GROUP,
            member_id=MEMBER,
            topics=[Topic(topic_id=self.jobs, partitions=[part])],
        )

    def states(self) -> set[int]:
        """Return the states of all records of jobs-0: 1 acquired, 2 acknowledged, 10 pending."""
        key = SharePartitionKey(GROUP, self.jobs, 0)

        def look(inside: Any) -> set[int]:
            machine = inside.share_partitions.state_log.known[key].machine
            return {run.state for _, _, run in machine.runs.pieces(machine.start, machine.end) if run is not None}

        return self.broker.inside(look)


def ranges(first: int, last: int) -> AcknowledgementBatch:
    """Return an acknowledgement that accepts these records."""
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])


def starts(*topics: str) -> AlterShareGroupOffsetsRequest:
    """Return a request that sets the group's start offset in partition 0 of each topic to 0."""
    Topic = AlterShareGroupOffsetsRequest.Topic
    parts = [Topic.Partition(partition_index=0, start_offset=0)]
    return AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[Topic(topic_name=t, partitions=parts) for t in topics])


def acquired(answer: Any) -> list[Any]:
    """Return the ranges of all partitions that a ShareFetch has acquired."""
    return [each for topic in answer.responses for part in topic.partitions for each in part.acquired_records]


def part_of(answer: Any) -> Any:
    """Return the only partition of a response."""
    ((part,),) = (topic.partitions for topic in getattr(answer, "topics", None) or answer.responses)
    return part


def begin(client: WireClient, transactional_id: str) -> tuple[int, int]:
    """Return a new producer id and epoch."""
    answer = client.call(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 5)
    assert not answer.error_code
    return answer.producer_id, answer.producer_epoch


@pytest.fixture
def served() -> Iterator[ServedBroker]:
    with ServedBroker(
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256"),
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:root",
        group_share_partition_max_record_locks=LIMIT,
    ) as broker:
        yield broker
        broker.close_clients()


@pytest.mark.slow
def test_a_user_without_rights_on_a_share_group_can_do_nothing_with_it(served: ServedBroker) -> None:
    world = World(served, "READ TOPIC = jobs", "WRITE TRANSACTIONAL_ID = bobs")
    bob, bobs = world.bob, begin(world.bob, "bobs")
    offsets = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequest.Group(group_id=GROUP, topics=None)]
    )
    deleting = DeleteShareGroupOffsetsRequest(
        group_id=GROUP, topics=[DeleteShareGroupOffsetsRequest.Topic(topic_name="jobs")]
    )
    joining = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=MEMBER, member_epoch=0, subscribed_topic_names=["jobs"]
    )
    whole = [world.fetching(epoch, *acks) for epoch, acks in ((0, ()), (1, ()), (1, (ranges(0, 0),)), (-1, ()))]
    whole += [world.acknowledging(1), world.acknowledging(-1), world.in_transaction("bobs", bobs)]
    assert [bob.call(each).error_code for each in [*whole, joining, starts("jobs"), deleting]] == [NO_GROUP] * 10
    assert [
        bob.call(each).groups[0].error_code for each in (offsets, ShareGroupDescribeRequest(group_ids=[GROUP]))
    ] == [NO_GROUP] * 2
    assert world.states() == {1}
    assert part_of(world.alice.call(world.acknowledging(1))).error_code == 0, "Alice's session has its old epoch"


@pytest.mark.slow
def test_a_user_who_may_read_a_share_group_but_not_its_topic_gets_no_record(served: ServedBroker) -> None:
    """The user gets none even with the member id and session epoch of a member that may read the topic. As in Kafka,
    whoever may read the group may end its sessions.
    """
    world = World(served, "READ GROUP = packing", "WRITE TRANSACTIONAL_ID = bobs")
    bobs = begin(world.bob, "bobs")
    assert part_of(world.bob.call(world.in_transaction("bobs", bobs))).error_code == NO_TOPIC
    assert part_of(world.bob.call(world.acknowledging(1))).error_code == NO_TOPIC
    part = part_of(world.bob.call(world.fetching(2, ranges(0, 0))))
    assert (part.error_code, part.acknowledge_error_code, part.records or b"") == (NO_TOPIC, NO_TOPIC, b"")
    assert world.states() == {1}
    assert part_of(world.bob.call(world.fetching(0))).error_code == NO_TOPIC, "in Bob's session, Alice's member id"
    assert part_of(world.bob.call(starts("jobs"))).error_code == NO_TOPIC
    assert world.states() == {1}


@pytest.mark.slow
def test_records_are_not_acknowledged_in_the_transaction_of_another_user(served: ServedBroker) -> None:
    """Another user may not end that transaction either."""
    world = World(served, "WRITE TRANSACTIONAL_ID = bobs")
    bobs, alices = begin(world.bob, "bobs"), begin(world.alice, "alices")
    assert world.alice.call(world.in_transaction("bobs", bobs)).error_code == (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert world.alice.call(world.in_transaction("alices", bobs)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.states() == {1}
    assert part_of(world.alice.call(world.in_transaction("alices", alices, LIMIT - 1))).error_code == 0
    ending = EndTxnRequest(transactional_id="alices", producer_id=alices[0], producer_epoch=alices[1], committed=True)
    assert world.bob.call(ending, 5).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert world.states() == {10}


@pytest.mark.slow
def test_commands_name_no_topic_or_transaction_that_their_user_may_not_see(served: ServedBroker) -> None:
    """A user who may describe the group and one of its topics sees that the group's window there is full, but neither
    the transactional id of the transaction that has the records nor the other topic.
    """
    world = World(served, "READ GROUP = packing", "DESCRIBE TOPIC = jobs", "DELETE GROUP = packing")
    alices = begin(world.alice, "alices")
    assert part_of(world.alice.call(world.in_transaction("alices", alices, LIMIT - 1))).error_code == 0
    terminal = Terminal(served)
    login = "-X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN -X sasl.username={0} -X sasl.password={0}-pw"

    def looked(user: str) -> str:
        """Return everything that commands print for this user."""
        shown = ""
        for line in (
            "share-group list",
            "share-group describe packing",
            "share-group delete packing",
            "txn list",
            "txn why-blocked",
            "txn why-blocked -g packing",
            "txn why-blocked jobs:0",
            "doctor",
        ):
            shown += f"$ {line}\n{terminal.run(f'{line} {login.format(user)}')}{terminal.err}"
        return shown

    roots, bobs = looked("root"), looked("bob")
    assert ("secret" in roots, "alices" in roots) == (True, True)
    assert "pending in a transaction of producer 0, whose id is not visible to you" in bobs
    assert ("secret" in bobs, "alices" in bobs) == (False, False)
    assert (
        "Not allowed to use this transactional id" in terminal.refused(f"txn describe alices {login.format('bob')}")[1]
    )
