"""What a consumer gives out: a partition's error is raised by the next poll at the latest, whoever has records."""

import pytest
from fencepost.client.consumer.reading import Reading
from fencepost.client.errors import CorruptRecordError, OffsetOutOfRangeError
from fencepost.client.group.subscription import Need, Subscription
from fencepost.client.records.fetched import Fetched
from fencepost.client.settings import consumer_settings
from fencepost.client.values import TopicPartition
from fencepost.protocol.records import Record, build

PARTITIONS = [TopicPartition("t", index) for index in range(4)]


def reading(policy="earliest"):
    subscription = Subscription()
    subscription.assign(PARTITIONS)
    for state in subscription.assigned.values():
        state.move(0)
    return Reading(consumer_settings("127.0.0.1:9092", auto_offset_reset=policy), subscription), subscription.assigned


def bring(states, tp, *, damaged=False):
    """Let a batch of three more records of this partition arrive; damaged: its checksum is wrong."""
    first = states[tp].position
    data = bytearray(build([Record(first + n, 5, None, b"%d" % n) for n in range(3)], base_offset=first))
    if damaged:
        data[-1] ^= 1
    fetched = Fetched(tp, first, -1, [bytes(data)], ())
    states[tp].fetched.append(fetched)
    states[tp].fetched_bytes += fetched.size


def refuse(states, tp):
    states[tp].refused = OffsetOutOfRangeError(f"{tp} was made again")


def polled_by_getmany(reading):
    return reading.take(500, (), None)


def polled_by_getone(reading):
    reading.settle()
    return reading.begin_run(1, (), None)


@pytest.mark.parametrize("bad", PARTITIONS)
@pytest.mark.parametrize("poll", [polled_by_getmany, polled_by_getone])
def test_a_truncated_log_is_reported_before_other_partitions_return_anything(bad, poll):
    read, states = reading()
    for _ in range(2):
        for tp in PARTITIONS:
            if tp != bad:
                bring(states, tp)
        refuse(states, bad)
        with pytest.raises(OffsetOutOfRangeError, match="made again"):
            poll(read)
        assert states[bad].need is Need.OFFSET
        states[bad].move(0)
        assert poll(read)


@pytest.mark.parametrize("bad", PARTITIONS)
def test_a_truncated_log_is_reported_after_the_records_already_fetched_from_it(bad):
    read, states = reading()
    bring(states, bad)
    refuse(states, bad)
    assert polled_by_getmany(read)
    for tp in PARTITIONS:
        if tp != bad:
            bring(states, tp)
    with pytest.raises(OffsetOutOfRangeError, match="made again"):
        polled_by_getmany(read)


@pytest.mark.parametrize("bad", PARTITIONS)
@pytest.mark.parametrize("most", [1, 3, 500])
def test_a_damaged_batch_is_raised_although_other_partitions_always_have_records(bad, most):
    read, states = reading()
    bring(states, bad, damaged=True)
    for _ in range(2 if most == 500 else len(PARTITIONS)):  # a poll of 500 records reads all partitions
        for tp in PARTITIONS:
            if tp != bad and not states[tp].fetched:
                bring(states, tp)
        try:
            given = read.take(most, (), None)
        except CorruptRecordError:
            break
        assert states[bad] not in given
    else:
        pytest.fail("no poll has raised the error")
