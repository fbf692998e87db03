"""Records: read and written as two other implementations do, and nothing but a KafkaError for bytes that lie."""

import warnings
from typing import NamedTuple

import pytest
from bad_batches import CASES
from fencepost.protocol.batches import check_produced, read, verify, with_log_append_time
from fencepost.protocol.compression import Codec, decompress
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.raw_records import drop_records
from fencepost.protocol.records import (
    DECOMPRESSED_LIMIT_BYTES,
    Marker,
    Record,
    _read_any_marker,
    build,
    control_marker,
    keyed_batch,
    payload_of,
    read_marker,
    recompress,
    records,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of
from raw_batches import NOW_MS, batch, record

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka.record.default_records as kafka_python
    from aiokafka.record._crecords import default_records as aiokafka
    from aiokafka.record.control_record import ControlRecord


def opened(*parts: bytes):
    found = read(memoryview(b"".join(parts)))
    verify(found)
    return found


def refused(sent: bytes, **limit) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        list(records(opened(sent), **limit))
    return caught.value.code


class Shape(NamedTuple):
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]]]

    def as_records(self) -> list[Record]:
        rows = zip(self.timestamps, self.keys, self.values, self.headers, strict=True)
        return [Record(n, t, k, v, tuple(h)) for n, (t, k, v, h) in enumerate(rows)]


optional_bytes = st.none() | st.binary(max_size=200)
header = st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), optional_bytes)


@st.composite
def shapes(draw, max_size=12):
    def some(each):
        return draw(st.lists(each, min_size=size, max_size=size))

    size = draw(st.integers(1, max_size))
    edge = st.integers(0, 2**40) | st.just(2**62)  # aiokafka takes -1 for none
    return Shape(
        some(edge), some(optional_bytes), some(optional_bytes), some(st.lists(header, max_size=3))
    ).as_records()


def as_seen_by(other) -> list[Record]:
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in other]


@pytest.mark.slow
@given(shapes(), st.sampled_from(Codec))
def test_a_built_batch_passes_the_brokers_check_and_decodes_to_its_records(contents, codec):
    found = check_produced(memoryview(build(contents, codec=codec)))
    assert list(records(found)) == contents
    assert found.codec == codec
    assert (found.base_timestamp, found.max_timestamp) == (contents[0].timestamp, max(r.timestamp for r in contents))


@pytest.mark.slow
@given(shapes(), st.sampled_from(Codec), st.integers(0, 2**31 - 1))
def test_aiokafka_reads_batches_that_we_build(contents, codec, sequence):
    sent = build(contents, codec=codec, producer_id=7, producer_epoch=3, base_sequence=sequence, transactional=True)
    theirs = aiokafka.DefaultRecordBatch(sent)
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 3, sequence)
    assert (theirs.is_transactional, theirs.is_control_batch) == (True, False)
    assert theirs.max_timestamp == max(r.timestamp for r in contents)
    assert as_seen_by(theirs) == contents


@pytest.mark.slow
@given(shapes(), st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_kafka_python_reads_batches_that_we_build(contents, codec):
    theirs = kafka_python.DefaultRecordBatch(build(contents, codec=codec))
    assert theirs.validate_crc()
    assert as_seen_by(theirs) == contents


@pytest.mark.slow
@given(shapes(), st.sampled_from(Codec))
def test_we_read_batches_that_aiokafka_builds(contents, codec):
    builder = aiokafka.DefaultRecordBatchBuilder(2, codec, 1, 7, 3, 5, 1 << 20)
    for each in contents:
        builder.append(each.offset, each.timestamp, each.key, each.value, list(each.headers))
    found = check_produced(memoryview(bytes(builder.build())))
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.is_transactional) == (7, 3, 5, True)
    assert list(records(found)) == contents


