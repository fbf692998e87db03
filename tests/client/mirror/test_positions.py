"""Positions of a mirror as committed offsets."""

import pytest
from fencepost.client.errors import IllegalStateError
from fencepost.client.mirror.positions import BatchMark, Position, decode_position, encode_position, mark_of
from fencepost.client.values import OffsetAndMetadata
from fencepost.protocol.batches import Batch, read
from fencepost.protocol.raw_records import drop_records, rewrite
from fencepost.protocol.records import Marker, Record, build, control_marker, payload_of


def test_an_encoded_position_decodes_to_an_equal_position() -> None:
    position = Position(12, bytes(15) + b"\x09", BatchMark(8, 11, 77, True, 5, 0, 8), b"c" * 16, "it is gone")
    committed = encode_position(position)
    assert committed.offset == 12
    assert committed.leader_epoch == -1
    assert decode_position(committed) == position


def test_a_reason_is_cut_so_that_the_metadata_of_a_position_fits_into_kafkas_default() -> None:
    mark = BatchMark(2**63 - 1, 2**63 - 1, 2**32 - 1, True, 2**63 - 1, 32767, 2**31 - 1)
    committed = encode_position(Position(2**63 - 1, b"i" * 16, mark, b"c" * 16, 1000 * "\U0001f600"))
    assert len(committed.metadata.encode()) <= 4096
    assert decode_position(committed).stopped == 300 * "\U0001f600"


@pytest.mark.parametrize("metadata", ["", "{}", "null", '{"version":2}', '{"version":1,"topic_id":"x","mark":null}'])
def test_decoding_an_offset_that_no_mirror_committed_raises_illegal_state(metadata: str) -> None:
    with pytest.raises(IllegalStateError):
        decode_position(OffsetAndMetadata(3, metadata))


def batch(first: int, *values: bytes, producer_id: int = -1, sequence: int = -1) -> Batch:
    """Return a batch of records from this offset on, as a producer has written it."""
    made = [Record(first + each, 1000 + each, b"k", value) for each, value in enumerate(values)]
    more = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    return read(memoryview(build(made, base_offset=first, **more)))


def compacted(whole: Batch, *kept: int, horizon_ms: int | None = None) -> Batch:
    """Return what compaction leaves of a batch: the records at these places, or none."""
    if not kept:
        return read(memoryview(drop_records(whole)))
    stays = bytes(each in kept for each in range(whole.record_count))
    return read(memoryview(rewrite(whole, payload_of(whole, 1 << 20), stays, delete_horizon_ms=horizon_ms)))


def marker(offset: int) -> Batch:
    made = read(memoryview(control_marker(Marker.COMMIT, 7, 0, 0, 1000)))
    made.base_offset = offset
    return made


WHOLE = batch(4, b"a", b"b", b"c")
OF_PRODUCER = batch(4, b"a", b"b", b"c", producer_id=7, sequence=20)
LEFT = compacted(WHOLE, 0, 2)  # offset 5 is a gap
DATED = compacted(WHOLE, 0, 1, 2, horizon_ms=2000)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (WHOLE, WHOLE),
        (WHOLE, compacted(WHOLE, 0, 1)),
        (WHOLE, compacted(WHOLE, 1, 2)),
        (WHOLE, LEFT),
        (WHOLE, DATED),
        (WHOLE, compacted(WHOLE, 2, horizon_ms=2000)),
        (LEFT, LEFT),
        (LEFT, compacted(LEFT, 1)),
        (OF_PRODUCER, compacted(OF_PRODUCER)),
        (compacted(OF_PRODUCER, 1), compacted(OF_PRODUCER)),
        (compacted(OF_PRODUCER), compacted(OF_PRODUCER)),
        (LEFT, WHOLE),
        (DATED, WHOLE),
        (compacted(OF_PRODUCER), OF_PRODUCER),
        (marker(9), marker(9)),
        (marker(9), compacted(marker(9), 0, horizon_ms=2000)),
        (marker(9), compacted(marker(9))),
        (compacted(marker(9), 0, horizon_ms=2000), marker(9)),
    ],
    ids=[
        "unchanged", "without its last record", "without its first record", "with a gap", "with a delete horizon",
        "with a gap and a delete horizon", "with the same gap", "with a larger gap", "without records",
        "with a gap, then without records", "without records before", "with records where a gap was",
        "without the delete horizon it had", "with the records it had lost", "a marker",
        "a marker with a delete horizon", "a marker without its record", "a marker without the delete horizon it had",
    ],
)  # fmt: skip
def test_a_batch_mark_recognizes_its_batch_before_and_after_compaction(before: Batch, now: Batch) -> None:
    """The mark may also be of the compacted batch, and the batch not be compacted: as on a broker that crashed, or on
    another replica.
    """
    assert mark_of(before).is_in(now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (WHOLE, batch(4, b"a", b"b", b"x")),
        (WHOLE, batch(3, b"a", b"b", b"c")),
        (WHOLE, batch(4, b"a", b"b")),
        (WHOLE, batch(4, b"a", b"b", b"c", b"d")),
        (WHOLE, batch(6, b"c")),
        (WHOLE, batch(5, b"b", b"c")),
        (WHOLE, compacted(batch(3, b"z", b"a", b"b", b"c"), 3)),
        (LEFT, batch(3, b"z", b"a", b"b", b"c")),
        (LEFT, batch(6, b"c")),
        (OF_PRODUCER, compacted(batch(4, b"a", b"b", b"c", producer_id=8, sequence=20))),
        (OF_PRODUCER, compacted(batch(4, b"a", b"b", b"c", producer_id=7, sequence=23))),
        (OF_PRODUCER, marker(6)),
    ],
    ids=[
        "another value", "one offset lower", "a record fewer", "a record more", "its last record alone",
        "its last two records", "compacted, with an earlier beginning", "with a gap, an earlier beginning",
        "with a gap, its last record alone", "of another producer", "with another sequence", "a marker",
    ],
)  # fmt: skip
def test_a_batch_mark_does_not_recognize_other_records_at_its_offsets(before: Batch, now: Batch) -> None:
    assert not mark_of(before).is_in(now)
