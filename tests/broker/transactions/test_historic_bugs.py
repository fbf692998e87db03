"""Bugs that other brokers had in transactions, one test each, through a whole broker.

Those of the machine are in test_historic_bugs_of_the_machine.py, those of what a partition remembers in tests/storage.
"""

import pytest
from broker_lives import offset_at, read_batches
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.transactions.states.transaction import Decision, Status
from fencepost.protocol.errors import ErrorCode
from produce_requests import answers, create, fetch, fetched, idempotent, list_offsets, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import END, PRODUCE, Txn, begun, offset_of, stable, state, values

OK = ErrorCode.NONE
FENCED, STALE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
MAPPING, STATE = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
BOTH = pytest.mark.parametrize("version", [1, 2])
HIGHEST = 32766  # the highest epoch that a producer is given; the marker that ends its transaction has the next one


@pytest.fixture
def broker():
    with SimulatedBroker() as broker:
        broker.ask(create("t", 2))
        yield broker
        assert not broker.broker.metrics.failures


def become(broker: SimulatedBroker, **changed: object) -> None:
    """Change the state of transactional id x, in memory and in the log, to one that requests cannot reach here."""
    coordinator = broker.broker.transactions
    state = coordinator.transactions["x"]._replace(**changed)
    coordinator.log("x", Decision(states=(state,)), coordinator.inputs("x"))
    broker.wait(0.1)


def delete(broker: SimulatedBroker, topic: str) -> None:
    broker.broker.topics.delete(broker.broker.topics.by_name[topic])
    broker.wait(0.1)


def markers(broker: SimulatedBroker, topic: str = "t", partition: int = 0) -> list[int]:
    """Return the offsets of the control batches."""
    return [each.base_offset for each in read_batches(broker, topic, partition) if each.is_control]


# ---- the end of the epochs -------------------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("end", ["timeout", "successor"])
def test_kafka_20090_a_late_batch_of_a_producer_out_of_epochs_is_refused(broker, version, end):
    """The partition has forgotten the producer, so it is the coordinator that refuses the batch, also after a power
    cut.
    """
    txn = begun(broker, version)
    become(broker, producer_epoch=HIGHEST)
    txn.goes_on_as(txn.producer_id, HIGHEST)
    txn.write("t", b"x")
    if end == "timeout":
        broker.wait(80)
    else:
        successor = begun(broker, version)
        assert (successor.producer_id > txn.producer_id, successor.epoch) == (True, 0)
    assert state(broker) == ("CompleteAbort" if end == "timeout" else "Empty")
    log = broker.broker.topics.by_name["t"].partitions[0].log
    assert read_batches(broker, "t")[-1].producer_epoch == HIGHEST + 1
    assert txn.producer_id not in log.producers
    with broker.after_power_cut() as second:
        late = Txn(second, version=version)
        for sequence in (0, 1):
            for epoch in (HIGHEST, HIGHEST + 1):
                late.goes_on_as(txn.producer_id, epoch)
                assert late.send("t", b"late", sequence=sequence) == MAPPING
                assert late.add("t", 0) == [MAPPING]
                # TV2 knows the end that the timeout made of this epoch, so a commit is a request against that end.
                is_known = version == 2 and end == "timeout" and epoch == HIGHEST
                assert late.end(True) == (STATE if is_known else MAPPING)
        assert offset_at(second, "t", -1) == stable(second, "t") == 2
        assert values(second, "t") == []
        begun(second, version).write("t", b"y")


def test_kafka_20090_a_plain_batch_under_a_retired_producer_id_opens_no_transaction(broker):
    """No client sends such a batch. The partition has forgotten the producer, so it accepts the batch, and as one
    without a transaction.
    """
    txn = begun(broker)
    become(broker, producer_epoch=HIGHEST)
    txn.goes_on_as(txn.producer_id, HIGHEST)
    txn.write("t", b"x")
    broker.wait(80)
    late = produce("t", idempotent(1, producer_id=txn.producer_id, epoch=HIGHEST))
    assert answers(broker.ask(late)) == [(OK, 2)]
    assert stable(broker, "t") == offset_at(broker, "t", -1)
    again = begun(broker)
    again.write("t", b"y")
    assert again.commit() == OK
    assert values(broker, "t")[-1] == b"y"


