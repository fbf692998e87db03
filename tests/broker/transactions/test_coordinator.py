"""Transactions through a whole broker: what each request is told, what readers see, and what outlasts a restart."""

import pytest
from broker_lives import offset_at
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.protocol.messages.transactions import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from produce_requests import create, idempotent, list_offsets, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, begun, offset_of, stable, state, values

OK = ErrorCode.NONE
FENCED, STALE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
MAPPING, STATE = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
BOTH = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def broker():
    with SimulatedBroker() as broker:
        broker.ask(create("t", 3))
        broker.ask(create("u", 1))
        yield broker
        assert not broker.broker.metrics.failures


# ---- what readers see ------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.requirement("S-65", "S-88", "S-90", "S-98", "S-106")
def test_committed_records_become_visible_in_all_partitions_at_once(broker, version):
    txn = begun(broker, version)
    txn.write("t", b"a", 0, 1)
    txn.write("u", b"b", 0)
    assert (values(broker, "t"), values(broker, "t", 1), values(broker, "u")) == ([], [], [])
    assert values(broker, "t", committed=False) == [b"a"]
    assert txn.commit() == OK
    assert (values(broker, "t"), values(broker, "t", 1), values(broker, "u")) == ([b"a"], [b"a"], [b"b"])
    assert state(broker) == "CompleteCommit"


@BOTH
@pytest.mark.requirement("S-75", "S-100")
def test_aborted_records_stay_in_the_log_and_read_committed_skips_them(broker, version):
    txn = begun(broker, version)
    txn.write("t", b"no")
    assert txn.abort() == OK
    txn.write("t", b"yes")
    assert txn.commit() == OK
    assert values(broker, "t") == [b"yes"]
    assert values(broker, "t", committed=False) == [b"no", b"yes"]


@BOTH
@pytest.mark.requirement("S-80", "S-99", "S-97")
def test_an_open_transaction_stops_read_committed_only_in_its_own_partition(broker, version):
    txn = begun(broker, version)
    txn.write("t", b"open")
    broker.ask(produce("t", idempotent(0), idempotent(0)))
    assert (stable(broker, "t"), stable(broker, "t", 1)) == (0, 1)
    (latest,) = broker.ask(list_offsets("t", -1, committed=True)).topics[0].partitions
    assert (latest.offset, offset_at(broker, "t", -1)) == (0, 2)
    assert txn.abort() == OK
    assert stable(broker, "t") == 3


@pytest.mark.slow
@BOTH
def test_the_last_stable_offset_never_moves_back(broker, version):
    one, two = begun(broker, version, "one"), begun(broker, version, "two")
    seen = [0]
    for number in range(6):
        first, second = (one, two) if number % 2 else (two, one)
        first.write("t", b"1")
        second.write("t", b"2")
        seen.append(stable(broker, "t"))
        first.end(commit=number % 3 == 0)
        seen.append(stable(broker, "t"))
        second.end(commit=number % 3 == 1)
        seen.append(stable(broker, "t"))
    assert seen == sorted(seen)
    assert seen[-1] == offset_at(broker, "t", -1)


# ---- adding and ending -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("S-76", "S-136", "C-12")
def test_committing_a_transaction_without_records_writes_only_its_marker(broker):
    txn = begun(broker)
    assert state(broker) == "Empty"
    assert txn.add("t", 0) == [OK]
    assert state(broker) == "Ongoing"
    assert txn.commit() == OK
    assert offset_at(broker, "t", -1) == 1  # its marker


def test_add_partitions_with_one_unknown_partition_adds_none(broker):
    txn = begun(broker)
    missing, others = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert txn.add("t", 0, 7) == [others, missing]
    assert state(broker) == "Empty"


