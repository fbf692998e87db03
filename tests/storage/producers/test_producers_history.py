"""Bugs of other brokers in the state of producers, one test each: they do not happen here."""

import pytest
from fencepost.protocol.batches import read
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.raw_records import drop_records
from fencepost.protocol.records import Marker, control_marker
from fencepost.storage.producers.aborted import AbortedTransaction
from fencepost.storage.producers.producers import ProducerStates
from lines_run import lines_run
from one_partition import GAP, LAST, STALE, TRANSACTIONAL, OnePartition, P, Q, contents, make
from raw_batches import batch

# Apache Kafka


def test_kafka_14904_a_refused_first_batch_is_not_overtaken_by_the_second(partition):
    """Five batches are pipelined and the first is refused for the moment. In Kafka, the second was accepted as the
    first, which could never be stored afterwards.
    """
    flight = [make(P, 0, n * 3, 3) for n in range(5)]
    assert partition.states.judge(flight[0]) is None
    partition.states.turned_away(flight[0])
    assert [partition.send(P, 0, n * 3, 3) for n in range(1, 5)] == [GAP] * 4
    assert [partition.send(P, 0, n * 3, 3) for n in range(5)] == [0, 3, 6, 9, 12]


def test_kafka_7190_a_producer_continues_after_retention_deleted_its_records(partition):
    """What is known of producers does not depend on which records a log still has: so none are deleted here."""
    partition.send(P, 0, 0, 5)
    assert partition.send(P, 0, 5) == 5
    partition.states.evict()  # and if the state is gone too, any sequence may follow
    assert partition.send(P, 0, 100) == 6


def test_kafka_6683_a_producer_snapshot_has_no_batch_that_was_only_validated(partition):
    """In Kafka, validation changed the state; if the append failed, the snapshot had a batch that is not in the log."""
    partition.send(P, 0, 0)
    before = partition.states.snapshot()
    assert partition.states.judge(make(P, 0, 1)) is None  # judged good, but the append never comes
    assert partition.states.snapshot() == before
    partition.restart()
    assert partition.send(P, 0, 1) == 1


@pytest.mark.requirement("S-29")
def test_kafka_7692_duplicates_are_recognised_across_the_wrap_of_sequences_to_0(partition):
    for number in range(7):
        assert partition.send(P, 0, (LAST - 3 + number) % 2**31) == number
    assert [partition.send(P, 0, (LAST - 3 + number) % 2**31) for number in range(2, 7)] == [2, 3, 4, 5, 6]
    assert partition.send(P, 0, LAST - 2) == GAP


def test_kafka_7693_a_batch_that_contains_the_wrap_to_0_is_recognised_as_duplicate(partition):
    partition.send(P, 0, LAST - 1, 5)
    partition.restart()
    assert partition.send(P, 0, LAST - 1, 5) == 0
    assert partition.send(P, 0, 3) == 5


def test_kafka_5283_batches_of_the_last_epoch_32767_are_accepted(partition):
    assert partition.send(P, 32766, 0) == 0
    assert partition.send(P, 32767, 0) == 1
    assert partition.send(P, 32766, 1) == STALE
    assert partition.send(P, 32767, 1) == 2


def test_kafka_20090_a_marker_of_the_last_epoch_ends_transaction_and_producer(partition):
    """No producer is given that epoch, so no valid batch can follow; the coordinator refuses late ones, as
    tests/broker/transactions/test_historic_bugs.py shows.
    """
    partition.send_in_transaction(P, 32766, 0)
    partition.send_in_transaction(Q, 32766, 0)
    assert partition.end(P, 32767, Marker.ABORT) == AbortedTransaction(P, 0, 2, 1)
    assert P not in partition.states
    assert partition.states.first_open_offset() == 1
    assert partition.send_in_transaction(Q, 32766, 1) == 3
    partition.restart()
    assert (P in partition.states, len(partition.states)) == (False, 1)
    # Once more, after a restart: nothing is open, and nothing comes back.
    assert partition.end(P, 32767, Marker.ABORT) is None
    assert P not in partition.states


