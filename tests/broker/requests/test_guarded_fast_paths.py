"""With an authorizer the fast paths are still taken, and never by who may not: each request is judged by itself."""

from collections.abc import Iterator
from typing import Any

import pytest
from acl_client import guarded
from fencepost.protocol.errors import ErrorCode
from guarded_broker import Guarded
from produce_requests import create, idempotent, one, produce
from simulated_broker import SimulatedBroker
from txn_client import Txn

OK = ErrorCode.NONE
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
ALICE_WRITES = "allow User:alice WRITE TOPIC = t"
ALICE_HAS_X = "allow User:alice WRITE TRANSACTIONAL_ID = x"


@pytest.fixture
def world() -> Iterator[Guarded]:
    with SimulatedBroker(guarded(super_users="User:root")) as broker:
        yield Guarded(broker)


def test_with_the_write_right_produce_takes_the_fast_path(world: Guarded) -> None:
    world.have(ALICE_WRITES)
    assert [world.write("alice") for _ in range(3)] == [OK] * 3
    assert [world.write("root") for _ in range(3)] == [OK] * 3
    assert world.handled["Produce"] == 0
    assert world.written() == 6


def test_a_client_without_the_write_right_is_refused_after_others_wrote(world: Guarded) -> None:
    world.have(ALICE_WRITES)
    for _ in range(3):
        assert (world.write("alice"), world.write("bob")) == (OK, NO_TOPIC)
        assert world.write("bob") == NO_TOPIC
    assert world.written() == 3
    assert world.handled["Produce"] == 6, "the refused ones: the fast path leaves them to the handler"


def test_a_removed_write_right_applies_to_the_next_produce(world: Guarded) -> None:
    world.have(ALICE_WRITES)
    assert world.write("alice") == OK
    world.have("deny User:alice WRITE TOPIC ^ t @127.0.0.1")
    assert world.write("alice") == NO_TOPIC
    world.have_no_more("alice")
    assert world.write("alice") == NO_TOPIC
    world.have(ALICE_WRITES)
    assert world.write("alice") == OK
    assert world.handled["Produce"] == 2, "the refused ones: the fast path leaves them to the handler"
    assert world.written() == 2


def test_the_write_right_is_checked_for_each_topic_of_a_client(world: Guarded) -> None:
    world.as_user("root", lambda: world.broker.ask(create("u")))
    world.have(ALICE_WRITES)
    assert [world.write("alice", topic=topic) for topic in ("t", "u", "t", "u")] == [OK, NO_TOPIC, OK, NO_TOPIC]


def test_a_missing_topic_gets_the_same_error_as_a_forbidden_one(world: Guarded) -> None:
    assert world.write("alice", topic="t") == world.write("alice", topic="none") == NO_TOPIC
    world.have("allow User:alice WRITE TOPIC = none")
    assert world.write("alice", topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.requirement("S-35", "S-37")
def test_a_transactional_batch_needs_rights_on_its_id_and_its_topic(world: Guarded) -> None:
    world.have(ALICE_WRITES, ALICE_HAS_X, "allow User:bob WRITE TOPIC = t", "allow User:carl ALL TRANSACTIONAL_ID = x")
    world.have("allow User:dan WRITE TOPIC = t", "allow User:dan DESCRIBE TRANSACTIONAL_ID = x")
    txn = Txn(world.broker, client=world.client)
    world.as_user("alice", lambda: (txn.init(), txn.add("t", 0)))
    world.handled.clear()

    def write(user: str, sequence: int) -> ErrorCode:
        of_txn = idempotent(sequence, producer_id=txn.producer_id, epoch=txn.epoch, transactional=True)
        return world.write(user, of_txn, transactional_id="x")

    assert [write("alice", 0), write("alice", 1)] == [OK, OK]
    assert world.handled == {"Produce": 1}, "only the first of a transaction, which is looked at more closely"
    assert (write("bob", 2), write("carl", 2), write("dan", 2)) == (NO_ID, NO_TOPIC, NO_ID)
    assert write("alice", 2) == OK
    assert world.written() == 3


def test_an_end_txn_repeated_by_another_user_is_refused(world: Guarded) -> None:
    world.have(ALICE_WRITES, ALICE_HAS_X)
    txn = Txn(world.broker, client=world.client)

    def whole() -> list[int]:
        return [*txn.add("t", 0), txn.send("t", b"v"), txn.commit()]

    world.as_user("alice", txn.init)
    assert [world.as_user("alice", whole) for _ in range(3)] == [[OK] * 3] * 3
    assert world.handled["EndTxn"] == world.handled["AddPartitionsToTxn"] == 0
    assert world.as_user("bob", lambda: txn.add("t", 0)) == [NO_ID]
    assert world.as_user("alice", lambda: [*txn.add("t", 0), txn.send("t", b"v")]) == [OK, OK]
    assert world.as_user("bob", txn.commit) == world.as_user("bob", txn.abort) == NO_ID
    assert world.as_user("alice", txn.commit) == OK


def test_a_topic_without_the_write_right_is_not_added_to_a_transaction(world: Guarded) -> None:
    world.have(ALICE_WRITES, ALICE_HAS_X)
    txn = Txn(world.broker, client=world.client)
    world.as_user("alice", lambda: (txn.init(), txn.add("t", 0), txn.send("t", b"v"), txn.commit()))
    world.have("deny User:alice WRITE TOPIC = t")
    assert world.as_user("alice", lambda: txn.add("t", 0)) == [NO_TOPIC]


def test_an_internal_topic_cannot_be_added_to_a_transaction(world: Guarded) -> None:
    """This holds for super users and on the fast path too."""
    txn = Txn(world.broker, client=world.client)
    world.as_user("root", txn.init)  # which makes the topic of transactions
    for _ in range(2):
        assert world.as_user("root", lambda: txn.add("__transaction_state", 0)) == [NO_TOPIC]
    assert not world.broker.broker.transactions.transactions["x"].partitions


def test_a_batch_without_the_write_right_adds_no_partition_to_a_transaction(world: Guarded) -> None:
    """With transaction protocol TV2, a refused part of a produce request adds nothing to the transaction."""
    world.as_user("root", lambda: world.broker.ask(create("u")))
    world.have(ALICE_WRITES, ALICE_HAS_X)
    txn = Txn(world.broker, version=2, client=world.client)
    world.as_user("alice", txn.init)
    of_txn = idempotent(0, producer_id=txn.producer_id, epoch=txn.epoch, transactional=True)
    request = produce("t", of_txn, transactional_id="x")
    request.topic_data += produce("u", of_txn).topic_data
    response = world.as_user("alice", lambda: world.client.ask(request, 12))
    assert {topic.name: one_code(topic) for topic in response.responses} == {"t": OK, "u": NO_TOPIC}
    assert [name for name, _ in world.broker.broker.transactions.transactions["x"].partitions] == ["t"]


def one_code(topic: Any) -> int:
    return int(one(type("Response", (), {"responses": [topic]})).error_code)
