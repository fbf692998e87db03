"""What clients did wrong once, and a broker is sent: nothing comes of it that they did not mean."""

import pytest
from broker_lives import read_batches
from fencepost.protocol.errors import ErrorCode
from produce_requests import answers, create, fetch, fetched, idempotent, produce
from simulated_broker import SimulatedBroker
from txn_client import PRODUCE, Txn, values

OK = ErrorCode.NONE
STATE = ErrorCode.INVALID_TXN_STATE
BOTH = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def broker():
    with SimulatedBroker() as broker:
        broker.ask(create("t", 2))
        yield broker
        assert not broker.broker.metrics.failures


def begun(broker: SimulatedBroker, version: int = 1) -> Txn:
    txn = Txn(broker, version=version)
    assert txn.init() == OK
    return txn


@pytest.mark.parametrize("commit", [True, False])
def test_librdkafka_1_7_a_marker_in_a_partition_without_data_hides_nothing(broker, commit):
    """The consumer took the next committed records for aborted ones, so the aborted list must have no entry for such a
    marker.
    """
    txn = begun(broker)
    assert txn.add("t", 0, 1) == [OK, OK]
    assert txn.send("t", b"x") == OK
    assert txn.end(commit) == OK
    txn.write("t", b"after", 1)
    assert txn.commit() == OK
    part = fetched(broker.ask(fetch("t", 0, partition=1, committed=True), 11))
    assert not part.aborted_transactions
    assert [each.base_offset for each in read_batches(broker, "t", 1) if each.is_control] == [0, 2]
    assert values(broker, "t", 1) == [b"after"]


@BOTH
def test_librdkafka_2_5_a_retry_with_other_records_is_refused(broker, version):
    """librdkafka 2.2 to 2.4 did not always rebuild a batch identically for its retry."""
    txn = begun(broker, version)
    txn.write("t", b"0")
    made = idempotent(1, 3, producer_id=txn.producer_id, epoch=txn.epoch, transactional=True)
    rebuilt = idempotent(1, 2, producer_id=txn.producer_id, epoch=txn.epoch, transactional=True)
    api = PRODUCE[version]
    assert answers(txn.client.ask(produce("t", made, transactional_id="x"), api)) == [(OK, 1)]
    refused = [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert answers(txn.client.ask(produce("t", rebuilt, transactional_id="x"), api)) == refused
    assert answers(txn.client.ask(produce("t", made, transactional_id="x"), api)) == [(OK, 1)]
    assert txn.commit() == OK
    assert len(values(broker, "t")) == 4


def test_librdkafka_3575_a_new_epoch_inside_a_transaction_prevents_its_commit(broker):
    """The client took a new epoch in the middle of a transaction and continued; it must not commit only the second
    half.
    """
    txn = begun(broker)
    txn.write("t", b"first half")
    assert txn.init(keep=True) == OK
    assert txn.send("t", b"second half") == STATE
    assert txn.commit() == STATE
    assert values(broker, "t") == []
