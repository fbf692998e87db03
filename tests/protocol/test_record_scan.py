"""The quick look over records finds what the thorough one would, and is as hard to deceive."""

import contextlib

import pytest
from fencepost.protocol import record_scan
from fencepost.protocol.batches import read
from fencepost.protocol.compression import Codec, compress
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.record_scan import MAX_NAMED
from fencepost.protocol.records import DECOMPRESSED_LIMIT_BYTES, Record, RecordsRefused, build, payload_of, records
from hypothesis import given
from hypothesis import strategies as st
from lines_run import lines_run
from raw_batches import NOW_MS, batch, record, varint


def opened(sent: bytes):
    return read(memoryview(sent))


def check_keys(found) -> None:
    record_scan.check_keys(found, payload_of(found, DECOMPRESSED_LIMIT_BYTES))


def outside(found, lowest: int, highest: int) -> tuple[list[tuple[int, int]], int]:
    return record_scan.outside(found, payload_of(found, DECOMPRESSED_LIMIT_BYTES), lowest, highest)


def checked(found) -> KafkaError | None:
    try:
        check_keys(found)
    except KafkaError as error:
        return error
    return None


keys = st.none() | st.binary(max_size=3) | st.sampled_from([b"k" * 62, b"k" * 63, b"k" * 64, b"k" * 200])
stamps = st.integers(0, 200) | st.integers(0, 2**62) | st.just(-1)
values = st.none() | st.sampled_from([b"", b"v" * 50, b"v" * 200])
few = st.lists(st.tuples(stamps, keys, values), min_size=1, max_size=8)


def contents(shapes, times=1) -> list[Record]:
    """Return a record of each (timestamp, key, value) in `shapes`, all of them `times` times over."""
    return [Record(offset, *shape) for offset, shape in enumerate(shapes * times)]


@pytest.mark.slow
@given(few, st.sampled_from([1, 1, 20, 1500]), st.sampled_from(Codec))
def test_the_check_for_missing_keys_names_each_record_without_a_key(shapes, times, codec):
    sent = contents(shapes, times)
    keyless = [n for n, each in enumerate(sent) if each.key is None]
    outcome = checked(opened(build(sent, codec=codec)))
    if not keyless:
        assert outcome is None
        return
    assert isinstance(outcome, RecordsRefused)
    assert [index for index, _ in outcome.record_errors] == keyless[:MAX_NAMED]
    assert outcome.detail.startswith(f"{len(keyless)} records")


@given(few, st.sampled_from([1, 30]), st.integers(-5, 300) | st.integers(0, 2**62), st.integers(0, 300))
def test_outside_returns_the_first_records_out_of_the_time_limits_and_counts_all(shapes, times, lowest, width):
    sent = contents(shapes, times)
    wrong = [(n, r.timestamp) for n, r in enumerate(sent) if not lowest <= r.timestamp <= lowest + width]
    wrong = [each for each in wrong if each[1] != -1]
    assert outside(opened(build(sent)), lowest, lowest + width) == (wrong[:MAX_NAMED], len(wrong))


@given(few, st.data())
def test_damaged_records_are_scanned_or_raise_a_kafka_error(shapes, data):
    built = bytearray(build(contents(shapes)))
    for _ in range(data.draw(st.integers(1, 3))):
        built[data.draw(st.integers(61, len(built) - 1))] = data.draw(st.integers(0, 255))
    found = opened(bytes(built))
    outcome = checked(found)
    try:
        keys = [each.key for each in records(found)]
    except KafkaError:
        return
    assert outcome is None or isinstance(outcome, RecordsRefused)
    assert (outcome is None) is (None not in keys)


@given(few, st.data())
def test_records_with_damaged_timestamps_are_scanned_or_raise_a_kafka_error(shapes, data):
    built = bytearray(build(contents(shapes)))
    for _ in range(data.draw(st.integers(1, 3))):
        built[data.draw(st.integers(61, len(built) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(KafkaError):
        outside(opened(bytes(built)), 0, 10)


LIES = {
    "a length below zero": record(length=-3),
    "a long length below zero": record(length=-300),
    "a length of nothing": b"\0" + record()[1:],
    "a length beyond the end": record(lies_by=1),
    "a length that is short of it": record(lies_by=-1),
    "a key below nothing": varint(6) + b"\0\0\0" + varint(-2) + b"\0\0",
    "a long key below zero": varint(7) + b"\0\0\0" + varint(-200) + b"\0\0",
    "a key beyond its record": varint(6) + b"\0\0\0" + varint(40) + b"\0\0" + bytes(50),
    "an offset delta of another place": record(1),
    "a timestamp delta without an end": varint(50) + b"\0" + b"\xff" * 49,
    "something after the last record": record() + b"\0",
    "nothing": bytes(7)[:6] + b"\x80",
}


@pytest.mark.parametrize("name", LIES)
def test_check_keys_refuses_a_batch_with_a_record_of_false_sizes_as_invalid_record(name):
    found = opened(batch(LIES[name]))
    with pytest.raises(KafkaError) as caught:
        check_keys(found)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert not isinstance(caught.value, RecordsRefused)


@pytest.mark.parametrize("name", [name for name in LIES if "length" in name])
@pytest.mark.parametrize("lowest", [0, NOW_MS])
def test_the_check_of_timestamps_refuses_a_batch_with_a_record_of_false_length(name, lowest):
    with pytest.raises(KafkaError) as refused:
        outside(opened(batch(LIES[name])), lowest, 2**63 - 1)
    assert refused.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 5), (-(2**63), -1)])
def test_a_timestamp_beyond_64_bits_is_outside_any_allowed_range(base, delta):
    found = opened(batch(record(0, delta), base_timestamp=base, max_timestamp=NOW_MS))
    assert outside(found, -(2**80), 2**80) == ([(0, base + delta)], 1)


@pytest.mark.slow
@pytest.mark.parametrize("look", [check_keys, lambda found: outside(found, 0, NOW_MS)])
def test_the_steps_of_a_record_scan_grow_only_in_proportion_to_the_record_count(look):
    """A batch of a million records, which one request may carry, then takes a fraction of a second."""

    def steps(count: int) -> int:
        payload = b"".join(record(index, 0, key=b"key") for index in range(count))
        found = opened(batch(compress(Codec.ZSTD, payload), records=count, attributes=4))
        return lines_run(lambda: look(found))

    # The second 4,000 records take as many steps as the first, and at most one more each.
    assert steps(8_000) - steps(4_000) <= 1.01 * (steps(4_000) - steps(1)) + 4_000
    assert steps(4_000) - steps(1) <= 25 * 4_000