@pytest.mark.slow
@given(shapes(), st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_we_read_batches_that_kafka_python_builds(contents, codec):
    builder = kafka_python.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for each in contents:
        builder.append(each.offset, each.timestamp, each.key, each.value, list(each.headers))
    found = check_produced(memoryview(bytes(builder.build())))
    assert list(records(found)) == contents


@pytest.mark.slow
@given(shapes())
def test_uncompressed_batches_equal_those_of_aiokafka_byte_for_byte(contents):
    builder = aiokafka.DefaultRecordBatchBuilder(2, 0, 0, 7, 3, 5, 1 << 20)
    for each in contents:
        builder.append(each.offset, each.timestamp, each.key, each.value, list(each.headers))
    ours = build(contents, producer_id=7, producer_epoch=3, base_sequence=5, leader_epoch=0)
    theirs = bytearray(builder.build())
    theirs[12:16] = ours[12:16]  # the leader epoch: the broker's to set, and outside the CRC
    assert ours == theirs


def test_a_header_key_that_is_not_utf8_survives_a_round_trip():
    sent = batch(record(headers=[(b"\xff\xfe", b"x")]))
    (found,) = records(opened(sent))
    assert build([found], leader_epoch=-1)[61:] == sent[61:]


def test_timestamps_before_1970_and_far_apart_survive_a_round_trip():
    contents = [Record(n, t, None, None) for n, t in enumerate([-1, 2**62, -(2**61), 0])]
    assert list(records(opened(build(contents)))) == contents


# Bytes that lie

INSIDE = [name for name, case in CASES.items() if case.ours == ErrorCode.NONE]


@pytest.mark.parametrize("name", INSIDE)
def test_all_records_that_kafka_refuses_are_refused_but_dependent_lz4_blocks(name):
    found = check_produced(memoryview(CASES[name].sent))
    if "dependent" in name:
        assert list(records(found))
        return
    with pytest.raises(KafkaError) as caught:
        list(records(found))
    expected = ErrorCode.CORRUPT_MESSAGE if CASES[name].kafka == -1 and found.codec else ErrorCode.INVALID_RECORD
    assert caught.value.code == (ErrorCode.INVALID_RECORD if "deltas" in name else expected)


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 5), (-1, 0), (0, 2)])
def test_records_with_offset_deltas_not_growing_or_outside_the_batch_are_refused(deltas):
    content = b"".join(map(record, deltas))
    assert refused(batch(content, count=2, last_offset_delta=1)) is ErrorCode.INVALID_RECORD


def test_offset_deltas_with_gaps_left_by_compaction_are_accepted():
    found = opened(batch(record(1) + record(5), count=2, last_offset_delta=9, base_offset=100))
    assert [each.offset for each in records(found)] == [101, 105]


def test_a_record_count_too_large_for_the_batchs_bytes_is_refused_before_decoding():
    lying = opened(batch(record(), count=2**31 - 1, last_offset_delta=2**31 - 2))
    with pytest.raises(KafkaError, match="cannot fit"):
        next(records(lying))


def test_an_uncompressed_batch_is_read_beyond_the_decompression_limit():
    """Its bytes are in memory already, and a log must stay readable whatever limit is set later."""
    large = bytes(DECOMPRESSED_LIMIT_BYTES)
    (record,) = records(opened(build([Record(0, 0, b"k", large)])), limit=100)
    assert record.value == large


def test_records_that_decompress_beyond_the_limit_raise_message_too_large():
    sent = build([Record(0, NOW_MS, None, bytes(100_000))], codec=Codec.ZSTD)
    assert len(list(records(opened(sent), limit=100_100))) == 1
    assert refused(sent, limit=100_000) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.slow