def test_kafka_9144_a_recovery_expires_no_producer_early_and_fences_old_coordinators(partition):
    partition.age_ms = 1_000_000
    partition.send_in_transaction(P, 0, 0, timestamp=1)  # the record's timestamp is long ago
    partition.end(P, 0, coordinator_epoch=9)
    partition.restart()
    partition.states.expire(1_000_000 + 86_399_999, 86_400_000)
    assert len(partition.states) == 1
    assert partition.end(P, 0, coordinator_epoch=8) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_kafka_19999_a_retried_marker_is_accepted_when_the_transaction_is_over(partition):
    partition.send_in_transaction(P, 4, 0)
    partition.end(P, 5)
    partition.restart()  # the coordinator too has forgotten that the marker is written, and writes it again
    partition.states.judge_marker(P, 5, 0, epoch_moves=True)
    assert partition.end(P, 5) is None
    assert partition.send_in_transaction(P, 5, 0) == 3


def test_kafka_14402_a_late_batch_of_an_aborted_tv2_transaction_is_refused(partition):
    partition.send_in_transaction(P, 4, 0)
    partition.end(P, 5, Marker.ABORT)
    assert partition.send_in_transaction(P, 4, 1) == STALE
    assert partition.states.first_open_offset() is None


def test_kafka_18202_without_state_a_tv2_transaction_begins_at_sequence_0(partition):
    assert partition.send_in_transaction(P, 4, 3, refuse_unknown_with=GAP) == GAP
    partition.end(Q, 4)
    assert partition.send_in_transaction(Q, 4, 3, refuse_unknown_with=GAP) == GAP
    assert partition.send_in_transaction(P, 4, 0, refuse_unknown_with=GAP) == 1


def replayed(raw: list[bytes]) -> ProducerStates:
    """Return the producer state that recovery derives from these batches, as compaction left them."""
    states, offset = ProducerStates(), 0
    for each in raw:
        found = read(memoryview(each))
        found.base_offset = offset
        offset = found.next_offset
        states.apply(found, 0)
    return states


def test_kafka_8335_the_last_sequence_is_known_after_compaction_removed_all_records():
    raw = batch(records=4, producer_id=P, producer_epoch=2, base_sequence=10)
    states = replayed([drop_records(read(memoryview(raw)))])
    assert next(states.describe()).last_sequence == 13
    with pytest.raises(KafkaError) as refused:
        states.judge(make(P, 2, 15))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.judge(make(P, 2, 10, 4)) is not None
    assert states.judge(make(P, 2, 14)) is None


def test_kafka_5490_a_transaction_compacted_to_no_records_is_not_open_when_rebuilt():
    """Compaction keeps its batch without records for the producer's sequence; its marker may be removed by then."""
    raw = batch(records=3, producer_id=P, producer_epoch=2, base_sequence=0, attributes=TRANSACTIONAL)
    states = replayed([drop_records(read(memoryview(raw)))])
    assert states.first_open_offset() is None
    states = replayed(
        [drop_records(read(memoryview(raw))), drop_records(read(memoryview(control_marker(Marker.ABORT, P, 2, 0, 1))))]
    )
    assert states.first_open_offset() is None
    assert states.judge(make(P, 2, 3)) is None


def test_kafka_8351_an_abort_covers_a_transaction_that_spans_restarts_and_snapshots(partition):
    partition.send_in_transaction(P, 0, 0, 2)
    partition.restart()
    partition.send_in_transaction(P, 0, 2, 2)
    partition.restart()
    assert partition.states.first_open_offset() == 0
    assert partition.end(P, 0, Marker.ABORT) == AbortedTransaction(P, 0, 4, 5)


