"""What a transaction's end leaves to be done: markers owed to partitions that were offline, and PREPARE_x in a log."""

import pytest
from broker_lives import offset_at, read_batches
from fencepost.broker.topics.catalogue import MarkerDebt
from fencepost.broker.transactions.states.transaction import Decision, Status
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.protocol.records import Marker, read_marker
from fencepost.storage.log.partition_log import PartitionLog
from produce_requests import answers, create, idempotent, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, offset_of, stable, state, values

OK = ErrorCode.NONE
BOTH = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def broker():
    with SimulatedBroker() as broker:
        broker.ask(create("t", 2))
        yield broker


def begun(broker: SimulatedBroker, version: int = 1) -> Txn:
    txn = Txn(broker, "x", version)
    assert txn.init() == OK
    return txn


def log_of(broker: SimulatedBroker, topic: str, partition: int = 0) -> PartitionLog:
    return broker.broker.topics.by_name[topic].partitions[partition].log


def put_offline(broker: SimulatedBroker, topic: str, partition: int = 0) -> PartitionLog:
    """Put a partition offline until the next start, as if its files could not be read. Return its log."""
    log = log_of(broker, topic, partition)
    log.offline = "its disk is gone"
    return log


def debts(broker: SimulatedBroker) -> dict:
    return broker.broker.topics.catalogue.marker_debts


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.requirement("S-70")
def test_a_marker_owed_to_an_offline_partition_is_the_first_write_after_its_return(broker, version, commit):
    """The outcome is visible in the other partitions at once, and later transactions can be committed."""
    txn = begun(broker, version)
    txn.write("t", b"x", 0, 1)
    log = put_offline(broker, "t", 1)
    assert txn.end(commit) == OK
    assert values(broker, "t") == ([b"x"] if commit else [])
    epoch = txn.epoch
    assert debts(broker) == {(log.log_id, txn.producer_id): MarkerDebt(epoch, 0, commit)}
    txn.write("t", b"next", 0)
    assert txn.commit() == OK
    with broker.after_power_cut() as second:
        assert debts(second) == {}
        marker = read_batches(second, "t", 1)[1]
        assert (read_marker(marker), marker.producer_epoch) == ((Marker(int(commit)), 0), epoch)
        assert values(second, "t", 1) == ([b"x"] if commit else [])
        assert stable(second, "t", 1) == 2
        with second.after_power_cut() as third:
            assert offset_at(third, "t", -1, 1) == 2


def test_a_second_marker_owed_to_an_offline_partition_keeps_the_outcome_of_the_first(broker):
    """A second transaction is forged that has the partition, but wrote nothing to it, and is aborted."""
    txn = begun(broker, 2)
    txn.write("t", b"x", 1)
    log = put_offline(broker, "t", 1)
    assert txn.commit() == OK
    coordinator = broker.broker.transactions
    waiting = coordinator.transactions["x"]._replace(
        status=Status.ONGOING, partitions={("t", 1): log.log_id}, producer_epoch=5
    )
    coordinator.log("x", Decision(states=(waiting,)), coordinator.inputs("x"))
    txn.goes_on_as(txn.producer_id, 5)
    assert txn.abort() == OK
    assert debts(broker) == {(log.log_id, txn.producer_id): MarkerDebt(6, 0, True)}  # its epoch is the second's
    with broker.again() as second:
        assert values(second, "t", 1) == [b"x"]


@pytest.mark.slow
def test_offsets_committed_to_an_offline_partition_are_there_once_it_is_back(broker):
    txn = begun(broker, 2)
    txn.write("t", b"x")
    txn.write_offset("t", 7)
    partition = broker.broker.group_offsets.topic.partition_for("g")
    put_offline(broker, "__consumer_offsets", partition)
    assert txn.commit() == OK
    assert values(broker, "t") == [b"x"]
    with broker.after_power_cut() as second:
        assert offset_of(second, "t", stable=True) == 7


