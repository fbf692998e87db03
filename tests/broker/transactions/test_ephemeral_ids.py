"""Ids for one transaction: when it has ended nothing is left of them, in memory, in snapshots, or at start."""

import msgpack
import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.transactions.states import machine
from fencepost.broker.transactions.states.init_producer_id import Initialisation, Limits, init_producer_id
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import CreateTopicsRequest
from ledger_client import decide, prepare
from simulated_broker import SimulatedBroker
from txn_client import Txn, state, values

pytestmark = pytest.mark.slow

UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
SETTINGS = BrokerSettings(
    transactional_id_ephemeral_prefix="once-", transaction_abort_timed_out_transaction_cleanup_interval_ms=1000
)


@pytest.fixture
def broker():
    with SimulatedBroker(SETTINGS) as broker:
        asked = [CreateTopicsRequest.Topic(name="a", num_partitions=2)]
        broker.ask(CreateTopicsRequest(topics=asked))
        yield broker


def left(broker):
    """Return the sizes of all that grows with the number of ids, and of their state in a snapshot."""
    coordinator = broker.broker.transactions
    partitions = [each for topic in broker.broker.topics.by_name.values() for each in topic.partitions]
    producers = [each.log.producers for each in partitions]
    rows = [row for source in broker.broker.coordinator_snapshots._sources for row in source.rows()]
    return {
        "ids": len(coordinator.transactions),
        "producer ids": len(coordinator.by_producer_id),
        "open": len(coordinator.open),
        "prepared": len(coordinator.prepared),
        "fences": len(coordinator.fence_policy),
        "homes": len(coordinator._homes),
        "producers": sum(len(each) for each in producers),
        "open at partitions": [each.first_open_offset() for each in producers if each.first_open_offset() is not None],
        "pending offsets": len(broker.broker.group_offsets.state.pending),
        "snapshot": sum(
            len(msgpack.packb(row, default=list)) for row in rows if row and str(row[0]).startswith("once-")
        ),
    }


def replayed(broker):
    """Return how many records of the coordinator's log the start has read."""
    topic = broker.broker.transactions.topic
    ends = [each.log.end_offset for each in broker.broker.topics.by_name[topic.name].partitions]
    return sum(end - topic.replay_from.get(index, 0) for index, end in enumerate(ends))


NOTHING = {
    "ids": 0,
    "producer ids": 0,
    "open": 0,
    "prepared": 0,
    "fences": 0,
    "homes": 0,
    "producers": 0,
    "open at partitions": [],
    "pending offsets": 0,
    "snapshot": 0,
}


def lives(broker, number, version, client):
    """Begin a transaction with an id of its own, write in it, and end it in one of many ways. Every 50th id is only
    begun.
    """
    txn = Txn(broker, f"once-{number}", version, client)
    assert txn.init() == 0
    if number % 50 == 49:
        assert Txn(broker, txn.name, version, client).init() == 0
        return txn
    txn.write("a", b"v", number % 2)
    if number % 3 == 0:
        txn.write_offset("a", number)
    way = number % 5
    if way == 4:
        assert prepare(txn, number).error_code == 0
        assert decide(broker, txn, number=number).error_code == 0
    elif way == 3 and version == 1:
        pass  # the transaction's timeout ends it
    else:
        assert txn.end(way < 2) == 0
    return txn


def test_2000_ended_ephemeral_ids_leave_no_state(broker):
    """Nothing of them is left in memory or to be replayed. Ids that were begun and never used expire."""
    assert left(broker) == NOTHING
    client = Txn(broker, "client").client
    for number in range(2000):
        lives(broker, number, 1 + number % 2, client)
    broker.wait(100)  # until all timeouts have passed
    unused = [name for name in broker.broker.transactions.transactions if int(name.removeprefix("once-")) % 50 == 49]
    assert len(unused) == len(broker.broker.transactions.transactions) == 40  # begun, and never used: they expire
    broker.broker.transactions.forget(unused)
    broker.wait(1)
    assert left(broker) == NOTHING
    with broker.again() as again:
        assert left(again) == NOTHING
        assert replayed(again) == 0
        with again.after_power_cut() as unplugged:
            assert left(unplugged) == NOTHING


@pytest.mark.parametrize("version", [1, 2])
def test_ended_ephemeral_ids_leave_no_state_after_a_power_cut(broker, version):
    client = Txn(broker, "client").client
    for number in range(15):
        lives(broker, number, version, client)
    broker.wait(100)  # until all timeouts have passed
    with broker.after_power_cut() as again:
        assert left(again) == NOTHING


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_request_of_an_ended_ephemeral_id_is_refused(broker, version):
    txn = Txn(broker, "once-1", version)
    txn.init()
    txn.write("a", b"v")
    pair = txn.producer_id, txn.epoch
    assert txn.commit() == 0
    txn.goes_on_as(*pair)
    assert txn.send("a", b"late", sequence=1) == UNKNOWN
    assert txn.send("a", b"late", sequence=0) == UNKNOWN
    assert txn.add("a", 1) == [UNKNOWN]
    assert txn.end(True) == UNKNOWN
    assert values(broker, "a", committed=False) == [b"v"]
    assert state(broker, "once-1") == str(int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))


def test_an_ephemeral_id_that_is_used_again_gets_a_new_producer_id(broker):
    txn = Txn(broker, "once-1")
    txn.init()
    txn.write("a", b"v")
    first = txn.producer_id
    txn.commit()
    assert txn.init() == 0
    assert (txn.producer_id > first, txn.epoch) == (True, 0)


@pytest.mark.long
def test_one_million_ended_ephemeral_ids_leave_no_state(broker):
    """The ids are given to the coordinator directly, because the request handlers treat all ids alike."""
    coordinator = broker.broker.transactions
    coordinator.topic.ensure()
    partition = broker.broker.topics.by_name["a"].partitions[0]
    added = {("a", 0): partition.log.log_id}
    for number in range(1_000_000):
        name = f"once-{number}"
        given = coordinator.inputs(name)
        begun = init_producer_id(None, Initialisation(name, 60_000), Limits(), given)
        coordinator.log(name, begun, given)
        pair = begun.producer_id, begun.producer_epoch
        coordinator.log(name, machine.add_partitions(begun.states[-1], *pair, added, 2, given), given)
        coordinator.log(name, machine.end(coordinator.transactions[name], True, *pair, 2, given), given)
        if number % 100 == 0:
            broker.wait(0.01)
    broker.wait(10)
    assert left(broker) == NOTHING
    with broker.again() as again:
        assert left(again) == NOTHING
        assert replayed(again) == 0