@pytest.mark.slow
@pytest.mark.requirement("S-62")
@BOTH
def test_a_fenced_producer_is_refused_everywhere_and_its_transaction_aborted(broker, version):
    """Its offsets are dropped, and a retry of InitProducerId with its identity is refused."""
    zombie = begun(broker, version)
    zombie.write("t", b"lost")
    zombie.write_offset("t", 5)
    successor = begun(broker, version)
    assert (successor.producer_id, successor.epoch) > (zombie.producer_id, zombie.epoch)
    assert zombie.send("t", b"late") == STALE
    assert zombie.commit() == FENCED
    assert zombie.end(True, version=1) == STALE
    assert zombie.add("t", 0) == [FENCED]
    assert zombie.add("t", 0, version=1) == [STALE]
    assert zombie.add_offsets() == FENCED
    assert zombie.send_offset("t", 6) == STALE
    assert zombie.init(keep=True) == FENCED
    assert values(broker, "t") == []
    assert offset_of(broker, "t") == -1
    successor.write("t", b"kept")
    assert successor.commit() == OK
    assert values(broker, "t") == [b"kept"]


# ---- TV2 -------------------------------------------------------------------------------------------------------------


def test_tv2_bumps_the_epoch_with_every_transaction_and_restarts_sequences(broker):
    txn = begun(broker, 2)
    for epoch in range(5):
        assert txn.epoch == epoch
        txn.write("t", b"%d" % epoch)
        assert txn.end(commit=epoch % 2 == 0) == OK
    assert values(broker, "t") == [b"0", b"2", b"4"]


def test_tv2_a_first_batch_with_another_sequence_than_0_is_refused(broker):
    txn = begun(broker, 2)
    assert txn.send("t", b"x", sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state(broker) == "Empty"
    assert txn.send("t", b"x", sequence=0) == OK


def test_tv2_a_repeated_end_txn_returns_the_same_producer_id_and_epoch(broker):
    txn = begun(broker, 2)
    txn.write("t", b"x")
    pair = txn.producer_id, txn.epoch
    assert txn.commit() == OK
    after = txn.producer_id, txn.epoch
    txn.goes_on_as(*pair)
    assert txn.commit() == OK
    assert (txn.producer_id, txn.epoch) == after
    txn.goes_on_as(*pair)
    assert txn.abort() == STATE


def test_one_transactional_id_may_use_tv1_and_tv2_in_turn(broker):
    txn = begun(broker, 2)
    for number in range(6):
        txn.version = 1 + number % 2
        txn.write("t", b"%d" % number)
        assert txn.commit() == OK
    assert values(broker, "t") == [b"0", b"1", b"2", b"3", b"4", b"5"]


# ---- offsets ---------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.requirement("S-84", "S-85", "S-89", "S-91")
def test_offsets_sent_in_a_transaction_are_committed_only_with_it(broker, version):
    txn = begun(broker, version)
    txn.write("t", b"out")
    txn.write_offset("u", 7)
    assert offset_of(broker, "u") == -1
    assert offset_of(broker, "u", stable=True) == -ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert txn.commit() == OK
    assert (offset_of(broker, "u"), values(broker, "t")) == (7, [b"out"])
    txn.write_offset("u", 9)
    assert txn.abort() == OK
    assert offset_of(broker, "u", stable=True) == 7


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH
@pytest.mark.requirement("S-110", "S-111", "C-9")
def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced(broker, version):
    """The producer may go on after InitProducerId with its own id and epoch (KIP-588)."""
    txn = Txn(broker, version=version)
    assert txn.init(timeout_ms=30_000) == OK
    txn.write("t", b"slow")
    broker.wait(29)
    assert state(broker) == "Ongoing"
    broker.wait(15)
    assert state(broker) == "CompleteAbort"
    assert txn.send("t", b"more") == STALE
    assert txn.commit() == (FENCED if version == 1 else STATE)  # with TV2 a retry of the end, which was an abort
    assert values(broker, "t") == []
    assert txn.init(keep=True) == OK
    txn.write("t", b"again")
    assert txn.commit() == OK
    assert values(broker, "t") == [b"again"]


@pytest.mark.slow
@pytest.mark.requirement("S-68")
def test_the_timeout_of_an_open_transaction_runs_on_over_restarts(broker):
    txn = Txn(broker)
    txn.init(timeout_ms=40_000)
    txn.write("t", b"x")
    broker.wait(25)
    with broker.again() as second:
        assert state(second) == "Ongoing"
        second.wait(30)
        assert state(second) == "CompleteAbort"


@pytest.mark.slow
@pytest.mark.requirement("S-113")
def test_an_unused_transactional_id_expires_and_stays_unknown_after_a_restart():
    settings = BrokerSettings(
        transactional_id_expiration_ms=60_000, transaction_remove_expired_transaction_cleanup_interval_ms=1_000
    )
    with SimulatedBroker(settings) as broker:
        broker.ask(create("t"))
        unused, used = begun(broker, name="unused"), begun(broker, name="used")
        used.write("t", b"x")
        broker.wait(55)
        assert state(broker, "unused") == "Empty"
        broker.wait(10)
        assert state(broker, "unused") == str(int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
        assert state(broker, "used") == "CompleteAbort"  # after the default timeout of 60 s
        assert unused.add("t", 0) == [MAPPING]
        with broker.after_power_cut() as second:
            assert state(second, "unused") == str(int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))


# ---- by hand ---------------------------------------------------------------------------------------------------------


def marker(txn: Txn, partition: int = 0, *, commit: bool = False, topic: str = "t") -> WriteTxnMarkersRequest:
    place = WriteTxnMarkersRequest.Marker.Topic(name=topic, partition_indexes=[partition])
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.Marker(
                producer_id=txn.producer_id,
                producer_epoch=txn.epoch,
                transaction_result=commit,
                topics=[place],
                coordinator_epoch=0,
            )
        ]
    )


