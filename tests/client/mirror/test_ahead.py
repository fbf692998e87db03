"""What is read ahead of a partition: where chunks end, and what shows that the source has another log."""

import pytest
from fencepost.client.mirror.ahead import Ahead, Chunk
from fencepost.client.mirror.cut import MAX_MS
from fencepost.client.mirror.findings import StoppedError
from fencepost.client.mirror.positions import Position, decode_position, encode_position
from fencepost.client.values import TopicPartition
from fencepost.protocol.batches import Batch, read
from fencepost.protocol.records import Marker, Record, build, control_marker

TP = TopicPartition("t", 0)


def records(offset: int, *values: bytes, producer_id: int = -1) -> Batch:
    """Return a batch of records from this offset on. It is of a transaction if a producer is named."""
    made = [Record(offset + each, 1000 + each, None, value) for each, value in enumerate(values)]
    more = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": offset}
    return read(memoryview(build(made, base_offset=offset, transactional=producer_id >= 0, **more)))


def marker(offset: int, producer_id: int, kind: Marker = Marker.COMMIT) -> Batch:
    batch = read(memoryview(control_marker(kind, producer_id, 0, 0, 1000)))
    batch.base_offset = offset
    return batch


def fed(*log: Batch, position: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> Ahead:
    """Return an Ahead at this position that was fed these batches. aborted: (producer id, first offset) of each
    aborted transaction. Its take(now_ms, most_bytes) returns the next chunk to copy.
    """
    ahead = Ahead(TP, Position(position, b""))
    ahead.feed(log, aborted, 0)
    return ahead


def values(chunk: Chunk | None) -> list[bytes | None]:
    return [] if chunk is None else [each.value for each in chunk.records]


def test_of_a_batch_that_begins_below_its_position_the_mirror_copies_only_the_rest() -> None:
    chunk = fed(records(0, b"a", b"b", b"c"), position=2).take(0, 1 << 20)
    assert values(chunk) == [b"c"]
    assert chunk is not None
    assert (chunk.first, chunk.following.offset) == (2, 3)


def test_markers_and_aborted_records_move_the_mirrors_position_and_are_not_copied() -> None:
    log = (records(0, b"a", producer_id=1), records(1, b"b", producer_id=2), marker(2, 1, Marker.ABORT), marker(3, 2))
    chunk = fed(*log, aborted=((1, 0),)).take(0, 1 << 20)
    assert values(chunk) == [b"b"]
    assert chunk is not None
    assert chunk.following.offset == 4


def test_what_a_mirror_copies_at_once_ends_before_a_transaction_not_read_to_its_end() -> None:
    ahead = fed(records(0, b"a"), records(1, b"b", producer_id=1), records(2, b"c"))
    assert values(ahead.take(0, 1 << 20)) == [b"a"]
    assert ahead.take(1, 1 << 20) is None
    ahead.feed([records(2, b"c"), marker(3, 1)], (), 2)
    assert values(ahead.take(3, 1 << 20)) == [b"b", b"c"]


def test_after_a_time_the_mirror_divides_source_transactions_that_overlap_endlessly() -> None:
    """It then copies the records of a source transaction in more than one transaction of the target, and says so in
    `divides`.
    """
    ahead = fed(records(0, b"a", producer_id=1), records(1, b"b", producer_id=2), marker(2, 1))
    ahead.feed([marker(2, 1), records(3, b"c", producer_id=1)], (), 10)
    assert ahead.take(MAX_MS - 1, 1 << 20) is None
    chunk = ahead.take(MAX_MS, 1 << 20)
    assert values(chunk) == [b"a", b"b", b"c"]
    assert chunk is not None
    assert chunk.divides
    ahead.feed([records(3, b"c", producer_id=1), marker(4, 2), records(5, b"d"), marker(6, 1)], (), MAX_MS + 1)
    rest = ahead.take(MAX_MS + 2, 1 << 20)
    assert values(rest) == [b"d"]
    assert rest is not None
    assert not rest.divides


def test_above_many_bytes_the_mirror_divides_transactions_that_overlap_endlessly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencepost.client.mirror.ahead.MAX_BYTES", 100)
    ahead = fed(records(0, bytes(200), producer_id=1))
    assert not ahead.has_room(50)
    chunk = ahead.take(0, 1 << 20)
    assert chunk is not None
    assert chunk.divides


def test_the_mirror_copies_as_many_records_at_once_as_fit_into_its_byte_limit() -> None:
    ahead = fed(*(records(each, bytes(1000)) for each in range(10)))
    taken = [len(values(ahead.take(0, 3000))) for _ in range(4)]
    assert taken == [3, 3, 3, 1]


def test_a_mirror_reads_its_last_copied_batch_again_to_compare_it_and_copies_it_once() -> None:
    ahead = fed(records(0, b"a", b"b"))
    assert (ahead.read_from, ahead.read_to) == (1, 2)
    again = Ahead(TP, decode_position(encode_position(ahead.take(0, 1).following)))  # type: ignore[union-attr]
    assert (again.read_from, again.read_to) == (1, 2)
    again.feed([records(0, b"a", b"b"), records(2, b"c")], (), 0)
    assert values(again.take(0, 1)) == [b"c"]


@pytest.mark.parametrize(
    "instead",
    [
        records(0, b"a", b"x"),
        records(0, b"a", b"b", b"c"),
        records(1, b"b", b"c"),
        records(0, b"a", b"b", producer_id=3),
        records(1, b"b"),
    ],
    ids=["other values", "more records", "other offsets", "another producer", "fewer records"],
)
def test_the_mirror_of_a_topic_stops_if_its_last_copied_batch_differs_at_the_source(instead: Batch) -> None:
    ahead = fed(records(0, b"a", b"b"))
    ahead.take(0, 1)
    with pytest.raises(StoppedError, match="other records at offset 0"):
        ahead.feed([instead, records(3, b"d")], (), 0)


def test_the_mirror_continues_if_its_last_copied_batch_was_compacted_at_the_source() -> None:
    ahead = fed(records(0, b"a", b"b", producer_id=1), marker(2, 1), records(3, b"c", b"d"))
    ahead.take(0, 1 << 20)
    left = read(memoryview(build([Record(4, 1001, None, b"d")], base_offset=3)))
    ahead.feed([left, records(5, b"e")], (), 0)
    assert values(ahead.take(0, 1)) == [b"e"]
    ahead.feed([records(9, b"f")], (), 0)  # the batch before it is gone
    assert values(ahead.take(0, 1)) == [b"f"]


def test_the_mirror_continues_if_the_source_has_its_last_batch_as_before_compaction() -> None:
    """A broker that crashed soon after, or another replica that became the leader, has not compacted it yet."""
    left = read(memoryview(build([Record(4, 1001, None, b"d")], base_offset=3)))
    ahead = fed(records(0, b"a"), left)
    ahead.take(0, 1 << 20)
    ahead.feed([records(3, b"c", b"d"), records(5, b"e")], (), 0)
    assert values(ahead.take(0, 1)) == [b"e"]
