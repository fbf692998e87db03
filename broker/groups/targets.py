"""Target assignments: which partitions each member is to read, and how that is recorded. Pure.

Consumer groups (consumer/records.py) and share groups (share/records.py) have these records in common.
Sources: Kafka's ConsumerGroupTargetAssignment*Value.json, ShareGroupTargetAssignment*Value.json.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.record_fields import INT32, INT64, NO_TAGS, Reader, partitions, tag

TopicId = bytes
Partitions = Mapping[TopicId, frozenset[int]]
NOTHING: Partitions = {}


class TargetEpoch(NamedTuple):
    """The group's epoch for which the target assignment was made. made_ms: the wall time at which it was made."""

    epoch: int
    made_ms: int = 0


class Target(NamedTuple):
    """The partitions that a member is to read: its target assignment."""

    partitions: Partitions = NOTHING


def write_target_epoch(found: TargetEpoch) -> bytes:
    """Encode the value of the record of the target assignment's epoch."""
    tags = b"\x01" + tag(0, INT64.pack(found.made_ms)) if found.made_ms else NO_TAGS
    return INT32.pack(found.epoch) + tags


def write_target(found: Target) -> bytes:
    """Encode the value of a target assignment's record."""
    return partitions(found.partitions) + NO_TAGS


def read_target_epoch(reader: Reader) -> TargetEpoch:
    """Decode the value of the record of the target assignment's epoch."""
    epoch, tags = reader.number(INT32), reader.tags()
    return TargetEpoch(epoch, tags[0].number(INT64) if 0 in tags else 0)


def read_target(reader: Reader) -> Target:
    """Decode the value of a target assignment's record."""
    found = Target(reader.partitions())
    reader.tags()
    return found
