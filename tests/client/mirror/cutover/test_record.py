"""What a cutover leaves behind is read again as it was written."""

import pytest
from fencepost.client.errors import IllegalStateError
from fencepost.client.mirror.cutover.record import (
    Carried,
    CutoverRecord,
    decode_record,
    encode_key,
    encode_record,
    is_cutover_key,
)
from fencepost.client.mirror.offset_map import EntryKey
from fencepost.client.mirror.offset_map import encode_key as encode_entry_key
from fencepost.client.values import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


@pytest.mark.parametrize(
    "record",
    [
        CutoverRecord("begun", "rule", ("a", "b")),
        CutoverRecord(
            "committed",
            "setting",
            (),
            {A: 5, B: 0},
            {
                "g": {A: Carried(3, OffsetAndMetadata(4, "at é"), None)},
                "h": {B: Carried(0, OffsetAndMetadata(0), OffsetAndMetadata(2, "x"))},
            },
        ),
    ],
)
def test_an_encoded_cutover_record_decodes_to_an_equal_record(record):
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"version":2}', b'{"version":1,"state":"new"}', b"\xff"])
def test_decoding_a_cutover_record_of_another_version_raises(value):
    with pytest.raises(IllegalStateError):
        decode_record(value)


def test_is_cutover_key_is_true_for_cutovers_and_false_for_map_entries():
    assert is_cutover_key(encode_key("m"))
    assert not is_cutover_key(encode_entry_key(EntryKey("cutover", "cutover", bytes(16), 0, 0)))
    assert not is_cutover_key(b"\xff")
    assert encode_key("m") != encode_key("n")
