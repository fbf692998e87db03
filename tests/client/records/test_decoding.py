"""The consumer's decoder against the plain one: the same records of every batch, and an error where that has one."""

import gc
import types

import pytest
from fencepost.client.records.decoding import Records, records_of
from fencepost.client.values import CREATE_TIME, LOG_APPEND_TIME
from fencepost.protocol.batches import read
from fencepost.protocol.errors import KafkaError
from fencepost.protocol.records import Record, build, records
from hypothesis import example, given
from hypothesis import strategies as st

contents = st.lists(
    st.tuples(
        st.integers(1, 3) | st.integers(1, 20_000),
        st.integers(-3, 3) | st.integers(-(2**40), 2**40),
        st.none() | st.binary(max_size=3) | st.sampled_from([b"k" * 63, b"k" * 64, b"k" * 9000]),
        st.none() | st.binary(max_size=5) | st.sampled_from([b"v" * 63, b"v" * 64, b"v" * 8191, b"v" * 9000]),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


def outcome(decode):
    try:
        return [tuple(record) for record in decode()]
    except KafkaError:
        return "refused"


def plain(batch):
    kind = LOG_APPEND_TIME if batch.is_log_append_time else CREATE_TIME
    return [("t", 7, r.offset, r.timestamp, kind, r.key, r.value, r.headers) for r in records(batch)]


def same(buffer):
    batch = read(memoryview(buffer))
    expected = outcome(lambda: plain(batch))
    assert outcome(lambda: records_of(batch, "t", 7)) == expected
    return expected


def count_of(buffer):
    """Return how many records both decoders find in the batch. Fails if they refuse it."""
    found = same(buffer)
    assert found != "refused"
    return len(found)


@given(contents, st.sampled_from([0, 3]), st.booleans())
def test_every_batch_decodes_to_the_records_of_the_plain_decoder(drawn, codec, appended):
    made, offset, timestamp = [], 99, 1_700_000_000_000
    for step, late, key, value, headers in drawn:
        offset += step
        timestamp += late
        made.append(Record(offset, timestamp, key, value, headers))
    found = same(build(made, base_offset=100, codec=codec, log_append_time=5 if appended else None))
    kind = LOG_APPEND_TIME if appended else CREATE_TIME
    assert found == [
        ("t", 7, each.offset, 5 if appended else each.timestamp, kind, each.key, each.value, each.headers)
        for each in made
    ]


runs = st.lists(
    st.tuples(
        st.integers(1, 150),  # how many alike
        st.sampled_from([None, 0, 4, 63, 64, 300]),  # size of the key
        st.sampled_from([None, 0, 4, 63, 64, 300, 9000]),
        st.sampled_from([0, 0, 1, 100]),  # ms from one to the next
        st.sampled_from([0, 0, 1, 9000]),  # offsets left out before
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@given(runs)
@example([(9000, None, 1, 1, 0, False)])
@example([(40, 4, 64, -100, 0, False), (40, 4, 64, 20_000, 0, False)])
def test_neighbouring_records_of_equal_shape_decode_as_the_plain_decoder_does(drawn):
    made, offset, timestamp = [], 0, 1_700_000_000_000
    for count, key, value, late, gap, headers in drawn:
        offset += gap
        for number in range(count):
            content = (number % 256).to_bytes(1, "big")
            made.append(
                Record(
                    offset,
                    timestamp,
                    None if key is None else content * key,
                    None if value is None else content * value,
                    (("h", b"1"),) if headers else (),
                )
            )
            offset, timestamp = offset + 1, timestamp + late
    assert count_of(build(made)) == len(made)


ALIKE = build([Record(n, 1_700_000_000_000 + n, b"key", b"v" * 70) for n in range(100)])


@pytest.mark.parametrize("stretch", [b"", b"\x00", b"\x80", b"\xff\xff"])
def test_a_batch_whose_records_are_cut_short_or_replaced_at_the_end_is_refused(stretch):
    for cut in (2, 40, 80, 4000):
        damaged = bytearray(ALIKE[:-cut] + stretch)
        damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
        assert same(damaged) == "refused"


@given(st.integers(61, len(ALIKE) - 1), st.integers(0, 255))
def test_records_with_any_changed_byte_decode_or_raise_as_the_plain_decoder_does(at, value):
    """Both decoders find the same records, or both refuse."""
    damaged = bytearray(ALIKE)
    damaged[at] = value
    same(damaged)


MIXED = build(
    [Record(n, 1_700_000_000_000 + n * n * n, None, b"v" * (n * 7 % 90), (("a", None),) * (n % 3)) for n in range(60)]
)


@given(st.integers(61, len(MIXED) - 1), st.integers(0, 255))
def test_any_wrong_byte_in_mixed_records_decodes_as_the_plain_decoder_does(at, value):
    damaged = bytearray(MIXED)
    damaged[at] = value
    same(damaged)


def test_timestamps_and_offsets_close_to_2_to_the_63_are_decoded():
    assert count_of(build([Record(n, 2**63 - 1 - n, None, b"v") for n in range(40)])) == 40
    last = [Record(2**63 - 41 + n, 5, None, b"v") for n in range(40)]
    assert count_of(build(last, base_offset=2**63 - 41)) == 40


@pytest.mark.parametrize("log_append_time", [None, 5])
@pytest.mark.parametrize("base", [2**61, -(2**61)])
def test_a_timestamp_delta_out_of_range_is_refused_unless_log_append_time_is_used(base, log_append_time):
    latest = 2**63 - 1 if base > 0 else -(2**63)
    built = bytearray(build([Record(0, 0, b"k", b"v"), Record(1, latest, b"k", b"v")], log_append_time=log_append_time))
    built[27:35] = base.to_bytes(8, "big", signed=True)
    assert (same(bytes(built)) == "refused") == (log_append_time is None)


@given(contents, st.sampled_from([0, 3]), st.integers(1, 5), st.booleans())
def test_a_batch_decoded_in_pieces_gives_the_same_records(drawn, codec, most, appended):
    made, offset = [], 99
    for step, late, key, value, headers in drawn:
        offset += step
        made.append(Record(offset, 1_700_000_000_000 + late, key, value, headers))
    batch = read(memoryview(build(made, base_offset=100, codec=codec, log_append_time=5 if appended else None)))
    rest, found = Records(batch, "t", 7), []
    while rest.left:
        piece = rest.take(most)
        assert len(piece) == most or not rest.left
        found += piece
    assert [tuple(record) for record in found] == plain(batch)


USUAL = [
    Record(n, 1_700_000_000_000 + n // 3, *content)
    for n, content in enumerate(
        [
            *((b"key-%d" % (n % 7 * n), b"v" * (n * 5 % 150), ()) for n in range(60)),
            *((None, b"v" * (n * 5 % 150), ()) for n in range(60)),
            *((None, b"v", (("kind", b"x"), ("trace", b"%d" % (n % 90)), ("none", None))) for n in range(200)),
            *((None, None, ()) for n in range(20)),
            *((b"key", None, ()) for n in range(20)),
            *((None, b"v" * (n * 5 % 150), (("long", b"v" * 70),)) for n in range(20)),
        ]
    )
]
MANY = build(USUAL)


def test_records_with_and_without_key_value_headers_decode_as_by_the_plain_decoder():
    assert count_of(MANY) == len(USUAL)
    gaps = [record._replace(offset=record.offset + record.offset // 100) for record in USUAL]
    assert count_of(build(gaps)) == len(USUAL)


@pytest.mark.slow
@pytest.mark.parametrize("late", [200, 9000, 2_000_000])
def test_offsets_and_timestamps_of_every_width_are_read(late):
    made = [Record(n, 1_700_000_000_000 + n * late % 100_003, None, b"v" * (n % 3)) for n in range(9000)]
    assert count_of(build(made)) == len(made)


@given(st.integers(61, len(MANY) - 1), st.integers(0, 255))
def test_any_wrong_byte_in_usual_records_decodes_as_the_plain_decoder_does(at, value):
    damaged = bytearray(MANY)
    damaged[at] = value
    same(damaged)


@given(
    st.integers(61, len(MANY) - 8),
    st.lists(st.integers(0, 255) | st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0x81]), min_size=2, max_size=8),
)
def test_wrong_bytes_in_usual_records_decode_as_the_plain_decoder_does(at, values):
    damaged = bytearray(MANY)
    damaged[at : at + len(values)] = bytes(values)
    same(damaged)


def test_a_damaged_record_raises_at_each_read_and_is_not_skipped():
    damaged = bytearray(ALIKE)
    damaged[-1] = 2  # the last record says that it has a header
    rest = Records(read(memoryview(damaged)), "t", 7)
    assert len(rest.take(79)) == 79
    for _ in range(3):
        with pytest.raises(KafkaError, match="1 headers announced"):
            rest.take(100)
        assert rest.left == 21


def test_bytes_after_the_last_record_raise_at_each_read():
    damaged = bytearray(MANY + b"\x00")
    damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
    rest = Records(read(memoryview(damaged)), "t", 7)
    for _ in range(2):
        with pytest.raises(KafkaError, match="1 bytes follow the last record"):
            rest.take(rest.left)
        assert rest.left == len(USUAL)


@pytest.mark.slow
def test_decoding_unusual_records_leaves_no_traceback_in_memory():
    """The decoder once raised one exception object again and again, whose traceback kept the frames of every reader."""
    made = [Record(i, 7, b"k" * (1 + 90 * i), b"v" * (1 + 9000 * (i % 2)), ()) for i in range(6)]
    batch = read(memoryview(build(made)))
    records_of(batch, "t", 0)
    gc.collect()
    before = sum(isinstance(each, types.TracebackType) for each in gc.get_objects())
    for _ in range(20):
        records_of(batch, "t", 0)
    gc.collect()
    assert sum(isinstance(each, types.TracebackType) for each in gc.get_objects()) <= before
