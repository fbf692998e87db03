"""Batches in the making: what goes together, how much memory it holds, how it is split and given up."""

import pytest
from fencepost.client.errors import RecordTooLargeError
from fencepost.client.producer.batching import RECORD_OVERHEAD_BYTES, Accumulator, Topic, headers_bytes
from fencepost.protocol.batches import check_produced
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.producing import payload
from fencepost.protocol.records import records
from hypothesis import given
from hypothesis import strategies as st


class Making:
    """An accumulator with a clock that stands still until it is moved, and one topic."""

    def __init__(self, partitions=1, **more):
        self.now = 1_000
        limits = {"max_batch_bytes": 1_000, "max_record_bytes": 10_000, "memory_bytes": 100_000}
        self.accumulator = Accumulator(now_ms=lambda: self.now, delivery_timeout_ms=500, **{**limits, **more})
        self.topic = self.accumulator.topics["t"] = Topic("t", partitions, [], 0)

    def add(self, value=b"v", *, partition=None, key=None, headers=None, at=5):
        return self.accumulator.append(self.topic, partition, key, value, headers, at)

    def drain(self):
        """Take all batches, as the sender does, in the order in which partitions are served."""
        taken = []
        for partition in list(self.accumulator.active):
            while self.accumulator.ready_at(partition) is not None:
                taken.append(self.accumulator.take(partition))
        return taken


def contents(batch):
    return [(one.key, one.value, one.headers) for one in records(check_produced(memoryview(batch.frame(False))))]


@pytest.mark.requirement("S-10")
def test_records_of_a_partition_fill_one_batch_before_the_next_is_begun():
    making = Making(max_batch_bytes=3 * (RECORD_OVERHEAD_BYTES + 10))
    placed = [making.add(b"%010d" % n) for n in range(7)]
    assert [index for _, index in placed] == [0, 1, 2, 0, 1, 2, 0]
    batches = making.drain()
    assert [len(contents(batch)) for batch in batches] == [3, 3, 1]
    assert [value for batch in batches for _, value, _ in contents(batch)] == [b"%010d" % n for n in range(7)]
    assert making.accumulator.filled


def test_a_record_above_max_batch_size_gets_a_batch_of_its_own():
    making = Making()
    for size in (10, 5_000, 10):
        making.add(bytes(size))
    assert [[len(value) for _, value, _ in contents(batch)] for batch in making.drain()] == [[10], [5_000], [10]]


@pytest.mark.parametrize("more", [{"max_record_bytes": 200}, {"memory_bytes": 200}])
def test_a_record_of_exactly_the_maximum_size_or_the_whole_buffer_is_accepted(more):
    making = Making(**more)
    assert making.add(bytes(200 - RECORD_OVERHEAD_BYTES)) is not None


def test_headers_bytes_of_no_headers_is_0():
    assert headers_bytes([]) == 0


@pytest.mark.parametrize("more", [{"max_record_bytes": 100}, {"memory_bytes": 100}])
def test_a_record_above_the_maximum_size_raises_record_too_large_at_once(more):
    making = Making(**more)
    with pytest.raises(RecordTooLargeError, match="116 bytes is larger than the maximum of 100"):
        making.add(bytes(100))
    assert not making.accumulator.incomplete


def test_buffer_memory_is_freed_when_its_batch_is_acknowledged_not_when_sent():
    making = Making(memory_bytes=300)
    room = []
    making.accumulator.on_room = lambda: room.append(making.accumulator.free_bytes)
    assert making.add(bytes(200))
    assert making.add(bytes(200)) is None
    (batch,) = making.drain()  # as the sender does to send it
    assert making.add(bytes(200)) is None, "it is sent, and not yet acknowledged"
    making.accumulator.finish(batch)
    assert room == [300]
    assert making.add(bytes(200))
    making.accumulator.finish(batch)
    assert making.accumulator.free_bytes == 300 - 216, "done twice is counted once"


def test_cve_2026_35554_bytes_of_a_failed_batch_are_not_overwritten_by_the_next():
    """CVE-2026-35554: a buffer was used again while its first content was still being written."""
    making = Making()
    making.add(b"first")
    (first,) = making.drain()
    sent = first.frame(False)
    assert first.frame(False) is sent
    copy = bytes(sent)
    making.accumulator.finish(first, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    making.add(b"other")
    making.drain()[0].frame(False)
    assert sent == copy


def test_a_new_producer_epoch_and_sequence_change_only_a_batchs_header_bytes():
    making = Making()
    making.add(b"v")
    (batch,) = making.drain()
    batch.identity, batch.sequence = (7, 0), 3
    before = batch.frame(True)
    batch.identity, batch.sequence = (7, 1), 0
    after = check_produced(memoryview(batch.frame(True)))
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 1, 0)
    assert after.is_transactional
    assert before[61:] == batch.frame(True)[61:]


