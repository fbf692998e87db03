"""fencepost.writes.refused=true: no record is added to the topic. It can be read, and its open transactions end."""

import pytest
from config_requests import change
from fencepost.protocol.errors import ErrorCode
from named_requests import opened
from named_requests import write as write_named
from produce_requests import answers, batch, create, idempotent, one, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, begun, values

TOPIC, SET, DELETE = 2, 0, 1  # the resource type; operations of IncrementalAlterConfigs
REFUSED = ErrorCode.POLICY_VIOLATION


@pytest.fixture
def broker():
    with SimulatedBroker() as broker:
        broker.ask(create("t", 2))
        yield broker


@pytest.fixture
def client(broker):
    return SimulatedClient(broker)


def refuse_writes(broker, refused=True):
    value = ("fencepost.writes.refused", SET if refused else DELETE, "true" if refused else None)
    assert change(broker, TOPIC, "t", value)[0] == 0


def codes(client, made, **more):
    return [code for code, _ in answers(client.ask(produce("t", made, **more), 9))]


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_batch_to_a_topic_that_refuses_writes_gets_an_error_naming_the_setting(client, broker, acks):
    assert codes(client, batch(value=b"before"), acks=acks) == [0]
    refuse_writes(broker)
    answer = one(client.ask(produce("t", batch(value=b"after"), acks=acks), 9))
    assert answer.error_code == REFUSED
    assert "fencepost.writes.refused" in answer.error_message
    assert values(broker, "t") == [b"before"]
    refuse_writes(broker, refused=False)
    assert codes(client, batch(value=b"again"), acks=acks) == [0]
    assert values(broker, "t") == [b"before", b"again"]


def test_with_acks_0_a_batch_to_a_topic_that_refuses_writes_closes_the_connection(client, broker):
    refuse_writes(broker)
    client.send_unanswered(produce("t", batch(value=b"after"), acks=0), 9)
    assert client.closed()
    assert values(broker, "t") == []


def test_a_retried_batch_written_before_writes_were_refused_gets_its_offset(client, broker):
    producer_id = begun(broker, name="other").producer_id
    mine = idempotent(0, producer_id=producer_id + 1)
    assert answers(client.ask(produce("t", mine), 9)) == [(0, 0)]
    refuse_writes(broker)
    assert answers(client.ask(produce("t", mine), 9)) == [(0, 0)]
    assert codes(client, idempotent(1, producer_id=producer_id + 1)) == [REFUSED]


def test_while_writes_are_refused_a_named_producer_can_only_repeat_batches(broker):
    epoch = opened(broker, "sensor", t=2)
    assert write_named(broker, "sensor", epoch, 1, 2).error_code == 0
    refuse_writes(broker)
    assert write_named(broker, "sensor", epoch, 1, 2).named.duplicate
    assert write_named(broker, "sensor", epoch, 3).error_code == REFUSED
    assert values(broker, "t") == [b"1", b"2"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_while_writes_are_refused_an_open_transaction_can_only_be_ended(broker, version, commit):
    txn = begun(broker, version=version)
    txn.write("t", b"before")
    refuse_writes(broker)
    assert txn.send("t", b"after") == REFUSED
    assert txn.end(commit) == 0
    assert values(broker, "t") == [b"before"] * commit


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_begun_while_writes_are_refused_adds_no_record(broker, version):
    refuse_writes(broker)
    txn = Txn(broker, version=version)
    assert txn.init() == 0
    if version == 1:
        txn.add("t", 0)
    assert txn.send("t", b"after") == REFUSED
    # With TV1 the partition was not added to the transaction, which is found first.
    assert txn.send("t", b"after", 1) == (ErrorCode.INVALID_TXN_STATE if version == 1 else REFUSED)
    assert values(broker, "t") == []


def test_a_topic_still_refuses_writes_after_a_restart(broker):
    refuse_writes(broker)
    with broker.again() as restarted:
        assert codes(SimulatedClient(restarted), batch(value=b"after")) == [REFUSED]
