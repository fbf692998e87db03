"""Verdicts on sequences and epochs, and what is remembered to reach them. Answers are those of Apache Kafka 4.3.1."""

import pytest
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Marker
from fencepost.storage.producers.aborted import AbortedTransaction
from fencepost.storage.producers.producers import Duplicate, ProducerDescription
from one_partition import GAP, LAST, LAST_EPOCH, STALE, TRANSACTIONAL, OnePartition, P, Q, aged, contents, known, make

# Each row was sent to Apache Kafka 4.3.1 as (epoch, first sequence, records); answers are base offsets or codes.
ANSWERED_BY_KAFKA = {
    "in order": ([(0, 0, 1), (0, 1, 2), (0, 3, 1)], [0, 1, 3]),
    "again": ([(0, 0, 2), (0, 2, 3), (0, 0, 2), (0, 2, 3)], [0, 2, 0, 2]),
    "a gap, then what was missing": ([(0, 0, 1), (0, 2, 1), (0, 1, 1)], [0, GAP, 1]),
    "the beginning of a batch": ([(0, 0, 3), (0, 0, 2), (0, 3, 1)], [0, GAP, 3]),
    "a batch and more": ([(0, 0, 3), (0, 0, 4)], [0, GAP]),
    "the end of a batch": ([(0, 0, 3), (0, 1, 2)], [0, GAP]),
    "two batches as one": ([(0, 0, 2), (0, 2, 2), (0, 0, 4)], [0, 2, GAP]),
    "the sixth back": ([(0, n, 1) for n in [0, 1, 2, 3, 4, 5, 0, 1, 5]], [0, 1, 2, 3, 4, 5, GAP, 1, 5]),
    "a first sequence of 77": ([(0, 77, 1), (0, 78, 1), (0, 76, 1), (0, 0, 1)], [0, 1, GAP, GAP]),
    "a new epoch": ([(0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1), (0, 0, 1)], [0, 1, 2, STALE, STALE]),
    "a new epoch at sequence 1": ([(0, 0, 1), (1, 1, 1)], [0, GAP]),
    "a batch of the old epoch again": ([(3, 0, 1), (4, 0, 1), (3, 0, 1)], [0, 1, STALE]),
    "a batch of the new epoch again": ([(3, 0, 1), (4, 0, 1), (4, 0, 1)], [0, 1, 1]),
    "an epoch far ahead": ([(0, 0, 1), (9, 0, 1)], [0, 1]),
    "the wrap between batches": ([(0, LAST - 1, 2), (0, 0, 1), (0, LAST - 1, 2), (0, 1, 1)], [0, 2, 0, 3]),
    "the wrap within a batch": ([(0, LAST, 3), (0, 2, 1), (0, LAST, 3), (0, 3, 1)], [0, 3, 0, 4]),
    "the wrap of a known producer": (
        [(0, LAST - 1, 1), (0, LAST, 1), (0, 0, 1), (0, LAST, 1), (0, 1, 1)],
        [0, 1, 2, 1, 3],
    ),
    "a sequence of the old epoch in the new": ([(0, 5, 1), (0, 6, 1), (1, 0, 1), (1, 5, 1)], [0, 1, 2, GAP]),
    "a gap after the wrap": ([(0, LAST, 1), (0, 1, 1)], [0, GAP]),
    "the last sequence twice": ([(0, LAST, 1), (0, LAST, 1)], [0, 0]),
    "the highest epoch": ([(32767, 0, 1), (32767, 1, 1)], [0, 1]),
}


@pytest.mark.requirement("S-19", "S-20", "S-21", "S-23", "S-25", "S-27", "S-28", "S-29", "S-30")
@pytest.mark.parametrize("name", ANSWERED_BY_KAFKA)
def test_each_order_of_sent_sequences_gets_the_offsets_and_errors_that_kafka_gives(partition, name):
    sent, answers = ANSWERED_BY_KAFKA[name]
    assert [partition.send(P, *each) for each in sent] == answers