def marked(broker: SimulatedBroker, request: WriteTxnMarkersRequest) -> int:
    return broker.ask(request).markers[0].topics[0].partitions[0].error_code


@BOTH
def test_an_admins_abort_marker_in_one_partition_aborts_the_whole_transaction(broker, version):
    txn = begun(broker, version)
    txn.write("t", b"x", 0, 1)
    assert marked(broker, marker(txn, commit=True)) == STATE
    assert marked(broker, marker(txn)) == OK
    assert (stable(broker, "t"), stable(broker, "t", 1)) == (2, 2)
    assert txn.commit() == (FENCED if version == 1 else STATE)  # with TV2 a retry of the end, which was an abort
    assert values(broker, "t") == values(broker, "t", 1) == []


@BOTH
def test_late_requests_of_a_transaction_an_admin_aborted_are_refused(broker, version):
    """The producer may go on after InitProducerId with its own id and epoch."""
    txn = begun(broker, version)
    txn.write("t", b"x")
    txn.write_offset("t", 5)
    assert marked(broker, marker(txn)) == OK
    assert txn.send("t", b"to where it wrote") == STALE
    assert txn.send("t", b"elsewhere", 1) == STALE
    assert txn.add("t", 1) == [FENCED]
    assert txn.send_offset("t", 9) == STALE
    assert txn.commit() == (FENCED if version == 1 else STATE)  # with TV2 a retry of the end, which was an abort
    assert (values(broker, "t", committed=False), offset_of(broker, "t")) == ([b"x"], -1)
    assert txn.init(keep=True) == OK
    txn.write("t", b"begun anew")
    assert txn.commit() == OK
    assert values(broker, "t") == [b"begun anew"]


