"""Which partition a record goes to: by its key as Kafka's own clients do, and without one where others just went.

The rule: the same key goes to the same partition from any client, as long as the topic keeps its number of partitions.
Records without a key stay together until a batch is full, which makes fewer and larger requests.
Source: Kafka's Utils.murmur2 and BuiltInPartitioner; KIP-480.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import unpack_from

Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""(key, all partitions, those with a leader) → partition: the same shape as in aiokafka."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_KEYS_REMEMBERED = 4096


def murmur2(key: bytes) -> int:
    """Kafka's variant of MurmurHash2, as an unsigned number of 32 bits."""
    length = len(key)
    hashed = _SEED ^ length
    words = length >> 2
    for word in unpack_from(f"<{words}I", key):
        mixed = word * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER ^ (mixed ^ mixed >> 24) * _MULTIPLIER
        hashed &= _MASK
    tail = key[words << 2 :]
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


@lru_cache(_KEYS_REMEMBERED)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, among so many. Keys seen lately are remembered: hashing one takes microseconds."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def next_sticky(current: int, available: Sequence[int], chance: int) -> int:
    """Where records without a key go next: another partition than now, if there is one.

    available: partitions that have a leader, not empty. chance: a random whole number of 0 or more.
    """
    others = [one for one in available if one != current]
    return others[chance % len(others)] if others else available[0]
