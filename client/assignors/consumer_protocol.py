"""The consumer protocol: subscriptions and assignments of a group's members, as bytes. Pure.

The rule: we write version 3, and read the fields we know of any version: newer versions only append fields.
Source: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment (KIP-429, KIP-792, KIP-881).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct, error

from ...protocol.errors import MalformedFrame
from ..values import TopicPartition

PROTOCOL_TYPE = "consumer"
VERSION = 3
NO_GENERATION = -1

_INT16 = Struct(">h")
_INT32 = Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's topics, and the partitions it has. generation: in which it got `owned`; None before version 2."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int | None = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None  # not encoded here: it is in the broker's list of members


@dataclass(frozen=True, slots=True)
class Assignment:
    """The leader's assignment for one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


# ---- Writing -------------------------------------------------------------------------------------------------


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription as Kafka's client does: topics and owned partitions are sorted."""
    generation = NO_GENERATION if subscription.generation is None else subscription.generation
    return b"".join(
        (
            _INT16.pack(VERSION),
            _INT32.pack(len(subscription.topics)),
            *(_string(topic) for topic in sorted(subscription.topics)),
            _bytes(subscription.user_data),
            encode_partitions(sorted(subscription.owned)),
            _INT32.pack(generation),
            _INT16.pack(-1) if subscription.rack_id is None else _string(subscription.rack_id),
        )
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode an assignment, its topics in the order in which they first appear."""
    return _INT16.pack(VERSION) + encode_partitions(assignment.partitions) + _bytes(assignment.user_data)


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode an array of topics, each with an array of partition numbers."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += (_string(topic), Struct(f">i{len(numbers)}i").pack(len(numbers), *numbers))
    return b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _bytes(content: bytes | None) -> bytes:
    return _INT32.pack(-1) if content is None else _INT32.pack(len(content)) + content


# ---- Reading -------------------------------------------------------------------------------------------------


def decode_subscription(content: bytes) -> Subscription:
    """Decode a subscription. Raises MalformedFrame."""
    reader = Reader(content)
    version = reader.version()
    topics = tuple(reader.string() for _ in range(reader.count(2)))
    return Subscription(
        topics,
        reader.nullable_bytes(),
        reader.partitions() if version >= 1 else (),
        reader.int32() if version >= 2 else None,
        reader.nullable_string() if version >= 3 else None,
    )


def decode_assignment(content: bytes) -> Assignment:
    """Decode an assignment. Raises MalformedFrame."""
    reader = Reader(content)
    reader.version()
    return Assignment(reader.partitions(), reader.nullable_bytes())


class Reader:
    """Reads the bytes of another member; every method raises MalformedFrame if they are not valid."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise MalformedFrame(f"the version of the consumer protocol is {version}")
        return version

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def count(self, smallest_bytes: int) -> int:
        """Read the number of items that follow, each of at least `smallest_bytes`; 0 for null."""
        count = self.int32()
        if count < -1 or count * smallest_bytes > len(self._content) - self._position:
            raise MalformedFrame(f"the count of items is {count}, which the bytes left cannot hold")
        return max(count, 0)

    def string(self) -> str:
        return self._text(self.int16())

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self._text(length)

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count(6)):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count(4))]
        return tuple(found)

    def _number(self, form: Struct) -> int:
        """Read one number of this format and advance past it. Raises MalformedFrame if the bytes end before."""
        try:
            number: int = form.unpack_from(self._content, self._position)[0]
        except error:
            raise MalformedFrame("the bytes end too early") from None
        self._position += form.size
        return number

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as broken:
            raise MalformedFrame(f"text is not UTF-8: {broken}") from None

    def _take(self, length: int) -> bytes:
        """Read `length` bytes and advance past them. Raises MalformedFrame if it is negative, or the bytes end
        before.
        """
        end = self._position + length
        if length < 0 or end > len(self._content):
            raise MalformedFrame(f"a length is {length}, which runs past the end")
        taken = self._content[self._position : end]
        self._position = end
        return taken
