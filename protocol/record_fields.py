"""Fields of records in Kafka's flexible encoding, written and read one by one. Pure.

For records that the broker keeps in internal topics: groups and share partitions. Values begin with a version, which is
0 everywhere.
"""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct, error
from typing import TypeVar

from .errors import MalformedFrame
from .primitives import read_uvarint, uvarint

INT8, INT16, INT32, INT64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
VERSION = INT16.pack(0)
NO_TAGS = b"\x00"
Value = TypeVar("Value")
ByTopicId = dict[bytes, frozenset[int]]
"""Partitions by the id of their topic."""


class UnreadableRecord(ValueError):
    """A record that does not have the layout of its version."""


# ---- writing -------------------------------------------------------------------------------------------------


def short_text(text: str) -> bytes:
    """Encode a text with a length of 16 bits, as in keys."""
    encoded = text.encode()
    return INT16.pack(len(encoded)) + encoded


def text(text: str | None) -> bytes:
    """Encode a nullable text with a compact length (a varint, one more than the length)."""
    if text is None:
        return b"\x00"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def tag(number: int, content: bytes) -> bytes:
    """Encode a tagged field: its number, and its content with a length."""
    return uvarint(number) + uvarint(len(content)) + content


def numbers(found: Iterable[int]) -> bytes:
    """Encode an array of 32-bit integers with a compact length."""
    packed = [INT32.pack(each) for each in found]
    return uvarint(len(packed) + 1) + b"".join(packed)


def texts(found: Iterable[str]) -> bytes:
    """Encode an array of texts with a compact length."""
    written = [text(each) for each in found]
    return uvarint(len(written) + 1) + b"".join(written)


def partitions(found: Mapping[bytes, Iterable[int]]) -> bytes:
    """Encode an array of topics, each with an array of its partitions."""
    topics = (topic_id + numbers(sorted(of_topic)) + NO_TAGS for topic_id, of_topic in found.items())
    return uvarint(len(found) + 1) + b"".join(topics)


# ---- reading -------------------------------------------------------------------------------------------------


def read_value(value: bytes, kind: int, read: "Callable[[Reader], Value]") -> Value:
    """Decode a record's value by `read`. kind: of the record, for the error text. Raises UnreadableRecord."""
    version = INT16.unpack_from(value)[0]
    if version != 0:
        raise UnreadableRecord(f"a record of kind {kind} has version {version}, 0 is known")
    return read(Reader(value, 2))


NOT_READABLE = (error, ValueError, IndexError, MalformedFrame)
"""What reading a record may come to, where it is not as its version has it."""


class Reader:
    """Decodes the fields of a record, one after another. Each method moves on past the field."""

    def __init__(self, buffer: bytes, position: int) -> None:
        self._buffer = buffer
        self._position = position

    def number(self, kind: Struct) -> int:
        """Read one number of this format."""
        found: int = kind.unpack_from(self._buffer, self._position)[0]
        self._position += kind.size
        return found

    def uvarint(self) -> int:
        found, self._position = read_uvarint(self._buffer, self._position)
        return found

    def bytes(self, length: int) -> bytes:
        """Read this number of bytes. Raises UnreadableRecord if the record is shorter."""
        end = self._position + length
        if length < 0 or end > len(self._buffer):
            raise UnreadableRecord(
                f"{length} bytes are announced at {self._position}, and the record ends at {len(self._buffer)}"
            )
        found = self._buffer[self._position : end]
        self._position = end
        return bytes(found)

    def short_text(self) -> str:
        """Read a text with a length of 16 bits, as in keys."""
        return self.bytes(self.number(INT16)).decode()

    def nullable(self) -> str | None:
        """Read a text with a compact length; None if it is null."""
        length = self.uvarint()
        return None if length == 0 else self.bytes(length - 1).decode()

    def text(self) -> str:
        """Read a text. Raises UnreadableRecord if it is null."""
        found = self.nullable()
        if found is None:
            raise UnreadableRecord("a text that must not be null is null")
        return found

    def count(self) -> int:
        """Read the number of items of an array. Raises UnreadableRecord if there are fewer bytes left than items."""
        found = self.uvarint() - 1
        if not 0 <= found <= len(self._buffer) - self._position:
            raise UnreadableRecord(f"{found} items are announced in {len(self._buffer) - self._position} bytes")
        return found

    def numbers(self) -> list[int]:
        """Read an array of 32-bit integers."""
        return [self.number(INT32) for _ in range(self.count())]

    def texts(self) -> tuple[str, ...]:
        return tuple(self.text() for _ in range(self.count()))

    def tags(self) -> dict[int, "Reader"]:
        """Read the tagged fields: a Reader of each one's content, by number."""
        found: dict[int, Reader] = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = Reader(self.bytes(self.uvarint()), 0)
        return found

    def partitions(self) -> ByTopicId:
        """Read an array of topics, each with an array of its partitions."""
        found: ByTopicId = {}
        for _ in range(self.count()):
            topic_id = self.bytes(16)
            found[topic_id] = frozenset(self.numbers())
            self.tags()
        return found
