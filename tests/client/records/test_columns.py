"""Batches as columns against the decoder of the consumer: the same records, and an error where that has one."""

import pytest
from fencepost.client.records.columns import Columns, WantedColumns
from fencepost.client.records.decoding import records_of
from fencepost.protocol.batches import read
from fencepost.protocol.errors import KafkaError
from fencepost.protocol.records import Record, build
from hypothesis import example, given
from hypothesis import strategies as st

FAR = 1 << 62
asked_columns = st.builds(WantedColumns, st.booleans(), st.booleans(), st.booleans(), st.booleans())
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


def rows(batch, low, high, asked):
    columns = Columns(asked)
    try:
        columns.add(batch, low, high)
    except KafkaError:
        return "refused"
    count = len(columns)
    unasked = [None] * count
    listed = (
        columns.offsets,
        columns.timestamps if asked.timestamps else unasked,
        columns.kinds if asked.timestamps else unasked,
        columns.keys if asked.keys else unasked,
        columns.values if asked.values else unasked,
        columns.headers if asked.headers else unasked,
    )
    return list(zip(*listed, strict=True))


def expected(batch, low, high, asked):
    try:
        found = records_of(batch, "t", 7)
    except KafkaError:
        return "refused"
    return [
        (
            r.offset,
            r.timestamp_ms if asked.timestamps else None,
            r.timestamp_type if asked.timestamps else None,
            r.key if asked.keys else None,
            r.value if asked.values else None,
            r.headers if asked.headers else None,
        )
        for r in found
        if low <= r.offset < high
    ]


def same(buffer, low=0, high=1 << 63, asked=None):
    batch = read(memoryview(buffer))
    asked = asked or WantedColumns()
    found = rows(batch, low, high, asked)
    assert found == expected(batch, low, high, asked)
    return found


@given(contents, st.sampled_from([0, 3]), st.booleans(), asked_columns, st.integers(90, 200), st.integers(90, 50_000))
def test_columns_of_a_batch_equal_the_records_that_a_consumer_returns(drawn, codec, appended, asked, low, high):
    made, offset, timestamp = [], 99, 1_700_000_000_000
    for step, late, key, value, headers in drawn:
        offset += step
        timestamp += late
        made.append(Record(offset, timestamp, key, value, headers))
    buffer = build(made, base_offset=100, codec=codec, log_append_time=5 if appended else None)
    assert len(same(buffer, asked=asked)) == len(made)
    same(buffer, low, high, asked)


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
@given(runs, asked_columns, st.integers(0, 300), st.integers(0, 300))
@example([(9000, None, 1, 1, 0, False)], WantedColumns(), 50, 8000)
@example([(40, 4, 64, -100, 0, False), (40, 4, 64, 20_000, 0, False)], WantedColumns(), 0, 300)
def test_columns_of_neighbouring_records_of_equal_shape_equal_a_consumers_records(drawn, asked, low, high):
    made, offset, timestamp = [], 0, 1_700_000_000_000
    for count, key, value, late, gap, headers in drawn:
        offset += gap
        for number in range(count):
            one = (number % 256).to_bytes(1, "big")
            key_of = None if key is None else one * key
            value_of = None if value is None else one * value
            made.append(Record(offset, timestamp, key_of, value_of, (("h", one),) if headers else ()))
            offset += 1
            timestamp += late
    same(build(made), asked=asked)
    same(build(made), low, high, asked)


@given(st.binary(max_size=60), st.integers(1, 3))
def test_malformed_records_get_the_same_result_from_the_column_and_plain_readers(noise, count):
    sound = bytearray(build([Record(n, 0, b"k", b"v") for n in range(count)]))
    broken = sound[:61] + noise
    broken[8:12] = (len(broken) - 12).to_bytes(4, "big")
    same(bytes(broken))


def test_a_batch_without_records_after_compaction_gives_no_rows():
    assert same(build([], base_offset=5, last_offset_delta=3)) == []


@pytest.mark.parametrize("timestamp", [-1, 0, FAR, -FAR])
def test_timestamps_far_from_the_base_timestamp_are_decoded(timestamp):
    assert same(build([Record(0, timestamp, None, b"v"), Record(1, timestamp, None, b"v")]))[0][1] == timestamp


@pytest.mark.parametrize("log_append_time", [None, 5])
@pytest.mark.parametrize("base", [2**61, -(2**61)])
def test_a_timestamp_delta_beyond_64_bits_is_refused_unless_log_append_time_is_used(base, log_append_time):
    latest = 2**63 - 1 if base > 0 else -(2**63)
    built = bytearray(build([Record(0, 0, b"k", b"v"), Record(1, latest, b"k", b"v")], log_append_time=log_append_time))
    built[27:35] = base.to_bytes(8, "big", signed=True)
    found = same(bytes(built), 0, 2, WantedColumns())
    assert (found == "refused") == (log_append_time is None)