@pytest.mark.parametrize("name", ANSWERED_BY_KAFKA)
def test_a_restart_after_each_batch_changes_no_answer_to_a_sequence(partition, name):
    sent, answers = ANSWERED_BY_KAFKA[name]
    for each, answer in zip(sent, answers, strict=True):
        assert partition.send(P, *each) == answer
        partition.restart()


@pytest.mark.requirement("S-23")
def test_a_duplicate_is_answered_with_its_first_offsets_and_timestamp(partition):
    partition.send(P, 0, 0, 3, timestamp=11)
    partition.send(P, 0, 3, 2, timestamp=12)
    assert partition.states.judge(make(P, 0, 3, 2, timestamp=99)) == Duplicate(3, 4, 12)
    assert partition.states.judge(make(P, 0, 0, 3, timestamp=99)) == Duplicate(0, 2, 11)


@pytest.mark.requirement("S-23", "S-34")
def test_checking_a_batch_changes_no_producer_state(partition):
    for sequence in range(6):
        partition.send(P, 1, sequence)
    before = partition.states.snapshot(), list(partition.states.describe())
    for epoch, sequence in [(1, 6), (1, 5), (1, 3), (1, 0), (1, 9), (0, 6), (2, 0), (2, 5)]:
        for producer_id in (P, Q):
            try:
                partition.states.judge(make(producer_id, epoch, sequence))
            except KafkaError:
                pass
    assert (partition.states.snapshot(), list(partition.states.describe())) == before


@pytest.mark.requirement("S-22")
def test_the_last_five_batches_of_a_producer_are_duplicates_also_after_a_restart(partition):
    for sequence in range(9):
        partition.send(P, 0, sequence)
    partition.restart()
    assert [partition.send(P, 0, sequence) for sequence in range(4, 9)] == [4, 5, 6, 7, 8]
    assert partition.send(P, 0, 3) == GAP


@pytest.mark.requirement("S-22")
def test_the_last_five_batches_are_duplicates_whatever_transaction_each_was_in(partition):
    for sequence in range(6):
        assert partition.send_in_transaction(P, 0, sequence) == 2 * sequence
        partition.end(P, 0)
    assert [partition.send_in_transaction(P, 0, n) for n in range(6)] == [GAP, 2, 4, 6, 8, 10]


@pytest.mark.requirement("S-23")
def test_a_duplicate_is_recognised_at_large_sequence_numbers(partition):
    first = 100_000
    assert [partition.send(P, 0, first + n, 2) for n in (0, 2, 4)] == [0, 2, 4]
    assert [partition.send(P, 0, first + n, 2) for n in (0, 2, 4)] == [0, 2, 4]


@pytest.mark.requirement("S-24")
def test_batches_without_a_producer_id_are_accepted_and_create_no_producer_state(partition):
    assert [partition.send(-1, -1, -1) for _ in range(3)] == [0, 1, 2]
    assert len(partition.states) == 0


