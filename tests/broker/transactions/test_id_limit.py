"""How many transactional ids are known: a new one takes the place of the longest unused that is in no transaction."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.errors import ErrorCode
from ledger_client import decide, prepare
from produce_requests import create
from simulated_broker import SimulatedBroker
from txn_client import Txn, begun, values

OK, MAPPING = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
BOTH = pytest.mark.parametrize("version", [1, 2])


def known(broker):
    return set(broker.broker.transactions.transactions)


@pytest.mark.slow
@BOTH
def test_a_new_transactional_id_at_the_limit_evicts_the_longest_unused_one(version):
    """The order of last use survives restarts."""
    with SimulatedBroker(BrokerSettings(max_transactional_ids=3)) as broker:
        broker.ask(create("t", 1))
        first = begun(broker, version, "a")
        for name in "bc":
            begun(broker, version, name)
            broker.wait(1)
        first.write("t", b"x")
        assert first.commit() == OK
        assert Txn(broker, "d", version).init() == OK
        assert known(broker) == {"a", "c", "d"}
        with broker.after_power_cut() as second:
            assert known(second) == {"a", "c", "d"}
            assert Txn(second, "e", version).init() == OK
            assert known(second) == {"a", "d", "e"}, "the order of use outlasts a restart"
            with second.after_power_cut() as third:
                assert known(third) == {"a", "d", "e"}


@BOTH
def test_new_ids_are_refused_only_if_all_ids_have_an_open_transaction(version):
    """A request that is refused for another reason evicts no id."""
    with SimulatedBroker(BrokerSettings(max_transactional_ids=2)) as broker:
        broker.ask(create("t", 1))
        held = [begun(broker, version, name) for name in "ab"]
        for txn in held:
            txn.write("t", b"x")
        assert Txn(broker, "c", version).init() == ErrorCode.POLICY_VIOLATION
        assert Txn(broker, "a", version).init(timeout_ms=10**9) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert held[0].commit() == OK
        assert Txn(broker, "c", version).init(timeout_ms=10**9) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert known(broker) == {"a", "b"}, "a request that is refused evicts nobody"
        assert Txn(broker, "c", version).init() == OK
        assert known(broker) == {"b", "c"}
        assert held[1].commit() == OK


@pytest.mark.slow
@BOTH
def test_new_ids_never_evict_an_id_with_an_open_or_prepared_transaction(version):
    with SimulatedBroker(BrokerSettings(max_transactional_ids=4)) as broker:
        broker.ask(create("t", 1))
        open_, prepared = (begun(broker, version, name) for name in ("open", "prepared"))
        for txn in (open_, prepared):
            txn.write("t", txn.name.encode())
        assert prepare(prepared).error_code == OK
        for number in range(20):
            assert Txn(broker, f"flood-{number}", version).init() == OK
        assert known(broker) >= {"open", "prepared"}
        assert (decide(broker, prepared).error_code, open_.commit()) == (OK, OK)
        assert values(broker, "t") == [b"open", b"prepared"]


@BOTH
def test_the_old_producer_of_an_evicted_id_cannot_end_the_new_transaction(version):
    with SimulatedBroker(BrokerSettings(max_transactional_ids=1)) as broker:
        broker.ask(create("t", 1))
        evicted = begun(broker, version, "a")
        assert Txn(broker, "b", version).init() == OK
        again = begun(broker, version, "a")
        assert again.producer_id != evicted.producer_id
        again.write("t", b"x")
        assert evicted.commit() == MAPPING
        assert again.commit() == OK
        assert values(broker, "t") == [b"x"]


def test_a_producer_whose_id_was_evicted_begins_again_with_init_producer_id():
    with SimulatedBroker(BrokerSettings(max_transactional_ids=1)) as broker:
        broker.ask(create("t", 1))
        evicted = begun(broker, 1, "a")
        assert Txn(broker, "b").init() == OK
        assert evicted.add("t", 0) == [MAPPING]
        assert evicted.init() == OK
        evicted.write("t", b"x")
        assert evicted.commit() == OK
        assert values(broker, "t") == [b"x"]


def test_transactional_ids_whose_log_is_offline_are_not_evicted_for_a_new_id():
    """A newer id is evicted instead, one that is stored in a log that is online."""
    with SimulatedBroker(BrokerSettings(max_transactional_ids=5)) as broker:
        coordinator = broker.broker.transactions
        names = [f"x{number}" for number in range(200)]
        assert Txn(broker, names[0]).init() == OK
        home = coordinator.home(names[0])[0]
        there = [name for name in names if coordinator.home(name)[0] == home]
        elsewhere = [name for name in names if name not in there]
        for name in (*there[1:4], elsewhere[0]):
            assert Txn(broker, name).init() == OK
        log = coordinator.topic.log(home)
        log.offline = "its disk is gone"
        assert Txn(broker, elsewhere[1]).init() == OK
        assert known(broker) == {*there[:4], elsewhere[1]}
        log.offline = None
        assert Txn(broker, elsewhere[2]).init() == OK


@pytest.mark.slow
def test_after_the_id_limit_was_lowered_each_new_id_evicts_at_most_20_others():
    with SimulatedBroker() as broker:
        for number in range(100):
            assert Txn(broker, f"x{number}").init() == OK
        changed = broker.broker.settings.__class__(max_transactional_ids=10)
        broker.broker.live_settings.now = changed
        sizes = []
        for number in range(6):
            assert Txn(broker, f"y{number}").init() == OK
            sizes.append(len(known(broker)))
        assert sizes == [81, 62, 43, 24, 10, 10]
