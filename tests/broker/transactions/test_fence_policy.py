"""The connection fence and the policy for old clients, through a whole broker."""

import logging

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from produce_requests import create
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, begun, offset_of, state, values

OK = ErrorCode.NONE
FENCED, STALE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
MAPPING, STATE = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


@pytest.fixture
def broker():
    with SimulatedBroker() as broker:
        broker.ask(create("t", 3))
        broker.ask(create("u", 1))
        yield broker
        assert not broker.broker.metrics.failures


@pytest.mark.requirement("S-62")
def test_a_late_tv1_end_over_an_older_connection_is_dropped_and_closes_it(broker):
    """The transaction that is open by then is not ended by it."""
    txn = begun(broker)
    txn.write("t", b"1")
    old = txn.client
    held = txn.ending(True)
    txn.client = SimulatedClient(broker)
    assert txn.commit() == OK
    txn.write("t", b"2")
    old.send(held, 3)
    assert old.closed()
    assert state(broker) == "Ongoing"
    assert txn.abort() == OK
    assert values(broker, "t") == [b"1"]
    assert broker.broker.metrics.fenced_connections == 1


def test_a_connection_the_fence_closes_is_logged_but_not_more_than_once_a_second(broker, caplog):
    txn = begun(broker)
    txn.write("t", b"1")
    older = [txn.client, *(SimulatedClient(broker) for _ in range(3))]
    held = txn.ending(True)
    txn.client = SimulatedClient(broker)
    assert txn.commit() == OK
    for number, client in enumerate(older):
        if number == 3:
            broker.wait(1)
        client.send(held, 3)
        assert client.closed()
    first, last = (each.getMessage() for each in caplog.records if "came late" in each.getMessage())
    assert first.startswith("closing a connection of 127.0.0.1: EndTxn of 'x' came late")
    assert "(4 so far)" in last


def test_with_policy_allow_a_late_tv1_end_ends_the_wrong_transaction():
    with SimulatedBroker(BrokerSettings(transaction_v1_policy="allow")) as broker:
        broker.ask(create("t"))
        txn = begun(broker)
        txn.write("t", b"1")
        old, held = txn.client, txn.ending(True)
        txn.client = SimulatedClient(broker)
        assert txn.commit() == OK
        txn.write("t", b"2")
        assert old.ask(held, 3).error_code == OK
        assert values(broker, "t") == [b"1", b"2"]


def test_requests_with_a_stale_epoch_do_not_move_the_fence(broker):
    zombie, live = begun(broker), begun(broker)
    live.write("t", b"x")
    for _ in range(5):
        zombie.client = SimulatedClient(broker)
        assert zombie.commit() == FENCED
        assert zombie.send("t", b"z") == STALE
    assert live.send("t", b"y") == OK
    assert live.commit() == OK
    assert broker.broker.metrics.fenced_connections == 0


def test_with_policy_refuse_only_tv2_requests_are_served():
    with SimulatedBroker(BrokerSettings(transaction_v1_policy="refuse")) as broker:
        broker.ask(create("t"))
        assert Txn(broker, version=1).init() == ErrorCode.UNSUPPORTED_VERSION
        txn = begun(broker, 2)
        txn.write("t", b"x")
        assert txn.commit() == OK


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, 3, 4])
@pytest.mark.parametrize("writes", [False, True], ids=["idle", "open"])
def test_a_late_tv1_init_producer_id_does_not_fence_the_newer_connections_producer(broker, version, writes):
    """It comes over an older connection, where nobody waits for its answer, so it is dropped."""
    txn = begun(broker)
    old = txn.client
    txn.client = SimulatedClient(broker)
    assert txn.init() == OK
    if writes:
        txn.write("t", b"1")
    old.send(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), version)
    assert old.closed()
    if not writes:
        txn.write("t", b"1")
    assert txn.commit() == OK
    assert values(broker, "t") == [b"1"]
    assert broker.broker.metrics.fenced_connections == 1


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_late_txn_offset_commit_of_tv1_changes_no_offset_of_a_later_transaction(broker, version):
    """Both transactions have the same epoch, so without the fence it would count in the one that is open when it
    arrives.
    """
    txn = begun(broker)
    assert txn.add_offsets() == OK
    assert txn.send_offset("t", 5, version=version) == OK
    old, held = txn.client, txn.committing("t", 5)
    txn.client = SimulatedClient(broker)
    assert txn.send_offset("t", 5, version=version) == OK
    assert txn.commit() == OK
    assert txn.add_offsets() == OK
    assert txn.send_offset("t", 9, version=version) == OK
    old.send(held, version)
    assert old.closed()
    assert txn.commit() == OK
    assert offset_of(broker, "t") == 9
    assert broker.broker.metrics.fenced_connections == 1


def test_a_producer_that_takes_over_a_transactional_id_is_logged(broker, caplog):
    caplog.set_level(logging.INFO, "fencepost.broker")
    txn = begun(broker)
    assert not [each for each in caplog.records if "fences" in each.getMessage()], "it is the first"
    txn.write("t", b"1")
    txn.client = SimulatedClient(broker)
    for level in (logging.WARNING, logging.INFO):
        txn.init()
        txn.client = SimulatedClient(broker)
        (told,) = (
            each for each in caplog.records if "is the producer of 'x' now, and fences that of" in each.getMessage()
        )
        assert told.levelno == level
        assert told.getMessage().endswith(", whose open transaction is aborted") == (level == logging.WARNING)
        caplog.clear()
