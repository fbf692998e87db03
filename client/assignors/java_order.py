"""In which order Java walks through the keys of a HashMap. Pure.

Kafka's sticky assignors walk through members so, and who is met first may keep one partition more: to come to the
same assignment as a Java leader, one walks as Java does. Source: java.util.HashMap, String.hashCode.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from ..values import TopicPartition

T = TypeVar("T")
_MASK = 0xFFFFFFFF
_SMALLEST_TABLE = 16


def text_hash(text: str) -> int:
    """What Java's `hashCode` says of this text, as a number without sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for position in range(0, len(units), 2):
        found = (31 * found + (units[position] << 8 | units[position + 1])) & _MASK
    return found


def partition_hash(place: TopicPartition) -> int:
    """That of Kafka's TopicPartition."""
    return (31 * (31 + place.partition) + text_hash(place.topic)) & _MASK


def hash_order(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """Keys, put in one after the other, in the order in which a default HashMap gives them out."""
    inserted = list(keys)
    table = _SMALLEST_TABLE
    while len(inserted) * 4 > table * 3:
        table *= 2
    return sorted(inserted, key=lambda key: _spread(hash_of(key)) & (table - 1))  # stable: as put in within a bucket


def _spread(found: int) -> int:
    return found ^ found >> 16
