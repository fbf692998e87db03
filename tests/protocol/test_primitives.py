"""Varints, at their edges."""

import pytest
from fencepost.protocol.errors import MalformedFrame
from fencepost.protocol.primitives import read_uvarint, tagged_section, uvarint

EDGES = [0, 1, 127, 128, 300, 16383, 16384, 2097151, 2097152, (1 << 28) - 1, 1 << 28, (1 << 31) - 1, (1 << 32) - 1]


@pytest.mark.parametrize("number", EDGES)
def test_an_unsigned_varint_survives_a_round_trip(number: int) -> None:
    data = uvarint(number)
    assert len(data) == max(1, (number.bit_length() + 6) // 7)
    assert read_uvarint(b"x" + data + b"y", 1) == (number, 1 + len(data))
    assert read_uvarint(memoryview(data), 0) == (number, len(data))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 20])
def test_an_unsigned_varint_of_more_than_32_bits_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_uvarint(data, 0)


def test_uvarint_raises_value_error_for_a_number_above_32_bits() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        uvarint(1 << 32)


def test_tagged_fields_are_preceded_by_their_count_and_each_by_its_tag_and_size() -> None:
    assert tagged_section([]) == b"\0"
    assert tagged_section([(0, b"a"), (200, b"")]) == b"\x02\x00\x01a\xc8\x01\x00"
