"""Sequences against a log that keeps Kafka's rules: nothing twice or out of order, whatever is lost on the way."""

import pytest
from fencepost.client.producer.sequences import Verdict
from fencepost.protocol.errors import ErrorCode
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of
from numbered_batches import Sent, producer, send

NONE = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
BUSY = ErrorCode.NOT_ENOUGH_REPLICAS


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
    """Take these steps with one partition's entry, the broker's log, and a wire between them.

    send: a new batch leaves; again: one is sent again. arrive, refuse: the broker answers the oldest batch on the wire,
    as the log does or with a retriable error. The connection is cut after the oldest batch has arrived (cut), before
    any has (cut before), or so that all arrive later (cut late). expire: the oldest batch is given up; in `dropped`,
    its name is negative if it may be written. Returns everything that the tests look at.
    """
    sequences, entry = producer(is_known=False)
    log, wire, dropped, acked, bytes_of, late = Log(), [], set(), set(), {}, []
    name = 0

    def leave(batch):
        seen = bytes_of.setdefault((batch.identity, batch.sequence), (batch.name, batch.count))
        assert seen == (batch.name, batch.count), "one number, two contents"
        batch.leave()
        wire.append((batch, batch.identity, batch.sequence))

    for step in steps:
        again = sequences.again(entry)
        if step == "send" and again is None and sequences.may_take_new(entry):
            name += 1
            batch = Sent(1 + name % 3, name)
            sequences.take(entry, batch)
            leave(batch)
        elif step == "again" and again is not None:
            leave(again)
        elif step in ("arrive", "refuse") and wire:
            batch, identity, sequence = wire.pop(0)
            if late:  # what an older connection still holds comes first
                log.produce(*late.pop(0))
            code = BUSY if step == "refuse" else log.produce(identity, sequence, batch.count, batch.name)
            assert code != ErrorCode.INVALID_PRODUCER_EPOCH
            if sequences.judge(entry, batch, code) is Verdict.WRITTEN:
                acked.add(batch.name)
            assert len([one for one in entry.window if one.on_the_way]) <= 5
        elif step.startswith("cut"):
            for position, (batch, identity, sequence) in enumerate(wire):
                if position == 0 and step == "cut":
                    log.produce(identity, sequence, batch.count, batch.name)
                if step == "cut late":
                    late.append((identity, sequence, batch.count, batch.name))
                batch.come_back(maybe_written=True)
            wire.clear()
        elif step == "expire" and entry.window and entry.window[0] not in [one for one, _, _ in wire]:
            if not entry.window[0].maybe_written:
                dropped.add(entry.window[0].name)
            else:
                dropped.add(-entry.window[0].name)
            sequences.dropped(entry, entry.window[0])
    return sequences, entry, log, wire, dropped, acked, leave


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=share_of(400))
def test_after_any_losses_and_repeats_records_are_written_once_and_in_order(steps):
    sequences, entry, log, wire, dropped, acked, leave = play(steps)
    for _ in range(200):  # then everything goes well
        while wire:
            batch, identity, sequence = wire.pop(0)
            if (
                sequences.judge(entry, batch, log.produce(identity, sequence, batch.count, batch.name))
                is Verdict.WRITTEN
            ):
                acked.add(batch.name)
        again = sequences.again(entry)
        if again is None:
            break
        leave(again)
    assert not entry.window
    assert sequences.may_take_new(entry)
    assert len(log.names) == len(set(log.names)), "twice"
    # A batch that was given up, but may be written, may arrive after later ones.
    assert [name for name in log.names if -name not in dropped] == sorted(n for n in log.names if -n not in dropped)
    assert acked <= set(log.names), "lost"
    assert not {name for name in dropped if name > 0} & set(log.names), "said not to be written, and was"


@given(STEPS)
@settings(max_examples=share_of(100))
def test_librdkafka_4736_a_sequence_number_is_never_sent_with_other_records(steps):
    """librdkafka 2.2 to 2.4 did not always rebuild a batch identically for its retry."""
    play(steps)  # asserts it at every sending


def test_librdkafka_1_9_sequences_continue_after_a_topic_was_missing_for_a_while():
    """Before librdkafka 1.9, metadata without the topic restarted sequences at 0, and the broker took new batches for
    duplicates.
    """
    sequences, entry = producer()
    send(sequences, entry, first := Sent(3))
    sequences.judge(entry, first, NONE)
    send(sequences, entry, second := Sent())
    assert sequences.judge(entry, second, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) is Verdict.AGAIN
    assert sequences.again(entry) is second
    assert second.sequence == 3
