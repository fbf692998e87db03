"""What the matrix of rights (tests/conformance/rights) does not show: which resource a right must be for, and that a
refused request changes nothing.
"""

from collections.abc import Iterator

import pytest
from acl_client import guarded
from fencepost.broker.handlers import consumer_groups
from fencepost.broker.requests import group_requests, safe_pattern
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest, ListTransactionsRequest
from guarded_broker import Guarded
from produce_requests import answers, batch, idempotent, produce
from simulated_broker import SimulatedBroker
from txn_client import Txn, state, values

OK = ErrorCode.NONE
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture
def world() -> Iterator[Guarded]:
    with SimulatedBroker(guarded(super_users="User:root")) as broker:
        yield Guarded(broker)


@pytest.mark.slow
@pytest.mark.requirement("S-36", "C-4")
@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], NO_CLUSTER),
        (["allow User:alice IDEMPOTENT_WRITE CLUSTER = kafka-cluster"], OK),
        (["allow User:alice WRITE TOPIC = none"], OK),
        (["allow User:alice WRITE TOPIC ^ n"], OK),
        (["allow User:alice ALL TOPIC = *", "deny User:alice WRITE TOPIC = *"], NO_CLUSTER),
        (["allow User:alice WRITE TOPIC = none @192.0.2.1"], NO_CLUSTER),
        (["allow User:alice READ TOPIC = t", "allow User:alice WRITE TRANSACTIONAL_ID = *"], NO_CLUSTER),
    ],
)
def test_init_producer_id_without_an_id_needs_write_on_any_topic(
    world: Guarded, rules: list[str], expected: ErrorCode
) -> None:
    world.have(*rules)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    answer = world.as_user("alice", lambda: world.client.ask(request))
    assert (answer.error_code, answer.producer_id >= 0) == (expected, expected is OK)


@pytest.mark.requirement("S-36", "C-4")
def test_idempotent_produce_needs_only_write_on_the_topic(world: Guarded) -> None:
    world.have("allow User:alice WRITE TOPIC = t")
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    given = world.as_user("alice", lambda: world.client.ask(request)).producer_id
    assert world.write("alice", idempotent(0, producer_id=given)) == OK


@pytest.mark.requirement("S-35")
def test_batches_are_authorized_by_their_own_producer_id_not_the_requests_id(world: Guarded) -> None:
    """CVE-2018-17196. The request has a transactional batch among others, and names a transactional id or none."""
    world.have("allow User:alice WRITE TOPIC = t", "allow User:bob ALL TRANSACTIONAL_ID = x")
    txn = Txn(world.broker, client=world.client)
    world.as_user("root", lambda: (txn.init(), txn.add("t", 0)))
    of_txn = idempotent(0, producer_id=txn.producer_id, epoch=txn.epoch, transactional=True)
    plain = produce("t", batch())
    plain.topic_data[0].partition_data[0].index = 1
    for named in (None, "x"):
        request = produce("t", of_txn, transactional_id=named)
        request.topic_data += plain.topic_data
        got = answers(world.as_user("alice", lambda asked=request: world.client.ask(asked, 11)))  # type: ignore[misc]
        assert [code for code, _ in got] == [NO_ID, NO_ID]
    assert world.written() == 0


@pytest.mark.requirement("S-35", "S-37")
@pytest.mark.parametrize("version", [1, 2])
def test_a_user_without_write_on_a_transactional_id_cannot_use_its_producer_id(world: Guarded, version: int) -> None:
    """This includes plain batches in a request without a transactional id: with the producer's next sequence number,
    with a newer epoch, and in another partition.
    """
    world.have("allow User:alice WRITE TOPIC = t", "allow User:bob WRITE TOPIC = t")
    world.have("allow User:alice WRITE TRANSACTIONAL_ID = x")
    txn = Txn(world.broker, version=version, client=world.client)
    world.as_user("alice", lambda: (txn.init(), txn.write("t", b"1"), txn.commit()))
    for epoch in (txn.epoch, txn.epoch + 1):
        for sequence in (txn.sequences["t", 0], 0):
            as_alice = idempotent(sequence, producer_id=txn.producer_id, epoch=epoch)
            assert world.write("bob", as_alice) == world.write("bob", as_alice, partition=1) == NO_ID
    world.as_user("alice", lambda: (txn.write("t", b"2", 0, 1), txn.commit()))
    assert values(world.broker, "t") == [b"1", b"2"]
    assert values(world.broker, "t", 1) == [b"2"]


@pytest.mark.requirement("S-35", "S-37")
@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ("WRITE TRANSACTIONAL_ID = x", OK),
        ("DESCRIBE TRANSACTIONAL_ID = x", NO_ID),
        ("TWO_PHASE_COMMIT TRANSACTIONAL_ID = x", NO_ID),
        ("WRITE TRANSACTIONAL_ID = y", NO_ID),
        ("WRITE TOPIC = x", NO_ID),
    ],
)
def test_using_the_producer_of_a_transactional_id_needs_write_on_that_id(
    world: Guarded, right: str, expected: ErrorCode
) -> None:
    """This includes batches outside of transactions."""
    world.have("allow User:bob WRITE TOPIC = t", f"allow User:bob {right}")
    txn = Txn(world.broker, client=world.client)
    world.as_user("root", lambda: (txn.init(), txn.write("t", b"1"), txn.commit()))
    as_x = idempotent(0, producer_id=txn.producer_id, epoch=txn.epoch)
    assert world.write("bob", as_x, partition=1) == expected


