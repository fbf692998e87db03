"""Decodes records of __transaction_state, as Kafka and fencepost write them: the status of a transactional id. Pure.

The rule: versions 0 and 1 of the value are read, and tagged fields skipped; for anything else the result is None, so
that the console shows nothing from a record that it does not understand. Source: Kafka's TransactionLogKey,
TransactionLogValue.
"""

import struct
from typing import NamedTuple

from ...client.values import TopicPartition
from ...protocol.errors import MalformedFrame
from ...protocol.primitives import read_uvarint

_HEAD = struct.Struct(">hqhib")  # version, producer id, its epoch, timeout, state
_NEWEST = 1
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class Status(NamedTuple):
    """The status of a transactional id. producer_epoch: None where it is not known."""

    state: str
    producer_id: int
    producer_epoch: int | None
    partitions: frozenset[TopicPartition]


def read_record(key: bytes | None, value: bytes | None) -> tuple[str, Status | None] | None:
    """Decode a record to (transactional id, status); the status is None if the id has expired. Returns None if the
    record cannot be decoded.
    """
    try:
        name = _read_key(key or b"")
        return name, None if value is None else _read_value(value)
    except (struct.error, ValueError, IndexError, MalformedFrame):
        return None


def _read_key(data: bytes) -> str:
    """Return the transactional id in a key. Raises ValueError or struct.error."""
    version, size = struct.unpack_from(">hh", data)
    if version != 0 or size < 0 or len(data) != 4 + size:
        raise ValueError("the key does not hold a transactional id")
    return data[4:].decode()


def _read_value(data: bytes) -> Status:
    """Return the status in a value. Raises ValueError, struct.error, IndexError or MalformedFrame if it is damaged."""
    version, producer_id, epoch, _, number = _HEAD.unpack_from(data)
    if not 0 <= version <= _NEWEST or not 0 <= number < len(STATES):
        raise ValueError("the version of the record or its state is not known")
    read = _partitions if version else _old_partitions
    return Status(STATES[number], producer_id, epoch, frozenset(read(data, _HEAD.size)))


def _partitions(data: bytes, position: int) -> list[TopicPartition]:
    """Decode the partitions of a value from version 1 on, which begin at `position`: compact arrays, with tagged fields
    after each topic. Raises ValueError, IndexError or MalformedFrame if they are damaged.
    """
    count, position = read_uvarint(data, position)
    found: list[TopicPartition] = []
    for _ in range(max(0, count - 1)):
        size, position = read_uvarint(data, position)
        if not 0 < size <= len(data):
            raise ValueError("a name is empty")
        name = data[position : position + size - 1].decode()
        position += size - 1
        length, position = read_uvarint(data, position)
        found += _numbers(data, position, name, length - 1)
        position = _skip_tags(data, position + 4 * (length - 1))
    return found


def _old_partitions(data: bytes, position: int) -> list[TopicPartition]:
    """Decode the partitions of a value of version 0, which begin at `position`: arrays with 32-bit lengths. Raises
    ValueError or struct.error if they are damaged.
    """
    (count,) = struct.unpack_from(">i", data, position)
    position += 4
    found: list[TopicPartition] = []
    for _ in range(max(0, count)):
        (size,) = struct.unpack_from(">h", data, position)
        if size < 0:
            raise ValueError("a name is empty")
        name = data[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (length,) = struct.unpack_from(">i", data, position)
        found += _numbers(data, position + 4, name, length)
        position += 4 + 4 * length
    return found


def _numbers(data: bytes, position: int, name: str, length: int) -> list[TopicPartition]:
    """Decode `length` partition numbers of topic `name` that begin at `position`. Raises ValueError if there are
    fewer.
    """
    if not 0 <= length <= (len(data) - position) // 4:
        raise ValueError("the count of partitions is larger than the bytes left allow")
    return [TopicPartition(name, each) for each in struct.unpack_from(f">{length}i", data, position)]


def _skip_tags(data: bytes, position: int) -> int:
    """Return the position after the tagged fields that begin at `position`. Raises ValueError, IndexError or
    MalformedFrame if they are damaged.
    """
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
    if position > len(data):
        raise ValueError("the value ends within its tagged fields")
    return position
