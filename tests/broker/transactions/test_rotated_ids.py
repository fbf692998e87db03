"""A transactional id whose producer id has no epochs left goes on with another, which belongs to it as well."""

import pytest
from acl_client import guarded
from fencepost.protocol.errors import ErrorCode
from guarded_broker import Guarded
from produce_requests import idempotent
from simulated_broker import SimulatedBroker
from txn_client import Txn

OK, NO_ID = ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NEARLY_LAST = 32_766


@pytest.mark.slow
@pytest.mark.parametrize("commit", [True, False])
def test_another_user_cannot_write_with_the_next_producer_id_of_a_transactional_id(commit):
    with SimulatedBroker(guarded(super_users="User:root")) as broker:
        world = Guarded(broker)
        world.have("allow User:alice WRITE TOPIC = t")
        txn = Txn(broker, "x", 2, client=world.client)
        before = world.as_user("root", lambda: ending(world, txn, commit))
        assert txn.producer_id != before
        assert broker.broker.transactions.by_producer_id == {txn.producer_id: "x"}
        assert world.write("alice", idempotent(0, producer_id=txn.producer_id, epoch=0)) == NO_ID
        with broker.after_power_cut() as second:
            assert second.broker.transactions.by_producer_id == {txn.producer_id: "x"}
            assert Guarded(second).write("alice", idempotent(0, producer_id=txn.producer_id, epoch=0)) == NO_ID


def ending(world, txn, commit):
    """Begin and end a transaction with the last epoch of the producer id. Return that producer id."""
    assert txn.init() == OK
    coordinator = world.broker.broker.transactions
    coordinator.apply("x", coordinator.transactions["x"]._replace(producer_epoch=NEARLY_LAST))
    txn.goes_on_as(txn.producer_id, NEARLY_LAST)
    before = txn.producer_id
    txn.write("t", b"v")
    assert (txn.commit() if commit else txn.abort()) == OK
    return before


def test_another_user_cannot_write_with_a_pending_next_producer_id():
    """A prepared transaction has a next producer id if its producer was started again, or its directory was restored
    from a backup.
    """
    with SimulatedBroker(guarded(super_users="User:root")) as broker:
        world, coordinator = Guarded(broker), broker.broker.transactions
        world.have("allow User:alice WRITE TOPIC = t")
        txn = Txn(broker, "x", 2, client=world.client)
        world.as_user("root", lambda: (txn.init(), txn.write("t", b"v")))
        waiting = broker.broker.topics.next_producer_id()
        coordinator.apply("x", coordinator.transactions["x"]._replace(next_producer_id=waiting, next_producer_epoch=0))
        assert world.write("alice", idempotent(0, producer_id=waiting, epoch=0)) == NO_ID
        assert world.as_user("root", txn.commit) == OK
        assert coordinator.by_producer_id == {coordinator.transactions["x"].producer_id: "x"} == {waiting: "x"}