# ---- late requests ---------------------------------------------------------------------------------------------------


@BOTH
def test_kafka_14402_a_late_batch_after_the_marker_leaves_no_transaction_hanging(broker, version):
    """In Kafka, a batch after the marker began a transaction that nobody ended."""
    txn = begun(broker, version)
    txn.write("t", b"x")
    pair = txn.producer_id, txn.epoch
    assert txn.abort() == OK
    txn.goes_on_as(*pair)
    refusal = STATE if version == 1 else STALE  # with TV2 the abort has bumped the epoch
    assert txn.send("t", b"late", sequence=1) == refusal
    assert txn.send("t", b"elsewhere", 1, sequence=0) == refusal
    assert stable(broker, "t") == offset_at(broker, "t", -1) == 2
    assert stable(broker, "t", 1) == offset_at(broker, "t", -1, 1) == 0


@BOTH
def test_kafka_14884_no_batch_sent_during_an_abort_is_appended_after_its_marker(broker, version):
    """In Kafka, the batch passed the check of its transaction before the abort, and was appended after it."""
    txn = begun(broker, version)
    txn.write("t", b"x")
    other = SimulatedClient(broker)
    produced = txn.producing("t", b"y")
    txn.client.send(produced, PRODUCE[version])
    other.send(txn.ending(False), END[version])
    txn.client.send(txn.producing("t", b"z"), PRODUCE[version])
    reported = [answers(txn.client.receive())[0][0] for _ in range(2)]
    assert other.receive().error_code == OK
    (marker,) = markers(broker)
    # Each of the two batches was either appended before the marker, which is the last batch, or refused.
    assert marker == offset_at(broker, "t", -1) - 1 == 1 + reported.count(OK)
    assert stable(broker, "t") == marker + 1
    assert values(broker, "t") == []


@BOTH
def test_kafka_14920_no_batch_is_accepted_before_an_earlier_refused_one(broker, version):
    """In Kafka, the first batch was refused for the moment and the second was accepted as the first of an unknown
    producer, so that the first could never be written.
    """
    txn = begun(broker, version)
    if version == 1:
        assert txn.add("t", 0) == [OK]
    batches = [txn.producing("t", b"%d" % number) for number in range(5)]

    def sent(numbers: range) -> list[tuple[int, int]]:
        return [answers(txn.client.ask(batches[number], PRODUCE[version]))[0] for number in numbers]

    broker.broker.store.space_exhausted = True
    assert sent(range(1)) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    broker.broker.store.space_exhausted = False
    assert sent(range(1, 5)) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)] * 4
    assert sent(range(5)) == [(OK, offset) for offset in range(5)]
    assert txn.commit() == OK
    assert values(broker, "t") == [b"0", b"1", b"2", b"3", b"4"]


def test_kafka_17754_a_late_tv1_end_over_an_older_connection_is_dropped(broker):
    """In Kafka, a late EndTxn of one transaction ended the next one, which has the same epoch."""
    txn = begun(broker)
    txn.write("t", b"1")
    old, late = txn.client, txn.ending(True)
    txn.client = SimulatedClient(broker)
    assert txn.commit() == OK
    txn.write("t", b"half")
    old.send(late, 3)
    assert old.closed()
    assert (state(broker), values(broker, "t")) == ("Ongoing", [b"1"])


def test_kafka_17754_a_late_tv2_end_is_refused_over_any_connection(broker):
    """The epoch of the next transaction differs."""
    txn = begun(broker, 2)
    txn.write("t", b"1")
    late = txn.ending(False)
    assert txn.commit() == OK
    txn.write("t", b"half")
    assert SimulatedClient(broker).ask(late, 5).error_code == FENCED
    assert txn.client.ask(late, 5).error_code == FENCED
    assert (state(broker), values(broker, "t")) == ("Ongoing", [b"1"])
    assert txn.commit() == OK
    assert values(broker, "t") == [b"1", b"half"]