@pytest.mark.requirement("S-35", "S-37")
def test_produce_with_a_producer_id_not_yet_assigned_is_refused(world: Guarded) -> None:
    world.have("allow User:alice WRITE TOPIC = t", "allow User:bob WRITE TOPIC = t")
    world.have("allow User:alice WRITE TRANSACTIONAL_ID = x")
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    bobs = world.as_user("bob", lambda: world.client.ask(request)).producer_id
    for epoch in (0, 30_000):
        as_next = idempotent(0, producer_id=bobs + 1, epoch=epoch)
        assert world.write("bob", as_next) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert world.write("bob", idempotent(0, producer_id=bobs)) == OK
    txn = Txn(world.broker, client=world.client)
    world.as_user("alice", lambda: (txn.init(), txn.write("t", b"1"), txn.commit()))
    assert (txn.producer_id, values(world.broker, "t")[1:]) == (bobs + 1, [b"1"])


def test_the_error_of_a_wrong_partition_count_does_not_reveal_a_hidden_topic(world: Guarded) -> None:
    """A topic that exists and one that does not get the same error."""
    many = 10_003  # more than one request may create
    growing = [CreatePartitionsRequest.Topic(name=name, count=many) for name in ("t", "none")]
    making = [CreateTopicsRequest.Topic(name=name, num_partitions=many) for name in ("t", "none")]

    def codes(request: CreatePartitionsRequest | CreateTopicsRequest) -> list[int]:
        answer = world.as_user("alice", lambda: world.client.ask(request))
        return [each.error_code for each in getattr(answer, "results", None) or answer.topics]

    grown = [codes(CreatePartitionsRequest(topics=[topic], timeout_ms=1_000, validate_only=True)) for topic in growing]
    made = [codes(CreateTopicsRequest(topics=[topic], timeout_ms=1_000, validate_only=True)) for topic in making]
    assert grown == made == [[NO_TOPIC], [NO_TOPIC]]


def test_auto_creation_needs_the_right_to_create_topics(world: Guarded) -> None:
    world.have("allow User:alice READ TOPIC = new")

    def ask() -> int:
        request = MetadataRequest(topics=[MetadataRequest.Topic(name="new")])
        return int(world.as_user("alice", lambda: world.client.ask(request, 9)).topics[0].error_code)

    assert ask() == NO_TOPIC
    assert "new" not in world.broker.broker.topics.by_name
    world.have("allow User:alice CREATE TOPIC = new")
    assert ask() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the usual answer of a request that creates a topic"
    assert ask() == OK


def test_an_unauthorised_commit_or_abort_leaves_the_transaction_open(world: Guarded) -> None:
    txn = Txn(world.broker, client=world.client)
    world.as_user("root", lambda: (txn.init(), txn.write("t", b"v")))
    world.have("allow User:alice DESCRIBE TRANSACTIONAL_ID = x", "allow User:alice ALL TOPIC = *")
    assert world.as_user("alice", lambda: (txn.commit(), txn.abort(), *txn.add("t", 1))) == (NO_ID, NO_ID, NO_ID)
    assert world.as_user("root", lambda: state(world.broker)) == "Ongoing"
    assert world.as_user("root", txn.commit) == OK


@pytest.mark.requirement("S-37")
def test_a_list_transactions_pattern_is_not_matched_against_hidden_ids(
    world: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pattern takes too long only for ids that begin in a certain way, so its refusal would reveal that such an id
    exists.
    """
    monkeypatch.setattr(safe_pattern, "MAX_WORK", 1_000)
    world.as_user("root", lambda: Txn(world.broker, "hidden" + "a" * 200, client=world.client).init())
    request = ListTransactionsRequest(transactional_id_pattern="hidden(.*a.){40}")

    def code(user: str) -> int:
        return int(world.as_user(user, lambda: world.client.ask(request, 2)).error_code)

    assert (code("root"), code("alice")) == (ErrorCode.INVALID_REGULAR_EXPRESSION, OK)


def test_without_an_authorizer_produce_needs_no_right_and_takes_the_fast_path() -> None:
    with SimulatedBroker() as broker:
        world = Guarded(broker)
        assert world.write("alice") == OK
        assert not world.handled["Produce"], "only the general path counts requests here"


@pytest.mark.parametrize("many", [1, 1_000], ids=["in steps", "at once"])
def test_a_consumer_group_heartbeat_needs_describe_on_each_subscribed_topic(
    world: Guarded, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(consumer_groups, "MANY_TOPICS", many)
    monkeypatch.setattr(group_requests, "TOPICS_OF_A_STEP", 1)
    world.have("allow User:alice READ GROUP = g", "allow User:alice DESCRIBE TOPIC ^ a")

    def joined(*topics: str) -> int:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
        )
        code: int = world.as_user("alice", lambda: world.client.ask(request)).error_code
        return code

    assert joined("secret", "a1", "a2") == NO_TOPIC
    assert joined("a1", "a2", "secret") == NO_TOPIC
    assert joined("a1", "a2") == OK