def test_write_txn_markers_with_a_stale_epoch_or_bad_partition_is_refused(broker):
    zombie = begun(broker)
    zombie.write("t", b"x")
    begun(broker)
    assert marked(broker, marker(zombie)) == STALE
    assert marked(broker, marker(zombie, 9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert marked(broker, marker(zombie, topic="__transaction_state")) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_describe_producers_shows_where_a_transaction_began_until_it_ends(broker):
    txn = begun(broker)
    broker.ask(produce("t", idempotent(0, producer_id=500)))
    txn.write("t", b"x")

    def began() -> int:
        asked = DescribeProducersRequest.Topic(name="t", partition_indexes=[0])
        (part,) = broker.ask(DescribeProducersRequest(topics=[asked])).topics[0].partitions
        return next(p.current_txn_start_offset for p in part.active_producers if p.producer_id == txn.producer_id)

    assert began() == 1
    assert txn.commit() == OK
    assert began() == -1


def listed(broker: SimulatedBroker, **filters) -> list[str]:
    response = broker.ask(ListTransactionsRequest(**filters))
    assert response.error_code == OK
    return sorted(each.transactional_id for each in response.transaction_states)


def test_transactions_are_listed_by_state_producer_duration_and_pattern(broker):
    empty, open_one, done = (begun(broker, 2, name) for name in ("pay-1", "pay-22", "ship-1"))
    open_one.write("t", b"x")
    done.write("t", b"x")
    assert done.commit() == OK
    broker.wait(5)
    assert listed(broker) == ["pay-1", "pay-22", "ship-1"]
    assert listed(broker, state_filters=["Ongoing"]) == ["pay-22"]
    assert listed(broker, state_filters=["Ongoing", "Empty"]) == ["pay-1", "pay-22"]
    assert listed(broker, producer_id_filters=[empty.producer_id]) == ["pay-1"]
    assert listed(broker, duration_filter=4_000, state_filters=["Ongoing"]) == ["pay-22"]
    assert listed(broker, duration_filter=6_000, state_filters=["Ongoing"]) == []
    assert listed(broker, transactional_id_pattern="pay-[0-9]") == ["pay-1"]
    assert listed(broker, transactional_id_pattern=".*1") == ["pay-1", "ship-1"]


def test_listing_by_an_unknown_state_returns_the_name_and_no_transactions(broker):
    begun(broker)
    response = broker.ask(ListTransactionsRequest(state_filters=["Nonsense"]))
    assert (response.unknown_state_filters, response.transaction_states) == (["Nonsense"], [])


def test_list_transactions_by_an_invalid_pattern_is_refused(broker):
    response = broker.ask(ListTransactionsRequest(transactional_id_pattern="("))
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.slow
def test_list_transactions_by_a_pattern_that_takes_too_long_is_refused(broker):
    assert Txn(broker, "abc" * 5_000).init() == OK
    response = broker.ask(ListTransactionsRequest(transactional_id_pattern=".*a.{900}b.{900}c.{900}"))
    assert (response.error_code, response.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


# ---- topics come and go ----------------------------------------------------------------------------------------------


def delete(broker: SimulatedBroker, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=topic)], timeout_ms=1000)
    assert broker.ask(request).responses[0].error_code == OK


@pytest.mark.slow
@BOTH
def test_a_transaction_can_be_committed_although_one_of_its_topics_was_deleted(broker, version):
    txn = begun(broker, version)
    txn.write("t", b"x")
    txn.write("u", b"y")
    delete(broker, "t")
    assert txn.commit() == OK
    assert values(broker, "u") == [b"y"]


@BOTH
def test_a_topic_recreated_inside_a_transaction_gets_no_marker(broker, version):
    """In kfake, before commit d222eb3, the marker was written into the recreated topic."""
    txn = begun(broker, version)
    txn.write("t", b"x")
    delete(broker, "t")
    broker.ask(create("t", 3))
    assert txn.commit() == OK
    assert offset_at(broker, "t", -1) == 0


def test_a_tv1_transaction_must_add_a_recreated_topic_again(broker):
    txn = begun(broker)
    txn.write("t", b"x")
    delete(broker, "t")
    broker.ask(create("t", 3))
    assert txn.send("t", b"y", sequence=0) == STATE
    assert txn.add("t", 0) == [OK]
    assert txn.send("t", b"y", sequence=0) == OK
    assert txn.commit() == OK
    assert values(broker, "t") == [b"y"]


@pytest.mark.slow
@pytest.mark.requirement("S-60", "S-61")
def test_transactional_ids_epochs_and_open_transactions_survive_a_power_cut(broker):
    kept, done = begun(broker, 1, "kept"), begun(broker, 2, "done")
    kept.write("t", b"open")
    done.write("t", b"done", 1)
    assert done.commit() == OK
    with broker.after_power_cut() as second:
        assert (state(second, "kept"), state(second, "done")) == ("Ongoing", "CompleteCommit")
        assert values(second, "t", 1) == [b"done"]
        kept.broker = done.broker = second
        kept.client, done.client = SimulatedClient(second), SimulatedClient(second)
        assert kept.commit() == OK
        assert values(second, "t") == [b"open"]
        done.write("t", b"more", 1)
        assert done.commit() == OK
        assert values(second, "t", 1) == [b"done", b"more"]
