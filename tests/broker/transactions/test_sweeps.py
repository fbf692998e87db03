"""Sweeps over many ids at once: in slices, and past what cannot be written."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.transactions.states.transaction import Decision, Transaction
from fencepost.protocol.errors import ErrorCode
from produce_requests import create
from simulated_broker import SimulatedBroker
from txn_client import Txn, state, values

OK = ErrorCode.NONE
GONE = str(int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
EXPIRING = BrokerSettings(
    transactional_id_expiration_ms=60_000, transaction_remove_expired_transaction_cleanup_interval_ms=1_000
)


def many(broker: SimulatedBroker, count: int) -> None:
    """Log this many ids, which were used once just now."""
    coordinator = broker.broker.transactions
    coordinator.topic.ensure()
    broker.wait(0.1)
    given = coordinator.inputs("")
    for first in range(0, count, 500):
        names = [f"id-{number}" for number in range(first, first + 500)]
        used = {"updated_age_ms": given.age_ms, "last_update_ms": given.now_ms}
        states = [Transaction(name, number, 0, 1000, **used) for number, name in enumerate(names, first)]
        coordinator.log_all([(txn.transactional_id, Decision(states=(txn,))) for txn in states], given)
        broker.wait(0.02)


@pytest.mark.slow
@pytest.mark.requirement("S-113")
@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_kafka_13099_ids_that_expire_together_are_removed_500_at_a_time(count, monkeypatch):
    """KAFKA-13099: tombstones that did not fit into one batch were never written."""
    with SimulatedBroker(EXPIRING) as broker:
        many(broker, count)
        coordinator = broker.broker.transactions
        slices = []
        forget = coordinator.forget
        monkeypatch.setattr(coordinator, "forget", lambda ids: (slices.append(len(ids)), forget(ids)))
        broker.wait(70)
        assert coordinator.transactions == {} == coordinator.by_producer_id
        assert (sum(slices), max(slices)) == (count, 500)
        with broker.after_power_cut() as second:
            assert second.broker.transactions.transactions == {}


@pytest.mark.slow
def test_a_transactional_id_used_while_others_expire_is_not_removed():
    with SimulatedBroker(EXPIRING) as broker:
        many(broker, 1000)
        coordinator = broker.broker.transactions
        forget = coordinator.forget

        def forget_and_use_another(ids):
            forget(ids)
            if "id-999" not in ids:  # id-999 is in the second slice of 500, which was chosen before this call
                used = coordinator.transactions["id-999"]._replace(updated_age_ms=broker.broker.store.age_ms())
                coordinator.log("id-999", Decision(states=(used,)), coordinator.inputs("id-999"))

        coordinator.forget = forget_and_use_another
        broker.wait(65)
        assert set(coordinator.transactions) == {"id-999"}


def test_kafka_7519_expired_ids_whose_log_is_offline_stay_and_others_are_removed():
    """KAFKA-7519: after one failed removal an id could not be used any more."""
    with SimulatedBroker(EXPIRING) as broker:
        many(broker, 500)
        coordinator = broker.broker.transactions
        home, _ = coordinator.home("id-0")
        log = coordinator.topic.log(home)
        log.offline = "its disk is gone"
        broker.wait(70)
        left = set(coordinator.transactions)
        assert "id-0" in left
        assert all(coordinator.home(name)[0] == home for name in left)
        log.offline = None
        broker.wait(2)
        assert coordinator.transactions == {}


def test_kafka_9666_6119_a_transaction_that_cannot_be_aborted_keeps_its_epoch():
    """KAFKA-9666, KAFKA-6119: the epoch was incremented without a record in the log."""
    with SimulatedBroker() as broker:
        broker.ask(create("t"))
        stuck, late = Txn(broker, "stuck"), Txn(broker, "late", 2)
        for txn in (stuck, late):
            assert txn.init(timeout_ms=1_000) == OK
            txn.write("t", b"x")
        coordinator = broker.broker.transactions
        assert coordinator.home("stuck")[0] != coordinator.home("late")[0]
        log = coordinator.topic.log(coordinator.home("stuck")[0])
        log.offline = "its disk is gone"
        broker.wait(35)
        assert state(broker, "late") == "CompleteAbort"
        assert coordinator.transactions["stuck"].producer_epoch == stuck.epoch
        log.offline = None
        broker.wait(15)
        assert coordinator.transactions["stuck"].producer_epoch == stuck.epoch + 1
        assert values(broker, "t") == []
        assert not broker.broker.metrics.failures


@pytest.mark.slow
@pytest.mark.parametrize("way", ["again", "after_power_cut"])
def test_a_transaction_past_its_timeout_is_aborted_as_soon_as_the_broker_starts(way):
    with SimulatedBroker(BrokerSettings(log_checkpoint_interval_ms=1_000)) as broker:
        broker.ask(create("t"))
        txn = Txn(broker)
        assert txn.init(timeout_ms=4_000) == OK
        txn.write("t", b"x")
        broker.wait(9)  # the first sweep comes after ten seconds
        assert state(broker) == "Ongoing"
        with getattr(broker, way)() as second:
            second.wait(0.1)
            assert state(second) == "CompleteAbort"
            assert values(second, "t") == []


def test_a_transaction_within_its_timeout_stays_open_over_a_restart():
    with SimulatedBroker() as broker:
        broker.ask(create("t"))
        txn = Txn(broker)
        assert txn.init(timeout_ms=30_000) == OK
        txn.write("t", b"x")
        broker.wait(9)
        with broker.again() as second:
            second.wait(9)
            assert state(second) == "Ongoing"


def test_a_transaction_is_aborted_at_its_timeout_not_at_the_next_sweep():
    with SimulatedBroker() as broker:
        broker.ask(create("t"))
        txn = Txn(broker)
        assert txn.init(timeout_ms=14_000) == OK
        txn.write("t", b"x")
        broker.wait(13.9)  # a sweep came after ten seconds, the next would after twenty
        assert state(broker) == "Ongoing"
        broker.wait(0.2)
        assert state(broker) == "CompleteAbort"


def test_a_bug_in_aborting_one_timed_out_transaction_affects_no_other(monkeypatch):
    with SimulatedBroker() as broker:
        broker.ask(create("t"))
        for name in ("bad", "late"):
            txn = Txn(broker, name, 2)
            assert txn.init(timeout_ms=1_000) == OK
            txn.write("t", b"x")
        coordinator = broker.broker.transactions
        abort = coordinator.abort_late
        monkeypatch.setattr(coordinator, "abort_late", lambda name: 1 / 0 if name == "bad" else abort(name))
        broker.wait(25)
        assert (state(broker, "bad"), state(broker, "late")) == ("Ongoing", "CompleteAbort")
        monkeypatch.undo()
        broker.wait(15)
        assert state(broker, "bad") == "CompleteAbort"
        assert broker.broker.halted is None
        assert {type(each) for each in broker.broker.metrics.failures} == {ZeroDivisionError}


@pytest.mark.slow
def test_a_bug_in_expiring_one_transactional_id_affects_no_other(monkeypatch):
    with SimulatedBroker(EXPIRING) as broker:
        many(broker, 500)
        coordinator = broker.broker.transactions
        forget = coordinator.forget
        monkeypatch.setattr(coordinator, "forget", lambda ids: 1 / 0 if "id-7" in ids else forget(ids))
        broker.wait(65)
        assert set(coordinator.transactions) == {"id-7"}
        assert broker.broker.halted is None
        assert broker.broker.metrics.failures