@BOTH
def test_kafka_18042_an_older_epoch_is_refused_before_anything_is_written(broker, version):
    txn = begun(broker, version)
    txn.write("t", b"x")
    txn.write_offset("t", 1)
    old = txn.producer_id, txn.epoch
    assert begun(broker, version).epoch == txn.epoch + 1
    units = broker.broker.store.last_unit
    txn.goes_on_as(*old)
    assert txn.send("t", b"late") == STALE
    assert txn.send("t", b"late", 1) == STALE
    assert txn.send_offset("t", 1) == STALE
    assert broker.broker.store.last_unit == units


@BOTH
def test_kafka_9600_requests_with_an_epoch_never_issued_are_refused(broker, version):
    """In Kafka, EndTxn was accepted with an epoch above the producer's."""
    txn = begun(broker, version)
    txn.write("t", b"x")
    pair = txn.producer_id, txn.epoch
    txn.goes_on_as(txn.producer_id, txn.epoch + 5)
    assert txn.commit() == FENCED
    assert txn.send("t", b"forged", sequence=0) == STALE
    txn.goes_on_as(*pair)
    assert txn.commit() == OK
    assert values(broker, "t") == [b"x"]


@BOTH
def test_kafka_6119_a_timed_out_producer_cannot_write_to_that_transaction(broker, version):
    """In Kafka, the timeout did not increment the epoch, so the producer continued."""
    txn = begun(broker, version, timeout_ms=5_000)
    txn.write("t", b"x")
    broker.wait(20)
    assert txn.send("t", b"y") == STALE
    assert txn.add("t", 1) == [FENCED]
    assert txn.commit() == (FENCED if version == 1 else STATE)  # with TV2 a retry of the end, which was an abort
    assert values(broker, "t") == []
    assert stable(broker, "t") == offset_at(broker, "t", -1) == 2


# ---- ending ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH
def test_kafka_18654_the_next_transaction_never_waits_for_the_markers_of_the_last(broker, version):
    """In Kafka, every second transaction failed or had to be retried while markers were being written."""
    txn = begun(broker, version)
    for number in range(20):
        txn.write("t", b"%d" % number, 0, 1)
        assert txn.end(number % 4 != 3) == OK
    assert len(markers(broker)) == len(markers(broker, partition=1)) == 20
    assert values(broker, "t") == [b"%d" % number for number in range(20) if number % 4 != 3]


@pytest.mark.slow
@BOTH
def test_kafka_16352_the_end_of_one_epoch_does_not_lose_the_markers_of_another(broker, version):
    """In Kafka, markers owed to an offline partition by one epoch were dropped when another epoch ended, and the
    transaction stayed open there.
    """
    one, two = begun(broker, version), begun(broker, version, "y")
    for txn in (one, two):
        txn.write("t", b"first", 0, 1)
    broker.broker.topics.by_name["t"].partitions[1].log.offline = "its disk is gone"
    assert one.commit() == OK
    assert two.commit() == OK
    successor = begun(broker, version)
    successor.write("t", b"second")
    assert successor.commit() == OK
    with broker.after_power_cut() as second:
        assert (state(second), state(second, "y")) == ("CompleteCommit", "CompleteCommit")
        assert values(second, "t", 1) == [b"first", b"first"]
        assert stable(second, "t", 1) == offset_at(second, "t", -1, 1) == 4


@BOTH
def test_kafka_10080_two_simultaneous_end_txn_requests_write_one_marker(broker, version):
    """In Kafka, the COMPLETE record could be written twice."""
    txn = begun(broker, version)
    txn.write("t", b"x")
    other = SimulatedClient(broker)
    ending, api = txn.ending(True), END[version]
    log = broker.broker.transactions.topic.log(broker.broker.transactions.home("x")[0])
    before = log.end_offset
    txn.client.send(ending, api)
    other.send(ending, api)
    assert [each.receive().error_code for each in (txn.client, other)] == [OK, OK]
    assert markers(broker) == [1]
    assert log.end_offset == before + 2  # PREPARE_COMMIT and COMPLETE_COMMIT


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_kafka_9777_an_unfinished_end_completes_although_its_topic_was_deleted(broker, version, commit):
    """In Kafka, an end never completed if partitions or epoch changed at the same moment. Here a new producer asks for
    the id meanwhile.
    """
    txn = begun(broker, version)
    txn.write("t", b"x", 0, 1)
    become(broker, status=Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT)
    assert Txn(broker, version=version).init() == ErrorCode.CONCURRENT_TRANSACTIONS
    delete(broker, "t")
    with broker.after_power_cut() as second:
        assert state(second) == ("CompleteCommit" if commit else "CompleteAbort")
        second.ask(create("t", 2))
        again = begun(second, version)
        again.write("t", b"y", 0, 1)
        assert again.commit() == OK
        assert values(second, "t") == [b"y"]