def test_records_without_a_key_stay_in_one_partition_until_its_batch_is_taken():
    making = Making(partitions=3, max_batch_bytes=2 * (RECORD_OVERHEAD_BYTES + 1))
    places = [making.add()[0].partition.index for _ in range(6)]
    assert places[0] == places[1] != places[2] == places[3] != places[4] == places[5]
    making.drain()
    assert making.add()[0].partition.index != places[5]


def test_the_key_decides_the_partition_unless_the_caller_names_one():
    making = Making(partitions=10)
    assert making.add(key=b"abc")[0].partition.index == 479470107 % 10  # the murmur2 hash of abc
    assert making.add(key=b"abc", partition=2)[0].partition.index == 2


def test_records_without_a_key_avoid_partitions_without_a_leader():
    making = Making(partitions=3, max_batch_bytes=1)
    making.topic.available = [2]
    making.add()
    assert {making.add()[0].partition.index for _ in range(5)} == {2}


def test_a_batch_is_ready_after_linger_or_if_full_flushed_or_its_memory_is_wanted():
    making = Making(linger_ms=20, max_batch_bytes=100)
    making.add(bytes(50))
    accumulator, partition = making.accumulator, making.topic.partitions[0]
    assert accumulator.ready_at(partition) == 1_020
    accumulator.hurried = 1
    assert accumulator.ready_at(partition) == 0, "a flush waits for it"
    accumulator.hurried = 0
    making.add(bytes(50))
    assert accumulator.ready_at(partition) == 0, "it is full, and another one was begun"
    accumulator.take(partition)
    assert accumulator.ready_at(partition) == 1_020
    accumulator.waiting = 1
    assert accumulator.ready_at(partition) == 0, "a call waits for its memory"


def test_a_batch_expires_delivery_timeout_ms_after_its_first_record():
    making = Making()
    old, _ = making.add()
    making.now += 499
    assert making.add()[0] is old
    assert making.accumulator.expired(making.now) == []
    making.now += 1
    assert making.accumulator.expired(making.now) == [old]
    assert making.accumulator.first_deadline_ms() == 1_500
    making.accumulator.withdraw(old)
    making.accumulator.finish(old, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert making.accumulator.first_deadline_ms() is None
    assert not making.accumulator.active


def test_a_partition_that_was_served_goes_to_the_end_of_the_sending_order():
    making = Making(partitions=3)
    for index in range(3):
        making.add(partition=index)
    accumulator, partitions = making.accumulator, making.topic.partitions
    assert list(accumulator.active) == partitions
    accumulator.served(partitions[0])
    assert list(accumulator.active) == [partitions[1], partitions[2], partitions[0]]


def test_each_half_of_a_split_batch_gives_its_records_their_offsets_or_error():
    """The first batch is done, and its memory free, when both halves are."""
    making = Making()
    for n in range(5):
        making.add(b"%d" % n, key=b"k", headers=(("h", b"%d" % n),), at=n, partition=0)
    (batch,) = making.drain()
    reported = []
    batch.on_done.append(lambda: reported.append("done"))
    free = making.accumulator.free_bytes
    first, second = making.accumulator.split(batch, False)
    assert [contents(half) for half in (first, second)] == [
        [(b"k", b"0", (("h", b"0"),)), (b"k", b"1", (("h", b"1"),)), (b"k", b"2", (("h", b"2"),))],
        [(b"k", b"3", (("h", b"3"),)), (b"k", b"4", (("h", b"4"),))],
    ]
    assert (first.size_bytes, first.size_bytes + second.size_bytes) == (batch.size_bytes * 3 // 5, batch.size_bytes)
    first.base_offset = 10
    making.accumulator.finish(first)
    assert not reported
    assert making.accumulator.free_bytes == free + first.size_bytes
    making.accumulator.finish(second, KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "no"))
    assert reported == ["done"]
    assert making.accumulator.free_bytes == free + batch.size_bytes == 100_000
    assert batch.metadata(2) == ("t", 0, 12, 2)
    with pytest.raises(KafkaError, match="no"):
        batch.metadata(3)


def test_buffered_batches_keep_their_partition_when_their_topic_gets_more_partitions():
    making = Making(partitions=2)
    making.add(partition=1)
    before = list(making.topic.partitions)
    making.topic.update(4, bytes(16), range(4), 0)
    assert making.topic.partitions[:2] == before
    assert len(making.topic.partitions) == making.topic.count == 4


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from([None, b"k", b"other"]), st.booleans()), max_size=60))
def test_buffered_records_are_drained_once_and_in_order_and_their_memory_is_released(rows):
    making = Making(partitions=2, max_batch_bytes=600)
    added = {}
    for number, (size, key, has_headers) in enumerate(rows):
        headers = (("n", b"%d" % number),) if has_headers else None
        value = b"%d " % number + bytes(size)
        batch, index = making.add(value, key=key, headers=headers)
        added.setdefault(batch, []).append((index, key, value, headers or ()))
    seen = []
    for batch in making.drain():
        assert batch.size_bytes <= 600 or len(added[batch]) == 1
        assert len(batch.frame(False)) <= batch.size_bytes + 61
        expected = [(key, value, headers) for _, key, value, headers in added[batch]]
        assert contents(batch) == expected
        assert [index for index, *_ in added[batch]] == list(range(len(expected)))
        seen += expected
        making.accumulator.finish(batch)
    assert len(seen) == len(rows)
    assert making.accumulator.free_bytes == 100_000
    assert not making.accumulator.active
    assert not making.accumulator.incomplete


