"""The subscriptions and assignments of classic consumers, encoded and decoded, for the conversion of groups. Pure.

In the protocol type "consumer" a member's metadata is its subscription, and what the leader gives it is an assignment.
Newer versions only append fields, so the known fields are read in any version. An assignment is written in the version
of the subscription of the member that reads it.
Source: Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json (KIP-429, KIP-792, KIP-881).
"""

from collections.abc import Iterable, Mapping
from struct import Struct, error
from typing import NamedTuple

NEWEST = 3
OWNED_SINCE, GENERATION_SINCE, RACK_SINCE = 1, 2, 3
_INT16, _INT32 = Struct(">h"), Struct(">i")

ByTopic = Mapping[str, Iterable[int]]
"""Partitions, by the names of topics."""


class UnreadableMetadata(ValueError):
    """Raised for a subscription or an assignment that does not have the layout of its version."""


class Subscribed(NamedTuple):
    """What a member subscribes to. owned: the partitions that it has at present, by topic name."""

    topics: tuple[str, ...]
    owned: ByTopic
    rack_id: str | None


def read_subscription(metadata: bytes) -> Subscribed:
    """Decode the metadata of a JoinGroup, as consumers encode it. Raises UnreadableMetadata."""
    reader = _Reader(metadata)
    version = reader.version()
    topics = tuple(reader.text() for _ in range(reader.count(2)))
    reader.skip_user_data()
    owned = reader.partitions() if version >= OWNED_SINCE else {}
    if version >= GENERATION_SINCE:
        reader.number(_INT32)
    return Subscribed(topics, owned, reader.nullable_text() if version >= RACK_SINCE else None)


def read_assignment(assignment: bytes) -> ByTopic:
    """Decode an assignment. Returns the partitions by topic name; none for empty bytes. Raises UnreadableMetadata."""
    if not assignment:
        return {}
    reader = _Reader(assignment)
    reader.version()
    partitions = reader.partitions()
    reader.skip_user_data()
    return partitions


def assignment_for(metadata: bytes, partitions: ByTopic) -> bytes:
    """Encode these partitions as an assignment, in the version of the member's subscription. Raises
    UnreadableMetadata.

    metadata: the subscription that the member sent.
    """
    parts = [_INT16.pack(min(_Reader(metadata).version(), NEWEST)), _INT32.pack(len(partitions))]
    for topic, numbers in partitions.items():
        name, numbers = topic.encode(), sorted(numbers)
        parts += _INT16.pack(len(name)), name, _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)
    return b"".join(parts) + _INT32.pack(-1)  # no user data


class _Reader:
    """Decodes the bytes field by field. Each method raises UnreadableMetadata if the bytes end too early."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def number(self, form: Struct) -> int:
        """Read one number of this format. Raises UnreadableMetadata if the bytes end before."""
        try:
            found: int = form.unpack_from(self._content, self._position)[0]
        except error:
            raise UnreadableMetadata("the bytes end too early") from None
        self._position += form.size
        return found

    def version(self) -> int:
        """Read the version that the bytes begin with. Raises UnreadableMetadata if it is negative."""
        found = self.number(_INT16)
        if found < 0:
            raise UnreadableMetadata(f"the version is {found}")
        return found

    def count(self, smallest_bytes: int) -> int:
        """Read the number of items of an array; 0 for null. smallest_bytes: the smallest size that one item can have.

        Raises UnreadableMetadata if that many items do not fit in the bytes that are left.
        """
        found = self.number(_INT32)
        if found < -1 or found * smallest_bytes > len(self._content) - self._position:
            raise UnreadableMetadata(f"the count of items is {found}, which the bytes left cannot hold")
        return max(found, 0)

    def nullable_text(self) -> str | None:
        length = self.number(_INT16)
        return None if length == -1 else self._text(length)

    def text(self) -> str:
        return self._text(self.number(_INT16))

    def _text(self, length: int) -> str:
        """Read this number of bytes as UTF-8. Raises UnreadableMetadata if they are fewer, or not UTF-8."""
        try:
            return self._bytes(length).decode()
        except UnicodeDecodeError as broken:
            raise UnreadableMetadata(f"a name is not UTF-8: {broken}") from None

    def skip_user_data(self) -> None:
        """Skip the user data: a length of 32 bits (-1: null) and that many bytes."""
        length = self.number(_INT32)
        if length != -1:
            self._bytes(length)

    def _bytes(self, length: int) -> bytes:
        """Read this number of bytes. Raises UnreadableMetadata if fewer are left."""
        end = self._position + length
        if length < 0 or end > len(self._content):
            raise UnreadableMetadata(f"a length is {length}, which runs past the end")
        found = self._content[self._position : end]
        self._position = end
        return found

    def partitions(self) -> dict[str, list[int]]:
        """Read an array of topics, each with its partitions. Returns the partitions by topic name."""
        found: dict[str, list[int]] = {}
        for _ in range(self.count(6)):
            of_topic = found.setdefault(self.text(), [])
            of_topic += [self.number(_INT32) for _ in range(self.count(4))]
        return found
