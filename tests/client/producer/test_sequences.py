"""Sequences: which number a batch gets, what each answer means for it and for those behind it."""

import pytest
from fencepost.client.producer.sequences import LAST_EPOCH, Lane, Sequences, Verdict
from fencepost.client.values import ProducerIdentity
from fencepost.protocol.errors import ErrorCode
from numbered_batches import Sent, producer, send

NONE = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
BUSY = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.requirement("S-38", "S-39")
def test_a_batch_is_numbered_when_taken_and_the_lane_knows_what_was_acknowledged():
    sequences, lane = producer()
    first, second = Sent(3), Sent(2)
    assert (first.sequence, first.identity) == (-1, None)
    send(sequences, lane, first, second)
    assert (first.sequence, second.sequence) == (0, 3)
    assert first.identity == (7, 0)
    assert sequences.judge(lane, first, NONE) is Verdict.WRITTEN
    assert (lane.next_sequence, lane.acked) == (5, 3)


@pytest.mark.requirement("S-40")
def test_without_an_identity_nothing_gets_a_number():
    sequences = Sequences()
    assert not sequences.may_take_new(Lane())


def test_batches_acknowledged_out_of_order_leave_what_was_acknowledged_last():
    sequences, lane = producer()
    batches = [Sent(n + 1) for n in range(4)]
    send(sequences, lane, *batches)
    for number, acked in ((1, 3), (0, 3), (3, 10), (2, 10)):
        sequences.judge(lane, batches[number], ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        assert lane.acked == acked


def test_what_is_acknowledged_under_an_older_identity_says_nothing_of_this_one():
    sequences, lane = producer(transactional=True)
    late = Sent(5)
    send(sequences, lane, late)
    sequences.begin(ProducerIdentity(7, 1), [lane])
    assert sequences.judge(lane, late, NONE) is Verdict.WRITTEN
    first = Sent(2)
    send(sequences, lane, first)
    sequences.judge(lane, late, NONE)
    assert (lane.acked, lane.is_known) == (0, False)
    sequences.judge(lane, first, NONE)
    assert (lane.acked, lane.is_known) == (2, True)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_numbered_batch_that_is_given_up_is_a_gap_and_one_without_a_number_is_none(which, transactional):
    sequences, lane = producer(transactional=transactional)
    batches = [Sent(2) for _ in range(3)]
    send(sequences, lane, *batches)
    sequences.dropped(lane, batches[which])
    assert (lane.gap, sequences.is_broken) == (True, transactional)
    plain, lane = Sequences(idempotent=False), Lane()
    send(plain, lane, *(other := [Sent(2) for _ in range(3)]))
    plain.dropped(lane, other[which])
    assert (lane.gap, plain.is_broken) == (False, False)


@pytest.mark.parametrize("producer_id", [7, 2**40])
def test_an_id_another_has_taken_over_is_given_up_in_whichever_epoch_the_lane_is(producer_id):
    sequences, lane = Sequences(), Lane()
    sequences.begin(ProducerIdentity(producer_id + 0, 0))
    send(sequences, lane, batch := Sent(1))
    sequences.begin(ProducerIdentity(int(str(producer_id)), 1))
    assert sequences.judge(lane, batch, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.AGAIN
    assert (sequences.identity, sequences.wants_identity) == (None, True)


def test_a_producer_wants_no_new_identity_before_there_is_a_reason():
    assert not Sequences().wants_identity
    assert not producer()[0].wants_identity


def test_after_the_last_sequence_comes_zero():
    sequences, lane = producer()
    lane.next_sequence = lane.acked = 2**31 - 2
    first, second = Sent(3), Sent(1)
    send(sequences, lane, first, second)
    assert (first.sequence, second.sequence) == (2**31 - 2, 1)
    sequences.judge(lane, first, NONE)
    assert lane.acked == 1


def test_a_sixth_batch_waits_for_the_first():
    sequences, lane = producer()
    five = [Sent() for _ in range(5)]
    send(sequences, lane, *five)
    assert not sequences.may_take_new(lane)
    sequences.judge(lane, five[0], NONE)
    assert sequences.may_take_new(lane)


def test_until_the_broker_knows_the_producer_one_batch_is_sent_at_a_time():
    """A broker that knows nothing of a producer takes any sequence for its first: the second must not come before."""
    sequences, lane = producer(is_known=False)
    send(sequences, lane, first := Sent())
    assert not sequences.may_take_new(lane)
    sequences.judge(lane, first, NONE)
    send(sequences, lane, *(Sent() for _ in range(5)))
    in_transaction, lane = producer(is_known=False, transactional=True)
    send(in_transaction, lane, *(Sent() for _ in range(5)))


@pytest.mark.parametrize("before", [0, 1, 7])
def test_the_oldest_unanswered_batch_is_never_more_than_four_behind_the_newest(before):
    """The broker remembers five batches: a sixth behind one that may have been written would make it a stranger."""
    sequences, lane = producer()
    for _ in range(before):
        send(sequences, lane, one := Sent())
        sequences.judge(lane, one, NONE)
    batches = [Sent(name=n) for n in range(5)]
    send(sequences, lane, *batches)
    batches[0].come_back(maybe_written=True)
    for one in batches[1:]:
        assert sequences.judge(lane, one, NONE) is Verdict.WRITTEN
    assert sequences.again(lane) is batches[0]
    batches[0].leave()
    assert not sequences.may_take_new(lane), "four newer ones were written already"
    sequences.judge(lane, batches[0], NONE)
    assert sequences.may_take_new(lane)


@pytest.mark.requirement("S-42", "S-43", "S-44")
def test_of_five_in_flight_the_second_fails_and_all_behind_it_follow_in_order():
    sequences, lane = producer()
    batches = [Sent(name=n) for n in range(5)]
    send(sequences, lane, *batches)
    sequences.judge(lane, batches[0], NONE)
    assert sequences.judge(lane, batches[1], BUSY) is Verdict.AGAIN
    assert sequences.again(lane) is None, "three are still on the way"
    for late in batches[2:]:
        assert sequences.judge(lane, late, OUT_OF_ORDER) is Verdict.AGAIN
    numbers = [one.sequence for one in batches]
    order = []
    while (one := sequences.again(lane)) is not None:
        assert not sequences.may_take_new(lane), "retries go first"
        one.leave()
        assert sequences.again(lane) is None, "one at a time"
        order.append(one.name)
        sequences.judge(lane, one, NONE)
    assert order == [1, 2, 3, 4]
    assert [one.sequence for one in batches] == numbers
    send(sequences, lane, *(Sent() for _ in range(5)))


def test_a_duplicate_was_written():
    sequences, lane = producer()
    batch = Sent()
    send(sequences, lane, batch)
    batch.come_back(maybe_written=True)
    assert sequences.again(lane) is batch
    batch.leave()
    assert sequences.judge(lane, batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is Verdict.DUPLICATE
    assert (lane.window, lane.acked) == ([], 1)


@pytest.mark.requirement("S-41")
def test_what_timed_out_and_may_be_written_makes_the_lane_begin_a_new_epoch():
    sequences, lane = producer()
    batch = Sent(4)
    send(sequences, lane, batch)
    batch.come_back(maybe_written=True)
    sequences.dropped(lane, batch)
    after = Sent()
    send(sequences, lane, after)
    assert (after.identity, after.sequence) == ((7, 1), 0)


def test_a_gap_that_a_later_batch_proves_to_be_none_costs_no_epoch():
    sequences, lane = producer()
    first, second = Sent(), Sent()
    send(sequences, lane, first, second)
    first.come_back(maybe_written=True)
    sequences.dropped(lane, first)
    assert not sequences.may_take_new(lane)
    sequences.judge(lane, second, NONE)
    assert sequences.may_take_new(lane)
    assert sequences.identity == (7, 0)


def test_librdkafka_4438_what_may_be_written_is_never_numbered_anew_but_asked_for():
    sequences, lane = producer()
    first, second, third = batches = [Sent(name=n) for n in range(3)]
    send(sequences, lane, *batches)
    for one in batches:
        one.come_back(maybe_written=True)
    sequences.dropped(lane, first)
    assert sequences.again(lane) is second
    assert second.sequence == 1
    second.leave()
    assert sequences.judge(lane, second, OUT_OF_ORDER) is Verdict.AGAIN
    assert sequences.again(lane) is third
    assert third.identity == (7, 0)
    third.leave()
    assert sequences.judge(lane, third, OUT_OF_ORDER) is Verdict.AGAIN
    assert sequences.again(lane) is second
    assert [(one.identity, one.sequence) for one in (second, third)] == [((7, 1), 0), ((7, 1), 1)]


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN])
def test_a_broker_that_lost_what_it_acknowledged_is_answered_with_a_new_epoch(code):
    sequences, lane = producer()
    first, second = Sent(), Sent()
    send(sequences, lane, first)
    sequences.judge(lane, first, NONE)
    send(sequences, lane, second)
    assert sequences.judge(lane, second, code) is Verdict.AGAIN
    assert sequences.again(lane) is second
    assert (second.identity, second.sequence) == ((7, 1), 0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_after_these_answers_a_batch_may_have_been_written_and_keeps_its_number(code):
    sequences, lane = producer()
    batch = Sent()
    send(sequences, lane, batch)
    assert sequences.judge(lane, batch, code) is Verdict.AGAIN
    assert batch.maybe_written
    assert sequences.again(lane) is batch
    assert (batch.identity, batch.sequence) == ((7, 0), 0)


def test_a_bug_of_the_broker_fails_a_batch_that_may_have_been_written():
    sequences, lane = producer()
    batch = Sent()
    send(sequences, lane, batch)
    assert sequences.judge(lane, batch, ErrorCode.UNKNOWN_SERVER_ERROR) is Verdict.FAILED
    assert batch.maybe_written


def test_an_earlier_attempt_may_have_been_written_whatever_a_later_one_is_told():
    sequences, lane = producer()
    batch = Sent()
    send(sequences, lane, batch)
    batch.come_back(maybe_written=True)
    batch.leave()
    sequences.judge(lane, batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert batch.maybe_written
    batch.leave()
    batch.come_back(maybe_written=False)
    assert batch.maybe_written
    batch.leave()
    sequences.judge(lane, batch, OUT_OF_ORDER)
    assert not batch.maybe_written


def test_other_lanes_go_on_under_the_epoch_they_have():
    sequences, broken = producer()
    _, sound = producer()
    send(sequences, sound, Sent())
    batch = Sent()
    send(sequences, broken, batch)
    sequences.judge(broken, batch, OUT_OF_ORDER)
    sequences.again(broken)
    send(sequences, sound, other := Sent())
    assert (other.identity, other.sequence) == ((7, 0), 1)
    send(sequences, Lane(), fresh := Sent())
    assert fresh.identity == (7, 1)


def test_each_lane_that_begins_anew_has_an_epoch_of_its_own():
    sequences, one = producer()
    other = Lane()
    for lane in (one, other):
        send(sequences, lane, batch := Sent())
        sequences.judge(lane, batch, OUT_OF_ORDER)
    assert sequences.again(one).identity == (7, 1)
    assert sequences.again(other).identity == (7, 2)


def test_an_id_without_epochs_left_is_given_up():
    """Epoch 32,767 is the broker's own (KIP-360)."""
    assert LAST_EPOCH == 32_766
    sequences, lane = producer()
    sequences.begin(ProducerIdentity(7, LAST_EPOCH))
    send(sequences, lane, batch := Sent())
    sequences.judge(lane, batch, OUT_OF_ORDER)
    assert sequences.again(lane) is None
    assert sequences.wants_identity
    sequences.begin(ProducerIdentity(8, 0))
    assert sequences.again(lane).identity == (8, 0)


def test_an_epoch_the_broker_no_longer_takes_needs_a_new_id():
    sequences, lane = producer()
    send(sequences, lane, batch := Sent())
    assert sequences.judge(lane, batch, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.AGAIN
    assert sequences.again(lane) is None
    assert sequences.wants_identity
    sequences.begin(ProducerIdentity(8, 0))
    assert sequences.again(lane) is batch
    assert batch.identity == (8, 0)


def test_librdkafka_3575_a_transaction_never_begins_anew_by_itself():
    """librdkafka #3575: it asked for a new epoch in the middle of a transaction, and the commit lost records."""
    sequences, lane = producer(transactional=True)
    first, second = Sent(), Sent()
    send(sequences, lane, first, second)
    assert sequences.judge(lane, first, OUT_OF_ORDER) is Verdict.FAILED
    assert sequences.judge(lane, second, OUT_OF_ORDER) is Verdict.FAILED
    assert sequences.is_broken
    assert sequences.again(lane) is None
    assert not sequences.may_take_new(lane)
    sequences.begin(ProducerIdentity(7, 1), [lane])
    assert not sequences.is_broken
    send(sequences, lane, fresh := Sent())
    assert (fresh.identity, fresh.sequence) == ((7, 1), 0)


def test_the_parts_of_a_batch_that_was_too_large_share_its_numbers():
    sequences, lane = producer()
    first, large, last = Sent(1), Sent(4), Sent(1)
    send(sequences, lane, first, large, last)
    sequences.judge(lane, first, NONE)
    assert sequences.judge(lane, large, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    sequences.judge(lane, last, OUT_OF_ORDER)
    parts = [Sent(3), Sent(1)]
    sequences.split(lane, large, parts)
    assert [(one.sequence, one.after) for one in lane.window] == [(1, 4), (4, 5), (5, 6)]
    assert sequences.again(lane) is parts[0]


@pytest.mark.parametrize("idempotent", [True, False])
def test_the_first_batch_and_one_of_two_records_are_split_as_any_other(idempotent):
    sequences, lane = producer(idempotent=idempotent)
    send(sequences, lane, large := Sent(2))
    assert sequences.judge(lane, large, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    parts = [Sent(1), Sent(1)]
    sequences.split(lane, large, parts)
    assert [one.sequence for one in lane.window] == ([0, 1] if idempotent else [-1, -1])


def test_one_record_that_is_too_large_fails_and_the_next_begins_in_a_new_epoch():
    sequences, lane = producer()
    send(sequences, lane, large := Sent(1))
    assert sequences.judge(lane, large, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.FAILED
    send(sequences, lane, after := Sent())
    assert (after.identity, after.sequence) == ((7, 1), 0)


@pytest.mark.requirement("S-45")
def test_without_idempotence_a_retry_may_overtake_unless_one_is_in_flight_at_most():
    sequences, lane = Sequences(idempotent=False), Lane()
    first, second = Sent(name=1), Sent(name=2)
    send(sequences, lane, first, second)
    assert first.sequence == -1
    sequences.judge(lane, first, BUSY)
    assert sequences.again(lane) is first, "second may be written already"
    single, lane = Sequences(idempotent=False, window=1), Lane()
    send(single, lane, first := Sent())
    assert not single.may_take_new(lane)
    single.judge(lane, first, BUSY)
    assert not single.may_take_new(lane)
    assert single.again(lane) is first