@pytest.mark.requirement("S-17")
def test_producers_have_sequences_of_their_own(partition):
    assert [partition.send(who, 0, n) for n in range(3) for who in (P, Q)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.requirement("S-26")
def test_with_refuse_unknown_an_unknown_producer_has_to_begin_at_sequence_0(partition):
    refusal = {"refuse_unknown_with": ErrorCode.UNKNOWN_PRODUCER_ID}
    assert partition.send(P, 0, 5, **refusal) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert [partition.send(P, 0, n, **refusal) for n in (0, 1, 3)] == [0, 1, GAP]


@pytest.mark.requirement("S-31", "S-32")
def test_retries_after_a_lost_answer_and_a_lost_request_store_each_batch_once(partition):
    assert partition.send(P, 0, 0) == 0  # the answer is lost
    assert partition.send(P, 0, 0) == 0
    # the request with sequence 1 is lost, 2 arrives; both come again
    assert [partition.send(P, 0, n) for n in (2, 1, 2)] == [GAP, 1, 2]
    assert partition.end_offset == 3


@pytest.mark.requirement("S-33")
def test_a_producer_that_restarts_with_a_new_id_can_write_the_same_again(partition):
    assert partition.send(P, 0, 0) == 0
    assert partition.send(Q, 0, 0) == 1


# Refused after having been judged good


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_batches_after_a_refused_sequence_get_out_of_order_until_it_is_sent_again(partition, epoch):
    """The first batch was refused for another reason than its sequence, as for a full disk; GAP is
    OUT_OF_ORDER_SEQUENCE_NUMBER.
    """
    partition.states.turned_away(make(P, epoch, 10, 5))
    assert [partition.send(P, epoch, n, 5) for n in (15, 20)] == [GAP, GAP]
    assert [partition.send(P, epoch, n, 5) for n in (10, 15, 20)] == [0, 5, 10]


def test_after_several_refused_batches_the_lowest_sequence_is_expected_first(partition):
    for sequence in (3, 0, 6):
        partition.states.turned_away(make(P, 0, sequence, 3))
    assert [partition.send(P, 0, n, 3) for n in (3, 6, 0, 3, 6)] == [GAP, GAP, 0, 3, 6]


def test_the_lowest_refused_sequence_is_found_across_the_wrap_to_zero(partition):
    partition.states.turned_away(make(P, 0, 1, 3))
    partition.states.turned_away(make(P, 0, LAST - 1, 3))
    assert [partition.send(P, 0, n, 3) for n in (1, LAST - 1, 1)] == [GAP, 0, 3]


def test_after_a_refused_batch_a_new_epoch_or_its_records_one_by_one_are_accepted(partition):
    partition.states.turned_away(make(P, 0, 0, 5))
    assert partition.send(P, 1, 0) == 0
    partition.states.turned_away(make(Q, 0, 0, 5))
    assert [partition.send(Q, 0, n) for n in range(3)] == [1, 2, 3]


def test_a_refused_batch_is_forgotten_once_it_is_stored_or_a_snapshot_is_restored(partition):
    empty = partition.states.snapshot()
    partition.states.turned_away(make(P, 0, 0))
    partition.send(P, 0, 0)
    partition.states.evict()  # so any sequence is accepted, unless a refused one must come first
    assert partition.send(P, 0, 9) == 1
    partition.states.turned_away(make(Q, 0, 0))
    partition.states.restore(empty)
    assert partition.send(Q, 0, 9) == 2


def test_refused_batches_are_remembered_only_for_the_newest_unknown_producers(partition):
    partition.send(P, 0, 0)
    for producer_id in range(P, 3000):
        partition.states.turned_away(make(producer_id, 0, 1))
    partition.states.turned_away(make(-1, -1, -1))
    # The last 1,000 are remembered. A batch without a producer id is not, nor one of P, which is known.
    assert partition.send(2999, 0, 2) == GAP
    assert partition.send(1999, 0, 2) == 1
    assert partition.send(P, 0, 1) == 2


# Transactions


@pytest.mark.requirement("S-97", "S-99")
def test_first_open_offset_is_the_lowest_first_offset_of_open_transactions(partition):
    partition.send(99, 0, 0, 10)
    for producer_id in (P, Q):
        partition.send_in_transaction(producer_id, 0, 0, 2)
    partition.send_in_transaction(P, 0, 2)
    states = partition.states
    assert (states.first_offset_of(P), states.first_offset_of(Q), states.first_offset_of(99)) == (10, 12, None)
    assert (states.first_open_offset(), states.first_open_offset(besides=P), states.first_open_offset(besides=Q)) == (
        10,
        12,
        10,
    )
    partition.end(P, 0)
    assert (states.first_open_offset(), states.first_open_offset(besides=Q)) == (12, None)
    partition.end(Q, 0)
    assert states.first_open_offset() is None


@pytest.mark.requirement("S-100")
def test_an_abort_marker_returns_first_and_last_offset_and_the_last_stable_offset(partition):
    partition.send_in_transaction(P, 0, 0, 2)
    partition.send_in_transaction(Q, 0, 0, 2)
    partition.send_in_transaction(P, 0, 2, 2)
    assert partition.end(P, 0, Marker.ABORT) == AbortedTransaction(P, 0, 6, 2)
    assert partition.end(Q, 0, Marker.ABORT) == AbortedTransaction(Q, 2, 7, 8)


def test_a_commit_or_a_marker_without_a_transaction_returns_no_aborted_transaction(partition):
    partition.send_in_transaction(P, 0, 0)
    assert partition.end(P, 0) is None
    assert partition.end(P, 0, Marker.ABORT) is None
    assert partition.end(Q, 0, Marker.ABORT) is None


def test_sequences_continue_after_a_marker_of_the_same_epoch(partition):
    partition.send_in_transaction(P, 0, 0, 3)
    partition.end(P, 0)
    assert partition.send_in_transaction(P, 0, 3) == 4
    assert partition.send_in_transaction(P, 0, 0, 3) == 0  # a late retry of the first transaction


@pytest.mark.requirement("S-62")
def test_after_a_marker_of_a_new_epoch_sequences_begin_at_0_and_the_old_is_fenced(partition):
    partition.send_in_transaction(P, 4, 0, 3)
    partition.send_in_transaction(P, 4, 3)
    partition.end(P, 5, Marker.ABORT)
    assert partition.send_in_transaction(P, 4, 4) == STALE
    assert partition.send_in_transaction(P, 4, 0, 3) == STALE
    assert partition.send_in_transaction(P, 5, 3) == GAP  # not a duplicate of the old epoch's batch
    assert partition.send_in_transaction(P, 5, 4) == GAP
    assert partition.send_in_transaction(P, 5, 0, 3) == 5


def test_a_new_epoch_fences_the_old_one_even_if_its_sequence_just_continues(partition):
    partition.send_in_transaction(P, 4, 0)
    partition.end(P, 5, Marker.ABORT)
    assert partition.send_in_transaction(P, 6, 0) == 2
    assert partition.send_in_transaction(P, 5, 0) == STALE
    partition.send(Q, 0, LAST)
    assert partition.send(Q, 1, 0) == 4
    assert partition.send(Q, 0, 0) == STALE


def test_a_sequence_jump_read_from_the_log_stays_in_the_open_transaction(partition):
    partition.send(Q, 0, 0, 3)
    partition.send_in_transaction(P, 0, 0)
    partition.append(make(P, 0, 9, attributes=TRANSACTIONAL))  # as a replay of the log: its sequence is not checked
    assert partition.states.first_offset_of(P) == partition.states.first_open_offset() == 3
    assert partition.end(P, 0, Marker.ABORT) == AbortedTransaction(P, 3, 5, 6)
    assert partition.states.first_open_offset() is None


def test_an_abort_marker_does_not_let_later_batches_overtake_a_refused_one(partition):
    partition.states.turned_away(make(P, 4, 0))
    partition.end(P, 4, Marker.ABORT)
    assert [partition.send_in_transaction(P, 4, n) for n in (1, 0, 1)] == [GAP, 1, 2]


@pytest.mark.parametrize("kind", Marker)
def test_a_marker_for_an_unknown_producer_makes_no_entry_and_aborts_nothing(partition, kind):
    assert partition.end(P, 5, kind) is None
    assert len(partition.states) == 0
    # A first batch may have any sequence, and is the producer's entry.
    assert partition.send(P, 5, 40) == 1
    assert partition.send(P, 5, 43) == GAP


def test_a_non_transactional_batch_within_an_open_transaction_gets_invalid_txn_state(partition):
    partition.send_in_transaction(P, 0, 0)
    assert partition.send(P, 0, 1) == ErrorCode.INVALID_TXN_STATE
    assert partition.send(P, 1, 0) == ErrorCode.INVALID_TXN_STATE
    assert partition.send(P, 0, 2) == GAP
    assert partition.send(P, 0, 0) == 0  # a duplicate, although it is not marked as transactional
    assert partition.send_in_transaction(P, 0, 1) == 1


def test_a_marker_of_an_older_coordinator_epoch_gets_transaction_coordinator_fenced(partition):
    partition.send_in_transaction(P, 0, 0)
    partition.end(P, 0, coordinator_epoch=3)
    partition.send_in_transaction(P, 0, 1)
    assert partition.end(P, 0, coordinator_epoch=2) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert partition.end(P, 0, Marker.ABORT, coordinator_epoch=3) == AbortedTransaction(P, 2, 3, 4)


@pytest.mark.parametrize("before", [0, 3])
def test_with_tv2_a_marker_must_have_a_newer_epoch_unless_it_is_repeated(partition, before):
    """before: the offset at which the transaction begins (0 is one, too). A marker of an unknown producer may come."""
    judge = partition.states.judge_marker
    partition.end_offset = before
    partition.send_in_transaction(P, 4, 0)
    with pytest.raises(KafkaError) as caught:
        judge(P, 4, 0, epoch_moves=True)
    assert caught.value.code == STALE
    judge(P, 5, 0, epoch_moves=True)
    judge(P, 4, 0)
    partition.end(P, 5)
    judge(P, 5, 0, epoch_moves=True)
    judge(Q, 0, 0, epoch_moves=True)


@pytest.mark.parametrize("kind", Marker)
def test_a_marker_of_the_last_epoch_ends_the_transaction_and_the_producer(partition, kind):
    partition.send_in_transaction(P, LAST_EPOCH - 1, 0)
    aborted = partition.end(P, LAST_EPOCH, kind)
    assert (aborted is not None) == (kind is Marker.ABORT)
    assert known(partition) == []
    assert partition.states.first_open_offset() is None


def test_a_marker_of_the_last_epoch_for_an_unknown_producer_creates_no_entry(partition):
    partition.end(P, LAST_EPOCH)
    assert known(partition) == []


# Forgetting


@pytest.mark.requirement("S-14")
def test_expire_forgets_exactly_the_producers_idle_for_producer_expiration_ms(partition):
    aged(partition, 1, 2, 3)
    partition.age_ms = 400
    partition.send(1, 0, 1)
    assert not partition.states.expire(1199, 1000)
    assert known(partition) == [2, 3, 1]
    assert not partition.states.expire(1200, 1000)
    assert known(partition) == [3, 1]
    assert not partition.states.expire(5000, 1000)
    assert known(partition) == []


def test_expire_removes_at_most_a_slice_and_returns_whether_more_may_remain(partition):
    aged(partition, *range(10))
    assert partition.states.expire(10**6, 1, at_most=4)
    assert len(partition.states) == 6
    assert partition.states.expire(10**6, 1, at_most=6)
    assert not partition.states.expire(10**6, 1)


def test_a_producer_with_an_open_transaction_is_never_forgotten(partition):
    """Neither expire() nor evict() forget it; its idle time begins with the transaction's end."""
    partition.send_in_transaction(P, 0, 0)
    aged(partition, 1, 2)
    for age_ms in range(10**6, 10**7, 10**6):
        assert not partition.states.expire(age_ms, 1000)
        assert known(partition) == [P]
    assert partition.states.evict(5) == 0
    partition.age_ms = 10**7
    partition.end(P, 0)
    assert not partition.states.expire(10**7 + 999, 1000)
    assert known(partition) == [P]
    partition.states.expire(10**7 + 1000, 1000)
    assert known(partition) == []


def test_expire_returns_false_if_all_producers_have_open_transactions(partition):
    for producer_id in range(50):
        partition.send_in_transaction(producer_id, 0, 0)
    assert not partition.states.expire(10**6, 1000, at_most=10)
    assert len(partition.states) == 50


def test_idle_producers_and_the_longest_idle_time_are_counted(partition):
    assert (len(partition.states._idle), partition.states.idle_since_ms) == (0, None)
    aged(partition, 1, 2, 3)
    partition.send_in_transaction(1, 0, 1)
    assert (len(partition.states._idle), partition.states.idle_since_ms) == (2, 200)
    partition.age_ms = 900
    partition.end(1, 0)
    assert (len(partition.states._idle), partition.states.idle_since_ms) == (3, 200)
    assert partition.states.evict(2) == 2
    assert (len(partition.states._idle), partition.states.idle_since_ms) == (1, 900)


def test_a_producers_idle_time_continues_over_a_restart(partition):
    aged(partition, 1, 2, 3)
    partition.restart()
    assert known(partition) == [1, 2, 3]
    partition.states.expire(1200, 1000)
    assert known(partition) == [3]


def test_after_a_crash_set_the_store_age_back_producers_expire_a_full_time_later(partition):
    partition.age_ms = 5_000_000
    partition.send(P, 0, 0)
    partition.age_ms = 4_000_000  # the age that the last checkpoint noted
    partition.restart()
    partition.states.expire(4_000_999, 1000)
    assert known(partition) == [P]
    partition.states.expire(4_001_000, 1000)
    assert known(partition) == []


def test_when_a_producer_expires_does_not_depend_on_the_timestamps_of_its_records(partition):
    for sequence, timestamp in enumerate([2**62, 0, -1]):
        partition.send(P, 0, sequence, timestamp=timestamp)
    partition.states.expire(999, 1000)
    assert known(partition) == [P]


def test_evict_removes_longest_idle_producers_first_and_none_with_open_transactions(partition):
    partition.send_in_transaction(P, 0, 0)
    aged(partition, 1, 2, 3)
    partition.send(1, 0, 1)
    assert partition.states.evict() == 1
    assert known(partition) == [P, 3, 1]
    partition.send(3, 1, 0)
    assert known(partition) == [P, 1, 3]
    assert partition.states.evict(10) == 2
    assert known(partition) == [P]


# Descriptions


def test_describe_returns_the_fields_of_describe_producers(partition):
    partition.send(P, 2, 5, 3, timestamp=1234)
    partition.send_in_transaction(Q, 3, LAST - 1)
    partition.end(Q, 3, coordinator_epoch=6)
    partition.send_in_transaction(Q, 3, LAST, timestamp=77)
    assert list(partition.states.describe()) == [
        ProducerDescription(P, 2, 7, 1234, -1, -1),
        ProducerDescription(Q, 3, LAST, 77, 6, 5),
    ]


def test_a_producer_fenced_by_a_marker_has_no_last_sequence(partition):
    partition.send_in_transaction(P, 0, 0)
    partition.end(P, 1)
    assert next(partition.states.describe()).last_sequence == -1


@pytest.mark.parametrize("first", [0, 250, 100_000, LAST - 8])
@pytest.mark.parametrize("transactional", [False, True])
def test_the_fast_path_applies_batches_in_sequence_exactly_as_the_general_path(transactional, first):
    """The fast path of produce leaves the same state and the same order of idle producers."""
    ways = []
    for short in (False, True):
        partition, sequence = OnePartition(), first + 1
        partition.send(P, 0, first)
        aged(partition, Q)
        for count in (5, 2, 1, 7, 1, 4):
            partition.age_ms += 100
            offset = partition.end_offset
            if not short:
                assert partition.send(P, 0, sequence, count, attributes=TRANSACTIONAL * transactional) == offset
            else:
                assert partition.states.is_next(P, 0, sequence, transactional)
                last = offset + count - 1
                partition.states.go_on(P, sequence, offset, last, 7, partition.age_ms, transactional)
                partition.end_offset = last + 1
            sequence = (sequence + count) % (LAST + 1)
        states = partition.states
        ways.append((contents(states.snapshot()), states.first_open_offset(), list(states.describe())))
        states.evict()
        assert known(partition) == [P]
    assert ways[0] == ways[1]
