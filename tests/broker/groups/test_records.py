"""The records of committed offsets: Kafka's bytes, every version is read, and unreadable records are refused."""

import pytest
from fencepost.broker.groups.records import (
    NO_LIMIT,
    UNKNOWN_AGE,
    Committed,
    Place,
    UnreadableRecord,
    key_kind,
    offset_key,
    offset_value,
    read_offset_key,
    read_offset_value,
)
from hypothesis import given
from hypothesis import strategies as st

TOPIC_ID = bytes.fromhex("63822204cc5846a9b469f9362de978e5")
KAFKAS_KEY = b"\x00\x01\x00\noffs-raw-g\x00\x08offs-raw\x00\x00\x00\x00"
KAFKAS_VALUE = bytes.fromhex(
    "00040000000000000005ffffffff066d65746100000001a1fc458f1a01001063822204cc5846a9b469f9362de978e5"
)
KAFKAS_VALUE_IN_TRANSACTION = bytes.fromhex("00040000000000000007ffffffff01000001a1fc458f6500")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
offsets = st.integers(-(2**63), 2**63 - 1)


def test_offset_records_written_by_kafka_are_decoded() -> None:
    """The records were read from the topic __consumer_offsets of Kafka 4.3.1."""
    assert read_offset_key(KAFKAS_KEY) == Place("offs-raw-g", "offs-raw", 0)
    expected = Committed(5, -1, "meta\0", 0x1A1FC458F1A, UNKNOWN_AGE, TOPIC_ID, NO_LIMIT, 9)
    assert read_offset_value(KAFKAS_VALUE, 9) == expected
    assert read_offset_value(KAFKAS_VALUE_IN_TRANSACTION) == Committed(7, -1, "", 0x1A1FC458F65, UNKNOWN_AGE)


def test_offsets_are_written_in_the_same_bytes_as_by_kafka() -> None:
    assert offset_key(Place("offs-raw-g", "offs-raw", 0)) == KAFKAS_KEY
    assert offset_value(Committed(5, -1, "meta\0", 0x1A1FC458F1A, UNKNOWN_AGE, TOPIC_ID)) == KAFKAS_VALUE
    assert offset_value(Committed(7, -1, "", 0x1A1FC458F65, UNKNOWN_AGE)) == KAFKAS_VALUE_IN_TRANSACTION


@given(texts, texts, st.integers(0, 2**31 - 1))
def test_an_offset_record_key_has_version_1_and_decodes_to_group_topic_and_partition(
    group: str, topic: str, partition: int
) -> None:
    key = offset_key(Place(group, topic, partition))
    assert key_kind(key) == 1
    assert read_offset_key(key) == Place(group, topic, partition)


@given(offsets, st.integers(-1, 2**31 - 1), texts, offsets, st.integers(-1, 2**62), st.integers(-1, 2**62))
def test_an_offset_value_encodes_every_field(
    offset: int, epoch: int, metadata: str, commit_ms: int, age_ms: int, retention_ms: int
) -> None:
    committed = Committed(offset, epoch, metadata, commit_ms, age_ms, TOPIC_ID, retention_ms, 7)
    assert read_offset_value(offset_value(committed), 7) == committed


def test_unknown_tagged_fields_of_offset_records_are_skipped() -> None:
    committed = Committed(5, 3, "m", 1_000, 2_000, TOPIC_ID, 3_000)
    value = offset_value(committed)
    count_at = 2 + 8 + 4 + 2 + 8
    assert value[count_at] == 3
    assert read_offset_value(value[:count_at] + b"\x04" + value[count_at + 1 :] + b"\xc0\xbb\x01\x02xy") == committed


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_topic_id_of_another_size_is_refused(size: int) -> None:
    value = offset_value(Committed(5, 3, "m", 1_000, UNKNOWN_AGE))
    assert value[-1] == 0
    with pytest.raises(UnreadableRecord):
        read_offset_value(value[:-1] + bytes((1, 0, size)) + bytes(size))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 0000000000000005 0001 6d 0000000000000064", Committed(5, -1, "m", 100, UNKNOWN_AGE)),
        (
            "0001 0000000000000005 0001 6d 0000000000000064 00000000000000c8",
            Committed(5, -1, "m", 100, UNKNOWN_AGE, retention_ms=100),
        ),
        ("0001 0000000000000005 0000 0000000000000064 ffffffffffffffff", Committed(5, -1, "", 100, UNKNOWN_AGE)),
        (
            "0001 0000000000000005 0000 ffffffffffffff9c 7fffffffffffffff",
            Committed(5, -1, "", -100, UNKNOWN_AGE, retention_ms=2**63 - 1),
        ),
        ("0002 0000000000000005 0001 6d 0000000000000064", Committed(5, -1, "m", 100, UNKNOWN_AGE)),
        ("0003 0000000000000005 00000007 0001 6d 0000000000000064", Committed(5, 7, "m", 100, UNKNOWN_AGE)),
    ],
)
def test_offset_records_of_older_versions_are_decoded(value: str, expected: Committed) -> None:
    assert read_offset_value(bytes.fromhex(value)) == expected
    assert read_offset_value(offset_value(expected)) == expected


@pytest.mark.parametrize("value", [b"", b"\x00", KAFKAS_VALUE[:-1], KAFKAS_VALUE[:12], b"\xff\xff" + KAFKAS_VALUE[2:]])
def test_a_truncated_offset_value_or_one_of_an_unknown_version_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        read_offset_value(value)


@pytest.mark.parametrize("key", [b"\x00\x01", KAFKAS_KEY[:-1], KAFKAS_KEY[:8], b"\x00\x01\x00\x05ab"])
def test_a_truncated_offsets_topic_key_is_refused(key: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        read_offset_key(key)


def test_an_offsets_topic_key_of_less_than_two_bytes_is_refused() -> None:
    with pytest.raises(UnreadableRecord):
        key_kind(b"\x00")
