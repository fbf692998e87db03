"""Sequences against a log that keeps Kafka's rules: nothing twice or out of order, whatever is lost on the way."""

import pytest
from fencepost.client.sequences import LAST_EPOCH, Lane, Numbered, Sequences, Verdict
from fencepost.client.values import ProducerIdentity
from fencepost.protocol.errors import ErrorCode
from hypothesis import given, settings
from hypothesis import strategies as st

NONE = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
BUSY = ErrorCode.NOT_ENOUGH_REPLICAS


class Sent(Numbered):
    def __init__(self, count=1, name=0):
        super().__init__(count)
        self.name = name


def producer(*, is_known=True, **more):
    sequences, lane = Sequences(**more), Lane()
    sequences.begin(ProducerIdentity(7, 0))
    if is_known:  # as it is once the broker has acknowledged a batch
        lane.begin(sequences.identity)
        lane.is_known = True
    return sequences, lane


def send(sequences, lane, *batches):
    for batch in batches:
        assert sequences.may_take_new(lane)
        sequences.take(lane, batch)
        batch.leave()


@pytest.mark.requirement("S-38", "S-39")
def test_a_batch_gets_its_number_when_it_is_taken_and_the_lane_knows_what_was_acknowledged():
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
def test_of_five_in_flight_the_second_fails_and_all_behind_it_follow_in_order_one_at_a_time():
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
def test_what_ran_out_of_time_after_it_may_have_been_written_makes_the_lane_begin_anew_in_a_new_epoch():
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


def test_librdkafka_4438_what_may_have_been_written_is_never_numbered_anew_but_asked_after():
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


class Log:
    """One partition of a broker by Kafka's rules: the last five batches of each epoch are remembered."""

    def __init__(self):
        self.names, self.epoch, self.expected, self.window = [], -1, 0, []

    def produce(self, identity, sequence, count, name):
        if identity.epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.epoch == -1:  # it knows nothing of the producer, and takes any sequence
            self.epoch, self.expected = identity.epoch, sequence
        if identity.epoch > self.epoch:
            if sequence != 0:
                return OUT_OF_ORDER
            self.epoch, self.expected, self.window = identity.epoch, 0, []
        if (sequence, count) in self.window:
            return NONE
        if sequence != self.expected:
            return OUT_OF_ORDER
        self.expected += count
        self.window = [*self.window, (sequence, count)][-5:]
        self.names.append(name)
        return NONE


STEPS = st.lists(
    st.sampled_from(
        ["send", "send", "send", "arrive", "arrive", "arrive", "refuse", "cut", "cut late", "again", "expire"]
    ),
    max_size=60,
)


def play(steps):
    """One lane and one log, with a wire that may be cut before or after a request arrived. Returns what happened."""
    sequences, lane = producer(is_known=False)
    log, wire, dropped, acked, bytes_of, late = Log(), [], set(), set(), {}, []
    name = 0

    def leave(batch):
        seen = bytes_of.setdefault((batch.identity, batch.sequence), (batch.name, batch.count))
        assert seen == (batch.name, batch.count), "one number, two contents"
        batch.leave()
        wire.append((batch, batch.identity, batch.sequence))

    for step in steps:
        again = sequences.again(lane)
        if step == "send" and again is None and sequences.may_take_new(lane):
            name += 1
            batch = Sent(1 + name % 3, name)
            sequences.take(lane, batch)
            leave(batch)
        elif step == "again" and again is not None:
            leave(again)
        elif step in ("arrive", "refuse") and wire:
            batch, identity, sequence = wire.pop(0)
            if late:  # what an older connection still holds comes first
                log.produce(*late.pop(0))
            code = BUSY if step == "refuse" else log.produce(identity, sequence, batch.count, batch.name)
            assert code != ErrorCode.INVALID_PRODUCER_EPOCH
            if sequences.judge(lane, batch, code) is Verdict.WRITTEN:
                acked.add(batch.name)
            assert len([one for one in lane.window if one.on_the_way]) <= 5
        elif step.startswith("cut"):
            for position, (batch, identity, sequence) in enumerate(wire):
                if position == 0 and step == "cut":
                    log.produce(identity, sequence, batch.count, batch.name)
                if step == "cut late":
                    late.append((identity, sequence, batch.count, batch.name))
                batch.come_back(maybe_written=True)
            wire.clear()
        elif step == "expire" and lane.window and lane.window[0] not in [one for one, _, _ in wire]:
            if not lane.window[0].maybe_written:
                dropped.add(lane.window[0].name)
            else:
                dropped.add(-lane.window[0].name)
            sequences.dropped(lane, lane.window[0])
    return sequences, lane, log, wire, dropped, acked, leave


@given(STEPS)
@settings(max_examples=400)
def test_whatever_the_network_does_records_are_written_once_and_in_order(steps):
    sequences, lane, log, wire, dropped, acked, leave = play(steps)
    for _ in range(200):  # then everything goes well
        while wire:
            batch, identity, sequence = wire.pop(0)
            if (
                sequences.judge(lane, batch, log.produce(identity, sequence, batch.count, batch.name))
                is Verdict.WRITTEN
            ):
                acked.add(batch.name)
        again = sequences.again(lane)
        if again is None:
            break
        leave(again)
    assert not lane.window
    assert sequences.may_take_new(lane)
    assert len(log.names) == len(set(log.names)), "twice"
    assert [name for name in log.names if -name not in dropped] == sorted(n for n in log.names if -n not in dropped)
    assert acked <= set(log.names), "lost"
    assert not {name for name in dropped if name > 0} & set(log.names), "said not to be written, and was"


@given(STEPS)
@settings(max_examples=100)
def test_librdkafka_4736_no_number_ever_stands_for_two_contents(steps):
    play(steps)  # asserts it at every sending


def test_librdkafka_1_9_topic_vanished_and_back_the_sequence_goes_on():
    """librdkafka 1.9: metadata without the topic made it begin again at 0, which the broker took for duplicates."""
    sequences, lane = producer()
    send(sequences, lane, first := Sent(3))
    sequences.judge(lane, first, NONE)
    send(sequences, lane, second := Sent())
    assert sequences.judge(lane, second, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) is Verdict.AGAIN
    assert sequences.again(lane) is second
    assert second.sequence == 3