def test_markers_owed_to_an_offline_partition_are_forgotten_if_it_is_deleted(broker):
    txn = begun(broker)
    txn.write("t", b"x", 0, 1)
    put_offline(broker, "t", 1)
    assert txn.commit() == OK
    broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1000))
    with broker.again() as second:
        assert debts(second) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("status", "expected"), [(Status.PREPARE_COMMIT, [b"x"]), (Status.PREPARE_ABORT, [])])
@pytest.mark.requirement("S-67", "S-112")
def test_an_unfinished_decision_is_completed_before_clients_are_served(broker, status, expected):
    """The state in the coordinator's log is PREPARE_COMMIT or PREPARE_ABORT, and no marker was written."""
    txn = begun(broker)
    txn.write("t", b"x", 0, 1)
    txn.write_offset("t", 3)
    coordinator = broker.broker.transactions
    decided = coordinator.transactions["x"]._replace(status=status)
    coordinator.log("x", Decision(states=(decided,)), coordinator.inputs("x"))
    is_retry = status is Status.PREPARE_COMMIT  # a commit of what is decided to be aborted is an error
    assert txn.commit() == (ErrorCode.CONCURRENT_TRANSACTIONS if is_retry else ErrorCode.INVALID_TXN_STATE)
    assert txn.send("t", b"y") == ErrorCode.NOT_ENOUGH_REPLICAS
    with broker.after_power_cut() as second:
        assert state(second) == ("CompleteCommit" if expected else "CompleteAbort")
        assert values(second, "t") == values(second, "t", 1) == expected
        assert offset_of(second, "t", stable=True) == (3 if expected else -1)
        txn.broker, txn.client = second, SimulatedClient(second)
        txn.sequences["t", 0] = 1
        txn.write("t", b"again")
        assert txn.commit() == OK


def test_ids_whose_partition_of_transaction_state_is_offline_get_a_retriable_error(broker):
    txn = begun(broker)
    txn.write("t", b"x")
    home, _ = broker.broker.transactions.home("x")
    log = put_offline(broker, "__transaction_state", home)
    assert txn.commit() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state(broker) == "Ongoing"
    broker.broker.transactions.transactions.clear()  # as after a start, which cannot load state from an offline log
    assert txn.commit() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert txn.send("t", b"y", sequence=1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert answers(broker.ask(produce("t", idempotent(0), partition=1))) == [(OK, 0)]
    log.offline = None


@pytest.mark.slow
def test_a_damaged_transaction_state_partition_affects_only_ids_stored_in_it(broker):
    """Those ids get a retriable error until the file is restored; their transactions stay open."""
    home_of = broker.broker.transactions.home
    other = next(name for name in map(str, range(100)) if home_of(name)[0] != home_of("x")[0])
    lost, served = Txn(broker, "x"), Txn(broker, other)
    assert (lost.init(900_000), served.init(900_000)) == (OK, OK)
    lost.write("t", b"lost", 0)
    served.write("t", b"served", 1)
    broker.wait(60)
    log = log_of(broker, "__transaction_state", home_of("x")[0])
    (path,) = (f"{log.directory}/{name}" for name in broker.disk.list(log.directory) if name.endswith(".log"))
    disk = broker.disk.after_power_cut()
    file = disk.open(path)
    copy = bytes(file.read(file.size(), 0))
    file.write([bytes([copy[70] ^ 1])], 70)
    for _ in range(2):
        with SimulatedBroker(disk=disk, seed=1) as crippled:
            assert list(crippled.broker.recovery.offline) == [log.directory]
            resumed = Txn(crippled, other)
            assert resumed.init() == OK
            resumed.write("t", b"again", 1)
            assert resumed.commit() == OK
            for again in (lost.ending(True), lost.ending(False)):
                assert SimulatedClient(crippled).ask(again, 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert Txn(crippled, "x").init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
            crippled.wait(120)
            assert values(crippled, "t") == []
    file.write([copy], 0)
    file.sync()
    file.close()
    with SimulatedBroker(disk=disk, seed=2) as mended:
        assert not mended.broker.recovery.offline
        lost.broker, lost.client = mended, SimulatedClient(mended)
        assert lost.commit() == OK
        assert values(mended, "t") == [b"lost"]
        assert values(mended, "t", 1) == [b"again", b"again"]
