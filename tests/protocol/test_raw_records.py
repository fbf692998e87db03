"""Records that are moved or looked for by time are what `records` would read, and cost the same whatever they hold."""

import many_headers
import pytest
from fencepost.protocol.batches import read, verify, with_log_append_time
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.raw_records import drop_records, raw_records, rewrite, times
from fencepost.protocol.records import Record, build, payload_of, records
from hypothesis import given
from hypothesis import strategies as st
from lines_run import lines_run
from peak_memory import peak_bytes
from raw_batches import NOW_MS, batch, record, varint

MANY = 500_000
FARTHEST = 2**63 - 1


def opened(sent: bytes):
    found = read(memoryview(sent))
    verify(found)
    return found


def payload(found) -> bytes:
    return payload_of(found, 1 << 24)


def raw(found):
    return list(raw_records(found, payload(found)))


bytes_of = st.none() | st.binary(max_size=5) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 200])
stamps = st.integers(0, 200) | st.integers(0, 2**62) | st.just(-1)
headers = st.lists(st.tuples(st.text(max_size=3), bytes_of), max_size=3).map(tuple)
some = st.lists(st.tuples(stamps, bytes_of, bytes_of, headers), min_size=1, max_size=8)


def contents(shapes, times_over=1) -> list[Record]:
    return [Record(offset, *shape) for offset, shape in enumerate(shapes * times_over)]


@pytest.mark.slow
@given(some, st.sampled_from([1, 1, 100]), st.sampled_from(Codec))
def test_raw_and_times_yield_offset_timestamp_key_and_tombstone_of_each_record(shapes, times_over, codec):
    sent = contents(shapes, times_over)
    found = opened(build(sent, codec=codec))
    assert list(times(found, payload(found))) == [(each.offset, each.timestamp) for each in sent]
    assert [(each.offset, each.timestamp, each.key, each.is_tombstone) for each in raw(found)] == [
        (each.offset, each.timestamp, each.key, each.value is None) for each in sent
    ]


def test_under_log_append_time_all_records_have_the_time_of_the_batch():
    found = with_log_append_time(opened(build([Record(0, 5, None, b""), Record(1, 3, None, b"")])), 99)
    assert list(times(found, payload(found))) == [(0, 99), (1, 99)]


@pytest.mark.slow
@given(some, st.sampled_from(Codec), st.booleans(), st.data())
def test_rewrite_keeps_the_chosen_records_and_the_batchs_offsets_producer_and_codec(shapes, codec, appended, data):
    sent = contents(shapes)
    keep = data.draw(st.lists(st.booleans(), min_size=len(sent), max_size=len(sent)).filter(any))
    before = opened(build(sent, codec=codec, producer_id=9, producer_epoch=1, base_sequence=2**31 - 2, leader_epoch=0))
    before = with_log_append_time(before, NOW_MS) if appended else before
    kept = [each for each, chosen in zip(records(before), keep, strict=True) if chosen]
    after = opened(rewrite(before, payload(before), keep))
    dated = opened(rewrite(before, payload(before), keep, delete_horizon_ms=5_000))
    again = opened(rewrite(dated, payload(dated), [1] * len(kept), delete_horizon_ms=dated.delete_horizon_ms))
    assert (after.delete_horizon_ms, dated.delete_horizon_ms, again.delete_horizon_ms) == (None, 5_000, 5_000)
    for found in (after, dated, again):
        assert list(records(found)) == kept
        assert (found.base_offset, found.last_offset, found.leader_epoch) == (0, before.last_offset, 0)
        assert (found.producer_id, found.producer_epoch, found.last_sequence) == (9, 1, before.last_sequence)
        assert (found.codec, found.record_count, found.is_log_append_time) == (codec, len(kept), appended)
        assert found.max_timestamp == max(each.timestamp for each in kept)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_emptied_by_cleaning_keeps_offsets_sequences_and_timestamp(codec):
    sent = [Record(n, NOW_MS + n, b"k", b"v") for n in range(5)]
    before = opened(build(sent, codec=codec, producer_id=9, producer_epoch=1, base_sequence=4, transactional=True))
    after = opened(drop_records(before))
    assert list(records(after)) == raw(after) == []
    assert (after.last_offset, after.last_sequence, after.max_timestamp) == (4, 8, NOW_MS + 4)
    assert (after.is_transactional, after.codec, after.size) == (True, 0, 61)


