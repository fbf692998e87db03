"""The order in which Java iterates over the keys of a HashMap. Pure.

Kafka's sticky assignors iterate over members in this order, and a member that comes first may keep one partition more.
So a leader needs the same order to compute the same assignment. Source: java.util.HashMap, String.hashCode.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from ...protocol.java_hash import java_hash
from ..values import TopicPartition

T = TypeVar("T")
_MASK = 0xFFFFFFFF
_SMALLEST_TABLE = 16


def text_hash(text: str) -> int:
    """Return Java's `String.hashCode` of this text, as an unsigned number."""
    return java_hash(text) & _MASK


def partition_hash(place: TopicPartition) -> int:
    """Return the `hashCode` of Kafka's TopicPartition, as an unsigned number."""
    return (31 * (31 + place.partition) + text_hash(place.topic)) & _MASK


def hash_order(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """Return the keys in the iteration order of a Java HashMap into which they were put in this order."""
    inserted = list(keys)
    table = _SMALLEST_TABLE
    while len(inserted) * 4 > table * 3:
        table *= 2
    return sorted(inserted, key=lambda key: _spread(hash_of(key)) & (table - 1))  # stable: a bucket keeps its order


def _spread(found: int) -> int:
    return found ^ found >> 16