def test_redpanda_00fb835_a_timeout_abort_that_fails_is_retried_every_interval(monkeypatch):
    """In Redpanda, such an abort was tried again and again without a pause."""
    settings = BrokerSettings(transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000)
    with SimulatedBroker(settings) as broker:
        broker.ask(create("t"))
        begun(broker, timeout_ms=1_000).write("t", b"x")
        coordinator = broker.broker.transactions
        log = coordinator.topic.log(coordinator.home("x")[0])
        log.offline = "its disk is gone"
        tried = []
        abort = coordinator.abort_late
        monkeypatch.setattr(coordinator, "abort_late", lambda name: (tried.append(name), abort(name))[1])
        broker.wait(12)
        assert 9 <= len(tried) <= 12  # about once a second, in 12 s
        log.offline = None
        broker.wait(2)
        assert state(broker) == "CompleteAbort"


# ---- what readers see ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_kafka_5376_a_fetch_that_waited_for_the_end_lists_the_aborted_transaction(broker, version, commit):
    """In Kafka, the aborted list was missing in answers that had been delayed."""
    txn = begun(broker, version)
    txn.write("t", b"x")
    reader = SimulatedClient(broker)
    reader.send(fetch("t", 0, committed=True, max_wait_ms=5_000), 11)
    assert reader.quiet()
    assert txn.end(commit) == OK
    part = fetched(reader.receive())
    assert part.last_stable_offset == 2
    reported = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
    assert reported == ([] if commit else [(txn.producer_id, 0)])


@BOTH
def test_kafka_5522_a_look_up_by_time_does_not_pass_an_open_transaction(broker, version):
    """In Kafka, read_committed clients were given an offset above the last stable offset."""
    txn = begun(broker, version)
    txn.write("t", b"x")
    asked = list_offsets("t", 1, committed=True)
    assert broker.ask(asked).topics[0].partitions[0].offset == -1
    assert txn.commit() == OK
    assert broker.ask(asked).topics[0].partitions[0].offset == 0


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("commit", [False, True])
def test_pulsar_12386_26234_after_a_recovery_an_end_moves_the_last_stable_offset(broker, version, commit):
    """Pulsar #12386: the last stable offset moved ahead during recovery. #26234: it did not advance afterwards."""
    txn = begun(broker, version)
    broker.ask(produce("t", idempotent(0)))
    txn.write("t", b"x")
    broker.ask(produce("t", idempotent(1)))
    assert stable(broker, "t") == 1
    with broker.after_power_cut() as second:
        assert stable(second, "t") == 1
        assert len(values(second, "t")) == 1
        txn.broker, txn.client = second, SimulatedClient(second)
        assert txn.end(commit) == OK
        assert stable(second, "t") == offset_at(second, "t", -1) == 4
        assert len(values(second, "t")) == (3 if commit else 2)


def test_pulsar_18833_an_end_in_a_deleted_topic_does_not_block_recovery_of_others(broker):
    """In Pulsar, the recovery waited for ever."""
    one, two = begun(broker), begun(broker, 2, "y")
    one.write("t", b"x")
    two.write("t", b"y", 1)
    become(broker, status=Status.PREPARE_COMMIT)
    delete(broker, "t")
    with broker.after_power_cut() as second:
        assert state(second) == "CompleteCommit"
        assert state(second, "y") == "Ongoing"
        assert begun(second, 2, "y").epoch > two.epoch


