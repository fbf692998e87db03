"""The parts of all messages: varints, lengths and tagged fields, and the errors for invalid ones.

The rule: nothing is believed. A length below zero, a varint of more than five bytes, a count that the rest of the frame
cannot hold: all of it is `MalformedFrame`. Lengths and tags are unsigned varints, unlike those inside of records.
Source: KIP-482, and Kafka's ByteUtils. Generated codecs inline the common one-byte case and call these for the rest.
"""

from typing import NoReturn, TypeAlias

from .errors import MalformedFrame

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes in memory. A memoryview is one of single bytes, so that its len() is its size."""

Readable: TypeAlias = bytes | memoryview
"""What a frame may be."""

ZERO_UUID = bytes(16)
"""The value that means no id."""

LARGEST_STRING_BYTES = 32767
"""Kafka's limit on every string, also where the encoding would allow more."""

MAX_TAGS = 127
"""Tagged fields of one section. No message of Kafka's has ten; and each takes time to step over, known or not."""

_LARGEST_UVARINT = 0xFFFFFFFF


# Writing. ------------------------------------------------------------------------------------------------------------


def _uvarint_bytes(number: int) -> bytes:
    """Encode the number as an unsigned varint: 7 bits in each byte, the lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


UVARINTS = (
    *(bytes((number,)) for number in range(128)),
    *(bytes((number & 127 | 128, number >> 7)) for number in range(128, 16384)),
)
"""The unsigned varints of one and two bytes, ready made."""


def uvarint(number: int) -> bytes:
    """Encode the number as an unsigned varint. Raises ValueError above 32 bits."""
    if number < 16384:
        return UVARINTS[number]
    if number > _LARGEST_UVARINT:
        raise ValueError(f"{number} does not fit an unsigned varint")
    return _uvarint_bytes(number)


def tagged_section(tags: list[tuple[int, bytes]]) -> bytes:
    """Encode the tagged fields of a struct. tags: (tag, encoded value), in ascending order."""
    parts = [uvarint(len(tags))]
    for tag, content in tags:
        parts += (uvarint(tag), uvarint(len(content)), content)
    return b"".join(parts)


# Reading. ------------------------------------------------------------------------------------------------------------


def read_uvarint(data: Readable, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits. Returns it and the position after it.

    Raises IndexError at the end of the data, and MalformedFrame if it is too long.
    """
    first = data[position]
    return rest_of_uvarint(data, position + 1, first) if first > 127 else (first, position + 1)


def rest_of_uvarint(data: Readable, position: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint, whose first byte is above 127. position: after that byte.

    Returns the number and the position after it. Raises IndexError, MalformedFrame.
    """
    byte = data[position]
    number = first & 127 | (byte & 127) << 7
    shift = 14
    while byte > 127:
        position += 1
        byte = data[position]
        number |= (byte & 127) << shift
        shift += 7
        if shift > 35:
            raise MalformedFrame("a varint has more than five bytes")
    if number > _LARGEST_UVARINT:
        raise MalformedFrame("a varint has more than 32 bits")
    return number, position + 1


def rest_of_string_length(data: Readable, position: int, first: int) -> tuple[int, int]:
    """Like rest_of_uvarint(), for the length of a string. Raises MalformedFrame above LARGEST_STRING_BYTES."""
    number, position = rest_of_uvarint(data, position, first)
    if number > LARGEST_STRING_BYTES + 1:
        raise MalformedFrame(f"a string has {number - 1} bytes, {LARGEST_STRING_BYTES} are allowed")
    return number, position


def skip_tags(data: Readable, position: int, count: int) -> int:
    """Skip `count` tagged fields, none of which is known here. Returns the position after them.

    count: the first byte of their number; if that has more bytes, it is above MAX_TAGS, and refused. Raises
    MalformedFrame.
    """
    end = len(data)
    if count > MAX_TAGS or count * 2 > end - position:
        refuse_count(count)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > end:
            refuse_length(size)
    return position


# Refusing. -----------------------------------------------------------------------------------------------------------


def refuse_length(length: int) -> NoReturn:
    """Raise MalformedFrame: a field's length is negative, or the field runs past the end of the frame. length: a number
    for the message, for example the length.
    """
    raise MalformedFrame(f"the length of a field is negative, or it runs past the end of the frame ({length})")


def refuse_count(count: int) -> NoReturn:
    """Raise MalformedFrame: the count is negative, or the rest of the frame cannot hold that many items."""
    raise MalformedFrame(f"the count {count} is negative, or more than the rest of the frame can hold")


def refuse_null(what: str) -> NoReturn:
    """Raise MalformedFrame: the field is null, which this version does not allow."""
    raise MalformedFrame(f"{what} is null")


def refuse_tag(tag: int, size: int) -> NoReturn:
    """Raise MalformedFrame: a known tagged field is shorter or longer than its length prefix says."""
    raise MalformedFrame(f"tagged field {tag} does not have the {size} bytes that its length says")
