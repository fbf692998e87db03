"""Sequences: which number a batch gets, what each answer means for it and for those after it."""

import pytest
from fencepost.client.producer.sequences import LAST_EPOCH, PartitionEntry, Sequences, Verdict
from fencepost.client.values import ProducerIdentity
from fencepost.protocol.errors import ErrorCode
from numbered_batches import Sent, producer, send

NONE = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
BUSY = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.requirement("S-38", "S-39")
def test_a_batch_gets_its_sequence_when_sent_and_the_highest_acked_one_is_noted():
    sequences, entry = producer()
    first, second = Sent(3), Sent(2)
    assert (first.sequence, first.identity) == (-1, None)
    send(sequences, entry, first, second)
    assert (first.sequence, second.sequence) == (0, 3)
    assert first.identity == (7, 0)
    assert sequences.judge(entry, first, NONE) is Verdict.WRITTEN
    assert (entry.next_sequence, entry.acked) == (5, 3)


@pytest.mark.requirement("S-40")
def test_without_a_producer_id_no_batch_may_be_sent():
    sequences = Sequences()
    assert not sequences.may_take_new(PartitionEntry())


def test_acked_stays_the_highest_sequence_if_batches_are_acknowledged_out_of_order():
    sequences, entry = producer()
    batches = [Sent(n + 1) for n in range(4)]
    send(sequences, entry, *batches)
    for number, acked in ((1, 3), (0, 3), (3, 10), (2, 10)):
        sequences.judge(entry, batches[number], ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        assert entry.acked == acked


def test_a_success_for_an_older_producer_epoch_leaves_the_acked_sequence_unchanged():
    sequences, entry = producer(transactional=True)
    late = Sent(5)
    send(sequences, entry, late)
    sequences.begin(ProducerIdentity(7, 1), [entry])
    assert sequences.judge(entry, late, NONE) is Verdict.WRITTEN
    first = Sent(2)
    send(sequences, entry, first)
    sequences.judge(entry, late, NONE)
    assert (entry.acked, entry.is_known) == (0, False)
    sequences.judge(entry, first, NONE)
    assert (entry.acked, entry.is_known) == (2, True)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("transactional", [False, True])
def test_dropping_a_batch_leaves_a_gap_only_if_it_has_a_sequence(which, transactional):
    sequences, entry = producer(transactional=transactional)
    batches = [Sent(2) for _ in range(3)]
    send(sequences, entry, *batches)
    sequences.dropped(entry, batches[which])
    assert (entry.gap, sequences.is_broken) == (True, transactional)
    plain, entry = Sequences(idempotent=False), PartitionEntry()
    send(plain, entry, *(other := [Sent(2) for _ in range(3)]))
    plain.dropped(entry, other[which])
    assert (entry.gap, plain.is_broken) == (False, False)


@pytest.mark.parametrize("producer_id", [7, 2**40])
def test_an_invalid_epoch_error_of_an_older_epoch_still_asks_for_a_new_id(producer_id):
    sequences, entry = Sequences(), PartitionEntry()
    sequences.begin(ProducerIdentity(producer_id, 0))
    send(sequences, entry, batch := Sent(1))
    sequences.begin(ProducerIdentity(int(str(producer_id)), 1))  # an equal int, and for 2**40 another object
    assert sequences.judge(entry, batch, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.AGAIN
    assert (sequences.identity, sequences.wants_identity) == (None, True)


def test_no_new_producer_id_or_epoch_is_wanted_before_a_batch_has_failed():
    assert not Sequences().wants_identity
    assert not producer()[0].wants_identity


def test_the_sequence_after_the_highest_int_is_0():
    sequences, entry = producer()
    entry.next_sequence = entry.acked = 2**31 - 2
    first, second = Sent(3), Sent(1)
    send(sequences, entry, first, second)
    assert (first.sequence, second.sequence) == (2**31 - 2, 1)
    sequences.judge(entry, first, NONE)
    assert entry.acked == 1


def test_a_sixth_batch_is_not_sent_before_the_first_is_answered():
    sequences, entry = producer()
    five = [Sent() for _ in range(5)]
    send(sequences, entry, *five)
    assert not sequences.may_take_new(entry)
    sequences.judge(entry, five[0], NONE)
    assert sequences.may_take_new(entry)


def test_at_most_one_batch_is_in_flight_until_the_broker_knows_the_producer():
    """A broker that does not know a producer accepts any sequence as its first: the second batch must not arrive
    before the first. In a transaction five may be in flight, because batches out of order only abort it.
    """
    sequences, entry = producer(is_known=False)
    send(sequences, entry, first := Sent())
    assert not sequences.may_take_new(entry)
    sequences.judge(entry, first, NONE)
    send(sequences, entry, *(Sent() for _ in range(5)))
    in_transaction, entry = producer(is_known=False, transactional=True)
    send(in_transaction, entry, *(Sent() for _ in range(5)))


@pytest.mark.parametrize("before", [0, 1, 7])
def test_the_oldest_unanswered_batch_is_never_more_than_four_behind_the_newest(before):
    """The broker remembers five batches. With a sixth, it could not recognise a retry of the first as a duplicate."""
    sequences, entry = producer()
    for _ in range(before):
        send(sequences, entry, one := Sent())
        sequences.judge(entry, one, NONE)
    batches = [Sent(name=n) for n in range(5)]
    send(sequences, entry, *batches)
    batches[0].come_back(maybe_written=True)
    for one in batches[1:]:
        assert sequences.judge(entry, one, NONE) is Verdict.WRITTEN
    assert sequences.again(entry) is batches[0]
    batches[0].leave()
    assert not sequences.may_take_new(entry), "four newer ones were written already"
    sequences.judge(entry, batches[0], NONE)
    assert sequences.may_take_new(entry)


@pytest.mark.requirement("S-42", "S-43", "S-44")
def test_if_the_second_of_five_batches_fails_it_and_the_rest_are_retried_in_order():
    sequences, entry = producer()
    batches = [Sent(name=n) for n in range(5)]
    send(sequences, entry, *batches)
    sequences.judge(entry, batches[0], NONE)
    assert sequences.judge(entry, batches[1], BUSY) is Verdict.AGAIN
    assert sequences.again(entry) is None, "three are still on the way"
    for late in batches[2:]:
        assert sequences.judge(entry, late, OUT_OF_ORDER) is Verdict.AGAIN
    numbers = [one.sequence for one in batches]
    order = []
    while (one := sequences.again(entry)) is not None:
        assert not sequences.may_take_new(entry), "retries go first"
        one.leave()
        assert sequences.again(entry) is None, "one at a time"
        order.append(one.name)
        sequences.judge(entry, one, NONE)
    assert order == [1, 2, 3, 4]
    assert [one.sequence for one in batches] == numbers
    send(sequences, entry, *(Sent() for _ in range(5)))  # the window is empty again, so it has room for five


def test_a_duplicate_sequence_error_counts_as_written():
    sequences, entry = producer()
    batch = Sent()
    send(sequences, entry, batch)
    batch.come_back(maybe_written=True)
    assert sequences.again(entry) is batch
    batch.leave()
    assert sequences.judge(entry, batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is Verdict.DUPLICATE
    assert (entry.window, entry.acked) == ([], 1)


@pytest.mark.requirement("S-41")
def test_after_an_unanswered_batch_timed_out_its_partition_uses_a_new_epoch():
    sequences, entry = producer()
    batch = Sent(4)
    send(sequences, entry, batch)
    batch.come_back(maybe_written=True)
    sequences.dropped(entry, batch)
    after = Sent()
    send(sequences, entry, after)
    assert (after.identity, after.sequence) == ((7, 1), 0)


def test_a_success_of_the_next_batch_proves_a_timed_out_one_written():
    """The broker accepts only the next sequence. So there is no gap, and the producer needs no new epoch."""
    sequences, entry = producer()
    first, second = Sent(), Sent()
    send(sequences, entry, first, second)
    first.come_back(maybe_written=True)
    sequences.dropped(entry, first)
    assert not sequences.may_take_new(entry)
    sequences.judge(entry, second, NONE)
    assert sequences.may_take_new(entry)
    assert sequences.identity == (7, 0)


def test_librdkafka_4438_a_batch_that_may_be_written_keeps_its_sequence():
    """Before librdkafka 2.3, it counted as written: if it was not, the next one was out of order, a fatal error."""
    sequences, entry = producer()
    first, second, third = batches = [Sent(name=n) for n in range(3)]
    send(sequences, entry, *batches)
    for one in batches:
        one.come_back(maybe_written=True)
    sequences.dropped(entry, first)
    assert sequences.again(entry) is second
    assert second.sequence == 1
    second.leave()
    assert sequences.judge(entry, second, NONE) is Verdict.WRITTEN
    assert sequences.again(entry) is third
    assert third.identity == (7, 0)
    third.leave()
    assert sequences.judge(entry, third, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is Verdict.DUPLICATE


def test_a_retry_refused_as_out_of_order_fails_as_maybe_written():
    """The broker may have written the first attempt and then forgotten the producer; then the same sequence is
    unexpected.
    """
    sequences, entry = producer()
    first, second, third = batches = [Sent(name=n) for n in range(3)]
    send(sequences, entry, *batches)
    second.come_back(maybe_written=True)
    third.come_back(maybe_written=False)
    first.come_back(maybe_written=True)
    sequences.dropped(entry, first)
    assert sequences.again(entry) is second
    second.leave()
    assert sequences.judge(entry, second, OUT_OF_ORDER) is Verdict.FAILED
    assert second.maybe_written
    assert sequences.again(entry) is third  # the rest begins anew, under an epoch that fences late copies
    assert (third.identity, third.sequence) == ((7, 1), 0)


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN])
def test_after_a_broker_lost_acknowledged_batches_a_new_epoch_is_used(code):
    sequences, entry = producer()
    first, second = Sent(), Sent()
    send(sequences, entry, first)
    sequences.judge(entry, first, NONE)
    send(sequences, entry, second)
    assert sequences.judge(entry, second, code) is Verdict.AGAIN
    assert sequences.again(entry) is second
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
def test_a_retry_after_an_error_with_an_unclear_outcome_keeps_epoch_and_sequence(code):
    sequences, entry = producer()
    batch = Sent()
    send(sequences, entry, batch)
    assert sequences.judge(entry, batch, code) is Verdict.AGAIN
    assert batch.maybe_written
    assert sequences.again(entry) is batch
    assert (batch.identity, batch.sequence) == ((7, 0), 0)


def test_unknown_server_error_fails_a_batch_as_maybe_written():
    sequences, entry = producer()
    batch = Sent()
    send(sequences, entry, batch)
    assert sequences.judge(entry, batch, ErrorCode.UNKNOWN_SERVER_ERROR) is Verdict.FAILED
    assert batch.maybe_written


def test_a_batch_stays_maybe_written_whatever_error_its_retries_get():
    sequences, entry = producer()
    batch = Sent()
    send(sequences, entry, batch)
    batch.come_back(maybe_written=True)
    batch.leave()
    sequences.judge(entry, batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert batch.maybe_written
    batch.leave()
    batch.come_back(maybe_written=False)
    assert batch.maybe_written
    batch.leave()
    assert sequences.judge(entry, batch, OUT_OF_ORDER) is Verdict.FAILED
    assert batch.maybe_written


def test_a_new_epoch_for_one_partition_leaves_others_at_their_epoch():
    sequences, broken = producer()
    _, sound = producer()
    send(sequences, sound, Sent())
    batch = Sent()
    send(sequences, broken, batch)
    sequences.judge(broken, batch, OUT_OF_ORDER)
    sequences.again(broken)
    send(sequences, sound, other := Sent())
    assert (other.identity, other.sequence) == ((7, 0), 1)
    send(sequences, PartitionEntry(), fresh := Sent())
    assert fresh.identity == (7, 1)


def test_each_partition_that_restarts_its_sequence_gets_its_own_epoch():
    sequences, one = producer()
    other = PartitionEntry()
    for entry in (one, other):
        send(sequences, entry, batch := Sent())
        sequences.judge(entry, batch, OUT_OF_ORDER)
    assert sequences.again(one).identity == (7, 1)
    assert sequences.again(other).identity == (7, 2)


def test_a_new_producer_id_is_requested_when_the_last_epoch_is_used_up():
    """Clients use epochs up to 32,766; epoch 32,767 is reserved for the broker (KIP-360)."""
    assert LAST_EPOCH == 32_766
    sequences, entry = producer()
    sequences.begin(ProducerIdentity(7, LAST_EPOCH))
    send(sequences, entry, batch := Sent())
    sequences.judge(entry, batch, OUT_OF_ORDER)
    assert sequences.again(entry) is None
    assert sequences.wants_identity
    sequences.begin(ProducerIdentity(8, 0))
    assert sequences.again(entry).identity == (8, 0)


def test_invalid_producer_epoch_retries_the_batch_under_a_new_producer_id():
    sequences, entry = producer()
    send(sequences, entry, batch := Sent())
    assert sequences.judge(entry, batch, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.AGAIN
    assert sequences.again(entry) is None
    assert sequences.wants_identity
    sequences.begin(ProducerIdentity(8, 0))
    assert sequences.again(entry) is batch
    assert batch.identity == (8, 0)


def test_librdkafka_3575_a_transaction_never_takes_a_new_epoch_by_itself():
    """librdkafka #3575: it asked for a new epoch in the middle of a transaction, and the commit lost records."""
    sequences, entry = producer(transactional=True)
    first, second = Sent(), Sent()
    send(sequences, entry, first, second)
    assert sequences.judge(entry, first, OUT_OF_ORDER) is Verdict.FAILED
    assert sequences.judge(entry, second, OUT_OF_ORDER) is Verdict.FAILED
    assert sequences.is_broken
    assert sequences.again(entry) is None
    assert not sequences.may_take_new(entry)
    sequences.begin(ProducerIdentity(7, 1), [entry])
    assert not sequences.is_broken
    send(sequences, entry, fresh := Sent())
    assert (fresh.identity, fresh.sequence) == ((7, 1), 0)


def test_the_parts_of_a_split_batch_keep_its_sequence_numbers():
    sequences, entry = producer()
    first, large, last = Sent(1), Sent(4), Sent(1)
    send(sequences, entry, first, large, last)
    sequences.judge(entry, first, NONE)
    assert sequences.judge(entry, large, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    sequences.judge(entry, last, OUT_OF_ORDER)
    parts = [Sent(3), Sent(1)]
    sequences.split(entry, large, parts)
    assert [(one.sequence, one.after) for one in entry.window] == [(1, 4), (4, 5), (5, 6)]
    assert sequences.again(entry) is parts[0]


@pytest.mark.parametrize("idempotent", [True, False])
def test_the_parts_of_a_split_first_batch_get_consecutive_sequences(idempotent):
    sequences, entry = producer(idempotent=idempotent)
    send(sequences, entry, large := Sent(2))
    assert sequences.judge(entry, large, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    parts = [Sent(1), Sent(1)]
    sequences.split(entry, large, parts)
    assert [one.sequence for one in entry.window] == ([0, 1] if idempotent else [-1, -1])


def test_a_single_too_large_record_fails_and_the_next_batch_has_a_new_epoch():
    sequences, entry = producer()
    send(sequences, entry, large := Sent(1))
    assert sequences.judge(entry, large, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.FAILED
    send(sequences, entry, after := Sent())
    assert (after.identity, after.sequence) == ((7, 1), 0)


@pytest.mark.requirement("S-45")
def test_without_idempotence_only_one_batch_in_flight_keeps_the_order():
    sequences, entry = Sequences(idempotent=False), PartitionEntry()
    first, second = Sent(name=1), Sent(name=2)
    send(sequences, entry, first, second)
    assert first.sequence == -1
    sequences.judge(entry, first, BUSY)
    assert sequences.again(entry) is first, "second may be written already"
    single, entry = Sequences(idempotent=False, window=1), PartitionEntry()
    send(single, entry, first := Sent())
    assert not single.may_take_new(entry)
    single.judge(entry, first, BUSY)
    assert not single.may_take_new(entry)
    assert single.again(entry) is first
