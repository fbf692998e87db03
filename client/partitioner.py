"""The choice of a record's partition: by its key, like Kafka's own clients, or one partition at a time without a key.

The rule: the same key goes to the same partition from any client, while the topic keeps its number of partitions.
Records without a key go to one partition until a batch is full, which makes fewer and larger requests.
Source: Kafka's Utils.murmur2 and BuiltInPartitioner; KIP-480. The named ones: librdkafka's rd_kafka_msg_partitioner_*.
Pure.
"""

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import unpack_from
from typing import Any

Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""(key, all partitions, those with a leader) → partition: the same signature as in aiokafka."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_KEYS_REMEMBERED = 4096
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193

Placing = Callable[[bytes | None, int, Sequence[int]], Any]
"""(key, number of partitions, those with a leader) → partition; None: the partition for records without a key."""


def murmur2(key: bytes) -> int:
    """Return Kafka's variant of MurmurHash2, as an unsigned 32-bit number."""
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
    """Return the partition for a key. Results for recent keys are cached: hashing one takes microseconds."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def next_sticky(current: int, available: Sequence[int], random_number: int) -> int:
    """Return the next partition for records without a key: another one than `current`, if there is one.

    available: partitions that have a leader, not empty. random_number: a random int >= 0.
    """
    others = [one for one in available if one != current]
    return others[random_number % len(others)] if others else available[0]


def fnv1a(key: bytes) -> int:
    """Return the hash of librdkafka's fnv1a: the absolute value of the hash as a signed number, as in Sarama."""
    hashed = _FNV_OFFSET
    for byte in key:
        hashed = (hashed ^ byte) * _FNV_PRIME & _MASK
    return hashed if hashed < 1 << 31 else (1 << 32) - hashed


_HASHES: dict[str, Callable[[bytes, int], int]] = {
    "murmur2": partition_of,
    "consistent": lambda key, count: zlib.crc32(key) % count,
    "fnv1a": lambda key, count: fnv1a(key) % count,
}
PARTITIONERS = ("murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a", "random")
"""librdkafka's names. `_random`: records without a key go to any partition; otherwise all of them to one partition."""


def placing_of(partitioner: str | Partitioner | None, random_number: Callable[[], int]) -> Placing | None:
    """Return the function that chooses a partition; None for the producer's default.

    partitioner: one of PARTITIONERS, or a function of the user. random_number: returns a random int >= 0.
    """
    if partitioner is None or partitioner == "murmur2_random":
        return None
    if not isinstance(partitioner, str):
        return lambda key, count, available: partitioner(key, list(range(count)), list(available))
    name, _, at_random = partitioner.partition("_")

    def anywhere(key: bytes | None, count: int, available: Sequence[int]) -> int | None:
        """Return a random available partition; None for a record without a key, which is placed like others without
        one.
        """
        if key is None:
            return None  # like other records without a key
        chosen = available or range(count)
        return chosen[random_number() % len(chosen)]

    if name == "random":
        return anywhere
    place = _HASHES[name]
    if not at_random:
        return lambda key, count, available: place(key or b"", count)
    empty_too = name == "consistent"  # only consistent_random treats an empty key as none

    def hashed(key: bytes | None, count: int, available: Sequence[int]) -> int | None:
        return anywhere(key, count, available) if key is None or (empty_too and not key) else place(key, count)

    return hashed