@settings(max_examples=share_of(200))
@given(st.binary(max_size=60), st.integers(0, 5), st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
def test_any_bytes_decode_as_records_or_raise_an_error_code(content, count, codec):
    found = opened(batch(content, count=count, last_offset_delta=count, attributes=codec))
    try:
        assert len(list(records(found))) == count
    except KafkaError as error:
        code = error.code
    else:
        return
    # Which one depends on the bytes: they do not decompress, are no records, or decompress to too many bytes.
    assert code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.slow
@settings(max_examples=share_of(200))
@given(shapes(max_size=4), st.data())
def test_records_with_any_changed_byte_decode_or_raise_an_error_code(contents, data):
    payload = bytearray(build(contents)[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    found = opened(batch(bytes(payload), records=len(contents)))
    try:
        offsets = [each.offset for each in records(found)]
    except KafkaError as error:
        code = error.code
    else:
        assert offsets == list(range(len(contents)))
        return
    assert code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", range(1, 28))
def test_records_truncated_at_any_byte_raise_invalid_record(length):
    payload = record(headers=[(b"h", b"x")]) + record(1, key=None, value=b"long" * 2)
    assert refused(batch(payload[:length], records=2)) is ErrorCode.INVALID_RECORD


# What the broker asks of records


def times(*timestamps: int, **settings) -> bytes:
    return build([Record(n, t, None, b"") for n, t in enumerate(timestamps)], **settings)


def test_under_log_append_time_every_record_has_the_brokers_time():
    found = with_log_append_time(opened(times(10, 30, 20)), 99)
    assert [each.timestamp for each in records(found)] == [99, 99, 99]


@pytest.mark.parametrize("before", Codec)
@pytest.mark.parametrize("after", Codec)
def test_recompressing_a_batch_changes_only_its_codec(before, after):
    contents = [Record(n, NOW_MS + n, b"k", b"v" * 50) for n in range(20)]
    found = opened(build(contents, codec=before, producer_id=1, producer_epoch=2, base_sequence=3, transactional=True))
    changed = opened(recompress(found, payload_of(found, 1 << 20), after))
    assert changed.codec == after
    assert list(records(changed)) == contents
    assert (changed.producer_id, changed.producer_epoch, changed.base_sequence) == (1, 2, 3)
    assert changed.is_transactional
    assert decompress(after, changed.buffer[61:], limit=1 << 20) == decompress(before, found.buffer[61:], limit=1 << 20)


# Markers


@pytest.mark.requirement("S-94", "S-95")
@pytest.mark.parametrize("kind", Marker)
def test_a_marker_is_one_control_record_of_78_bytes(kind):
    sent = control_marker(kind, 5, 3, 11, NOW_MS)
    found = opened(sent)
    assert len(sent) == 78
    assert (found.is_control, found.is_transactional, found.record_count, found.base_sequence) == (True, True, 1, -1)
    assert (found.producer_id, found.producer_epoch, found.max_timestamp) == (5, 3, NOW_MS)
    assert read_marker(found) == (kind, 11)


@pytest.mark.parametrize(
    ("at", "byte"),
    [(22, 0x33), (60, 0), (62, 1), (67, 1), (72, 2), (77, 2)],
    ids=["a codec", "no records", "unused attributes", "key version", "value version", "headers"],
)
def test_a_marker_with_a_changed_byte_is_decoded_as_by_the_general_decoder(at, byte):
    changed = bytearray(control_marker(Marker.COMMIT, 5, 3, 11, NOW_MS))
    changed[at] = byte
    batch = read(memoryview(bytes(changed)))

    def outcome(read):
        try:
            return read(batch)
        except KafkaError as error:
            return error.code

    assert outcome(read_marker) == outcome(_read_any_marker)


def test_aiokafka_reads_our_markers():
    theirs = aiokafka.DefaultRecordBatch(control_marker(Marker.COMMIT, 5, 3, 11, NOW_MS))
    assert theirs.validate_crc()
    assert theirs.is_control_batch
    (only,) = list(theirs)
    assert ControlRecord.parse(only.key).type_ == Marker.COMMIT


def test_unknown_and_empty_control_batches_are_not_taken_for_markers():
    assert read_marker(opened(build([Record(0, 0, b"\0\0\0\2", b"")], control=True))) is None
    assert read_marker(opened(drop_records(opened(control_marker(Marker.ABORT, 5, 3, 11, 0))))) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\0\0\0", b""), (b"\0\0\0\1", b"\0\0\0"), (b"\0\0\0\1", None)]
)
def test_a_control_record_whose_key_or_value_is_too_short_is_refused_as_a_marker(key, value):
    with pytest.raises(KafkaError) as refused:
        read_marker(opened(build([Record(0, 0, key, value)], control=True)))
    assert refused.value.code == ErrorCode.INVALID_RECORD


# Timestamps that nobody can hold.

FARTHEST = 2**63 - 1


@pytest.mark.parametrize(
    ("base", "delta"), [(FARTHEST, 1), (-(2**63), -1), (NOW_MS, FARTHEST), (FARTHEST, 2**62)], ids=str
)
def test_decoding_a_record_timestamp_beyond_64_bits_raises_invalid_record(base, delta):
    sent = batch(record(0, delta), base_timestamp=base, max_timestamp=NOW_MS)
    with pytest.raises(KafkaError) as caught:
        list(records(opened(sent)))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_building_a_batch_refuses_timestamps_whose_delta_exceeds_64_bits():
    far = batch(record(0, -(2**63)) + record(1, FARTHEST), records=2, base_timestamp=0, max_timestamp=0)
    read_back = list(records(opened(far)))
    assert [each.timestamp for each in read_back] == [-(2**63), FARTHEST]
    with pytest.raises(KafkaError) as caught:
        build(read_back)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_batch_with_record_offsets_beyond_64_bits_is_refused():
    with pytest.raises(KafkaError) as refused:
        list(records(opened(batch(records=2, base_offset=FARTHEST))))
    assert refused.value.code == ErrorCode.INVALID_RECORD


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.none() | st.binary(max_size=300)), min_size=1, max_size=70),
    st.integers(0, 2**50),
    st.booleans(),
)
def test_keyed_batch_and_build_encode_the_same_records_to_the_same_bytes(contents, timestamp, transactional):
    built = build(
        [Record(number, timestamp, key, value) for number, (key, value) in enumerate(contents)],
        producer_id=7,
        producer_epoch=3,
        transactional=transactional,
    )
    made = keyed_batch(contents, timestamp, producer_id=7, producer_epoch=3, transactional=transactional)
    assert bytes(made.buffer) == built
    verify(made)