# ---- bytes that lie -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(some, st.data())
def test_on_damaged_records_raw_refuses_or_gives_what_the_full_decoder_gives(shapes, data):
    """raw() does not read values and headers: where the damage is only in them, the full decoder may refuse what raw()
    accepts.
    """
    built = bytearray(build(contents(shapes)))
    for _ in range(data.draw(st.integers(1, 3))):
        built[data.draw(st.integers(61, len(built) - 1))] = data.draw(st.integers(0, 255))
    found = read(memoryview(bytes(built)))
    thorough = unless_refused(lambda: [(r.offset, r.timestamp, r.key, r.value is None) for r in records(found)])
    quick = unless_refused(lambda: [(r.offset, r.timestamp, r.key, r.is_tombstone) for r in raw(found)])
    if quick is None:
        assert thorough is None
        return
    assert thorough in (None, quick), "only the bytes of values and headers may lie unseen"
    assert list(times(found, payload(found))) == [each[:2] for each in quick]


def unless_refused(read_all):
    try:
        return read_all()
    except KafkaError:
        return None


LIES = {
    "a length below zero": record(length=-3),
    "a length of nothing": b"\0" + record()[1:],
    "a length beyond the end": record(lies_by=1),
    "a length that is short of it": record(lies_by=-1),
    "a key below nothing": varint(6) + b"\0\0\0" + varint(-2) + b"\0\0",
    "a key beyond its record": varint(6) + b"\0\0\0" + varint(40) + b"\0\0" + bytes(50),
    "a value below nothing": varint(6) + b"\0\0\0\0" + varint(-2) + b"\0",
    "a value up to the end, where headers are counted": varint(6) + b"\0\0\0\0" + varint(1) + b"v",
    "an offset delta of another place": record(1),
    "an offset delta below zero": record(-1),
    "a timestamp delta without an end": varint(50) + b"\0" + b"\xff" * 49,
    "deltas beyond the record": varint(1) + b"\0" + record(),
    "something after the last record": record() + b"\0",
    "nothing": bytes(6) + b"\x80",
}


@pytest.mark.parametrize("name", LIES)
def test_raw_raises_invalid_record_if_a_records_length_contradicts_its_fields(name):
    with pytest.raises(KafkaError) as caught:
        raw(opened(batch(LIES[name], records=1)))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("base", "delta"), [(FARTHEST, 1), (-(2**63), -1), (FARTHEST, 2**62)], ids=str)
def test_raw_refuses_a_record_whose_timestamp_is_beyond_64_bits(base, delta):
    with pytest.raises(KafkaError) as refused:
        raw(opened(batch(record(0, delta), base_timestamp=base, max_timestamp=NOW_MS)))
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_rewrite_refuses_a_timestamp_further_than_64_bits_from_the_delete_horizon():
    found = opened(batch(record(0, -(2**63)) + record(1, FARTHEST), records=2, base_timestamp=0, max_timestamp=0))
    with pytest.raises(KafkaError) as caught:
        rewrite(found, payload(found), [1, 1], delete_horizon_ms=5_000)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert list(records(opened(rewrite(found, payload(found), [0, 1])))) == list(records(found))[1:]


# ---- what it costs ------------------------------------------------------------------------------------------------


def test_scanning_a_record_with_500000_headers_takes_the_steps_of_one_without_any():
    few, many = opened(many_headers.batch(0)), opened(many_headers.batch(MANY))
    assert len(many.buffer) < 1_000
    for look in (
        lambda found: list(times(found, payload(found))),
        raw,
        lambda found: rewrite(found, payload(found), [1, 0]),
        lambda found: rewrite(found, payload(found), [1, 1], delete_horizon_ms=7),
    ):
        assert lines_run(lambda look=look: look(many)) < lines_run(lambda look=look: look(few)) + 100


def test_scanning_many_record_headers_takes_less_than_5_times_their_bytes_of_memory():
    found = opened(many_headers.batch(MANY))
    size = len(payload(found))
    assert size > 2 * MANY
    assert peak_bytes(lambda: list(times(found, payload(found)))) < 3 * size
    assert peak_bytes(lambda: raw(found)) < 3 * size
    assert peak_bytes(lambda: rewrite(found, payload(found), [1, 0], delete_horizon_ms=7)) < 5 * size