def test_kafka_12520_producer_state_rebuilt_from_the_log_equals_the_snapshots(partition):
    """In Kafka, recovery threw the snapshot away and rebuilt another state."""
    for number in range(30):
        who = number % 4
        partition.send_in_transaction(who, number // 12, number % 12 // 4, 1)
        if number % 5 == 0:
            partition.end(who, number // 12, Marker.ABORT)
    for moment in range(len(partition.log) + 1):
        snapshot, whole = ProducerStates(), ProducerStates()
        for each in partition.log[:moment]:
            snapshot.apply(each, 0)
        again = ProducerStates()
        again.restore(snapshot.snapshot())
        for each in partition.log[moment:]:
            again.apply(each, 0)
        for each in partition.log:
            whole.apply(each, 0)
        assert contents(again.snapshot()) == contents(whole.snapshot()) == contents(partition.states.snapshot())


@pytest.mark.slow
def test_kafka_16229_each_slice_of_expiring_producers_takes_bounded_work(partition):
    """In Kafka, expiring 100,000 producers took 5.7 s at once, because each expiry looked at all that remained."""
    states, count = partition.states, 20_000
    sent = make(0, 0, 0)
    for producer_id in range(count):
        sent.producer_id = producer_id
        states.apply(sent, 0)
    slices = []
    while len(states):
        slices.append(lines_run(lambda: states.expire(10**9, 1000)))
    assert not states.expire(10**9, 1000)
    assert len(slices) == count / 1000
    assert max(slices) <= 10 * 1000


# Redpanda


def test_redpanda_996e138_expiring_an_old_epoch_keeps_the_fence_of_a_newer_epoch(partition):
    """In Redpanda, evicting (id, epoch 1) erased the entry of (id, epoch 2), so a zombie of epoch 1 could write."""
    partition.send(P, 1, 0)
    partition.age_ms = 900
    partition.send(P, 2, 0)
    partition.states.expire(1500, 1000)
    assert partition.send(P, 1, 1) == STALE
    partition.send(Q, 0, 0)
    partition.states.evict()  # P, which was silent longest, is forgotten with all its epochs
    assert [each.producer_id for each in partition.states.describe()] == [Q]


def test_redpanda_4ce6552_a_marker_is_never_treated_as_a_duplicate_batch(partition):
    for number in range(4):
        partition.send_in_transaction(P, 0, number)
        end = partition.end_offset
        assert partition.end(P, 0, Marker.ABORT) == AbortedTransaction(P, number * 2, end, end + 1)
        assert partition.end_offset == end + 1
    assert [partition.end(P, 0), partition.end(P, 0)] == [None, None]
    assert partition.end_offset == 10


def test_redpanda_4ce6552_markers_do_not_count_among_the_last_five_batches(partition):
    for number in range(5):
        partition.send(P, 0, number)
    for _ in range(6):
        partition.end(P, 0)
    assert [partition.send(P, 0, number) for number in range(5)] == [0, 1, 2, 3, 4]


def test_redpanda_21340_a_commit_is_accepted_although_the_producer_was_forgotten(partition):
    """In Redpanda it was refused, and the transaction stayed in PrepareCommit for ever."""
    partition.send(P, 3, 0)
    partition.states.evict()
    assert partition.end(P, 3) is None
    assert partition.end_offset == 2


def test_redpanda_51f42c1_markers_for_ended_transactions_change_nothing(partition):
    partition.send_in_transaction(P, 0, 0)
    assert partition.end(P, 0, Marker.ABORT) == AbortedTransaction(P, 0, 1, 2)
    before = partition.states.snapshot()
    for kind in (Marker.ABORT, Marker.COMMIT, Marker.ABORT):
        assert partition.end(P, 0, kind) is None
        assert partition.states.snapshot() == before


def test_redpanda_30003_a_snapshot_keeps_an_open_transaction_and_no_ended_one(partition):
    partition.send_in_transaction(P, 0, 0)
    partition.send_in_transaction(Q, 0, 0)
    partition.end(P, 0)
    partition.restart()
    assert (partition.states.first_open_offset(), partition.states.first_offset_of(P)) == (1, None)
    partition.end(Q, 0)
    partition.restart()
    assert partition.states.first_open_offset() is None


# Clients


def test_librdkafka_1_9_a_sequence_that_returns_to_0_in_one_epoch_is_refused(partition):
    """Metadata said that the topic was deleted; the client began again at 0, and its new data counted as duplicates."""
    for number in range(8):
        partition.send(P, 0, number)
    assert partition.send(P, 0, 0) == GAP
    assert partition.end_offset == 8


def test_producer_state_of_a_recreated_partition_has_no_producers_or_transactions(partition):
    partition.send_in_transaction(P, 3, 0, 4)
    recreated = OnePartition()
    assert recreated.send(P, 3, 4) == 0
    assert recreated.states.first_open_offset() is None