def test_extend_with_many_values_makes_the_same_batches_as_adding_each():
    values = [bytes(size % 90) if size % 7 else None for size in range(500)]

    def taken(at_once):
        made = Making()
        at = 0
        while at < len(values):
            if at_once:
                at += made.accumulator.extend(made.topic, values, at, 5)[2]
            else:
                made.add(values[at])
                at += 1
        (partition,) = made.topic.partitions
        batches = [
            (one.values, one.keys, one.timestamps, one.size_bytes) for one in (*partition.sealed, partition.open)
        ]
        return batches, made.accumulator.free_bytes

    assert taken(True) == taken(False)


def test_send_many_accepts_as_many_values_as_fit_in_the_buffer():
    made = Making(max_batch_bytes=10_000, memory_bytes=1_000)
    values = [bytes(84)] * 50
    _, index, count = made.accumulator.extend(made.topic, values, 0, 5)
    assert (index, count, made.accumulator.free_bytes) == (0, 10, 0)
    assert made.accumulator.extend(made.topic, values, 10, 5) is None


@pytest.mark.parametrize(("base_offset", "offsets"), [(-1, [-1, -1]), (0, [0, 1]), (1, [1, 2])])
def test_a_records_offset_is_base_offset_plus_index_or_minus_1_if_unknown(base_offset, offsets):
    making = Making()
    for _ in range(2):
        making.add()
    (batch,) = making.drain()
    batch.base_offset = base_offset
    making.accumulator.finish(batch)
    assert [batch.metadata(index).offset for index in range(2)] == offsets


@pytest.mark.parametrize("size", [0, 1, 63, 64, 10_000])
@pytest.mark.parametrize("name", ["", "n", "é" * 100])
def test_headers_bytes_is_close_to_the_encoded_size_of_the_headers(name, size):
    """It is at most 4 bytes below that size, and at most six times the name's length and 16 bytes above."""
    headers = [(name, bytes(size)), (name, None)]
    taken = len(payload([None], [b"v"], [5], {0: headers})) - len(payload([None], [b"v"], [5], {}))
    assert taken - 4 <= headers_bytes(headers) <= taken + 6 * len(name) + 16  # 4: the record's own length grows


def test_batches_count_as_sent_only_while_on_their_way_for_the_first_time():
    making = Making()
    batch, _ = making.add()
    accumulator = making.accumulator
    assert making.drain() == [batch]
    found = [accumulator.are_all_sent()]
    for batch.attempts in (1, 2):
        batch.leave()
        found.append(accumulator.are_all_sent())
        batch.come_back(maybe_written=False)
        found.append(accumulator.are_all_sent())
    assert found == [False, True, False, False, False]
    accumulator.finish(batch)
    assert accumulator.are_all_sent()


def test_several_records_count_as_sent_once_their_topic_has_taken_as_large_a_batch():
    making = Making()

    def are_sent(*values):
        for value in values:
            making.add(value)
        (batch,) = making.drain()
        batch.leave()
        batch.attempts = 1
        found = making.accumulator.are_all_sent()
        making.accumulator.finish(batch)
        return found

    assert [are_sent(*each) for each in ([b"0"], [b"1"] * 2, [b"2"] * 2, [b"3"] * 9, [b"4"] * 9)] == [
        True, False, True, False, True,
    ]  # fmt: skip
    making.accumulator.topics["t"].largest_written = 0  # as after a split
    assert not are_sent(b"1", b"2")