@BOTH
def test_pulsar_14327_an_abort_leaves_the_input_offset_so_the_input_is_read_again(broker, version):
    """In Pulsar, the abort of an acknowledgement led to duplicates."""
    txn = begun(broker, version)
    txn.write("t", b"in 0 and 1")
    txn.write_offset("t", 2)
    assert txn.abort() == OK
    assert offset_of(broker, "t", stable=True) == -1
    txn.write("t", b"again")
    txn.write_offset("t", 2)
    assert txn.commit() == OK
    assert offset_of(broker, "t", stable=True) == 2
    assert values(broker, "t") == [b"again"]


# ---- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH
def test_redpanda_1a301657_a_power_cut_between_any_requests_loses_no_partition(version):
    """In Redpanda, added partitions were in memory only: records of before a restart were lost, and the commit
    succeeded.
    """
    broker = SimulatedBroker()
    broker.ask(create("t", 2))
    txn = begun(broker, version)

    def replugged() -> None:
        txn.broker = txn.broker.after_power_cut()
        txn.client = SimulatedClient(txn.broker)

    for step in (
        lambda: txn.write("t", b"a"),
        lambda: txn.write("t", b"b", 1),
        lambda: txn.write_offset("t", 7),
        lambda: txn.write("t", b"c"),
    ):
        step()
        replugged()
    assert txn.commit() == OK
    replugged()
    assert (values(txn.broker, "t"), values(txn.broker, "t", 1)) == ([b"a", b"c"], [b"b"])
    assert offset_of(txn.broker, "t", stable=True) == 7
    txn.broker.stop()


@pytest.mark.slow
def test_redpanda_10669_a_replay_restores_exactly_one_state_per_transactional_id(broker):
    names = [f"id {number}" for number in range(60)]
    for name in names:
        txn = begun(broker, 1 + len(name) % 2, name)
        txn.write("t", b"x")
        begun(broker, txn.version, name)
    coordinator = broker.broker.transactions
    before, homes = dict(coordinator.transactions), {coordinator.home(name)[0] for name in names}
    assert len(homes) > 20  # the ids are spread over many partitions
    with broker.after_power_cut() as second:
        after = second.broker.transactions
        assert after.transactions == before
        assert sorted(after.by_producer_id.values()) == sorted(names)
        assert stable(second, "t") == offset_at(second, "t", -1)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_redpanda_17827_14624_no_producer_is_evicted_before_its_end_is_complete(version, commit):
    """In Redpanda, the replayed commit was refused because the partition had evicted the producer; the transaction
    stayed in PREPARE_COMMIT. Here the producer can be evicted once the end is complete.
    """
    settings = BrokerSettings(max_producer_ids=1)
    with SimulatedBroker(settings) as broker:
        broker.ask(create("t", 1))
        txn = begun(broker, version)
        txn.write("t", b"x")
        become(broker, status=Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT)
        log = broker.broker.topics.by_name["t"].partitions[0].log
        assert log.producers.evict(5) == 0  # the producer is not evicted while its transaction is open
        with broker.after_power_cut() as second:
            assert state(second) == ("CompleteCommit" if commit else "CompleteAbort")
            assert values(second, "t") == ([b"x"] if commit else [])
            log = second.broker.topics.by_name["t"].partitions[0].log
            assert log.producers.evict(5) == 1
            second.broker.producer_limit.look([log])
            again = begun(second, version)
            again.write("t", b"y")
            assert again.commit() == OK


@pytest.mark.slow
def test_kafka_19999_a_restart_completes_a_commit_whose_marker_is_already_there(broker):
    """The log has the marker and not the COMPLETE record. In Kafka, the repeated marker was refused again and again."""
    txn = begun(broker, 2)
    txn.write("t", b"x")
    before = broker.broker.transactions.transactions["x"]
    assert txn.commit() == OK
    become(broker, **before._replace(status=Status.PREPARE_COMMIT, producer_epoch=txn.epoch)._asdict())
    with broker.after_power_cut() as second:
        assert state(second) == "CompleteCommit"
        assert values(second, "t") == [b"x"]
        assert stable(second, "t") == offset_at(second, "t", -1)
        again = begun(second, 2)
        again.write("t", b"y")
        assert again.commit() == OK
        assert values(second, "t") == [b"x", b"y"]
