"""The records of a share group in __consumer_offsets, in Kafka's formats: keys 10 to 15. Pure.

A group's state is the newest record of each key. A Change is one record, or with no value its tombstone; what a group
does is a list of changes, and a restart applies the same changes again. All values have version 0.
Sources: Kafka's ShareGroup*Key.json, ShareGroup*Value.json of 4.3, GroupCoordinatorRecordHelpers; docs/formats.md.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ....protocol.primitives import uvarint
from ....protocol.record_fields import INT8, INT32, INT64, NO_TAGS, Reader, numbers, partitions, text, texts
from ..assigned.records import Layout
from ..targets import (
    NOTHING,
    Partitions,
    Target,
    TargetEpoch,
    TopicId,
    read_target,
    read_target_epoch,
    write_target,
    write_target_epoch,
)

STABLE = 0  # the only state of a member: it gets its whole target assignment with its next heartbeat


class Kind(IntEnum):
    """The kind of a record: the number that its key begins with."""

    MEMBER = 10
    EPOCH = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATE_PARTITIONS = 15


KINDS = frozenset(Kind)
OF_THE_GROUP = frozenset({Kind.EPOCH, Kind.TARGET_EPOCH, Kind.STATE_PARTITIONS})
"""Kinds with one record for each group. The others have one for each member."""


class GroupEpoch(NamedTuple):
    """The epoch of the group, which grows with each change. metadata_hash: of the subscribed topics and their partition
    counts when the epoch began (assigned/topic_view.py).
    """

    epoch: int
    metadata_hash: int = 0


class Member(NamedTuple):
    """What a member reports about itself. topics: sorted."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()


class Current(NamedTuple):
    """A member's epoch and assignment. previous_epoch: a heartbeat with it is accepted, too, because the answer with
    the present epoch may have been lost.
    """

    epoch: int
    previous_epoch: int
    assigned: Partitions = NOTHING
    state: int = STABLE


class SharedTopic(NamedTuple):
    """A topic's name, and those of its partitions that have a share partition, or are to get one."""

    name: str
    partitions: frozenset[int]


NO_TOPICS: Mapping[TopicId, SharedTopic] = {}
NO_NAMES: Mapping[TopicId, str] = {}


class StatePartitions(NamedTuple):
    """The share partitions of a group, by topic. Members get records only of the initialized ones.

    initializing: still to be initialized. deleting: topics, with their names, whose share partitions Kafka had begun to
    delete; this broker deletes at once.
    """

    initialized: Mapping[TopicId, SharedTopic] = NO_TOPICS
    initializing: Mapping[TopicId, SharedTopic] = NO_TOPICS
    deleting: Mapping[TopicId, str] = NO_NAMES


Value = GroupEpoch | Member | TargetEpoch | Target | Current | StatePartitions


class Change(NamedTuple):
    """A record. name: the member's id; empty for kinds with one record in a group. value: None for a tombstone."""

    kind: Kind
    name: str
    value: Value | None


# ---- writing -------------------------------------------------------------------------------------------------


def _write_member(found: Member) -> bytes:
    """Encode the value of a member's record, in Kafka's format."""
    return text(found.rack_id) + text(found.client_id) + text(found.client_host) + texts(found.topics) + NO_TAGS


def _write_epoch(found: GroupEpoch) -> bytes:
    """Encode the value of a GroupEpoch record, in Kafka's format."""
    return INT32.pack(found.epoch) + INT64.pack(found.metadata_hash) + NO_TAGS


def _write_current(found: Current) -> bytes:
    """Encode the value of a record of a member's current assignment, in Kafka's format."""
    head = INT32.pack(found.epoch) + INT32.pack(found.previous_epoch) + INT8.pack(found.state)
    return head + partitions(found.assigned) + NO_TAGS


def _write_state_partitions(found: StatePartitions) -> bytes:
    """Encode the value of the record of a group's share partitions, in Kafka's format."""
    deleting = (topic_id + text(name) + NO_TAGS for topic_id, name in found.deleting.items())
    return b"".join(
        (
            _write_topics(found.initializing),
            _write_topics(found.initialized),
            uvarint(len(found.deleting) + 1),
            *deleting,
            NO_TAGS,
        )
    )


def _write_topics(topics: Mapping[TopicId, SharedTopic]) -> bytes:
    """Encode topics with their partitions."""
    written = (
        topic_id + text(topic.name) + numbers(sorted(topic.partitions)) + NO_TAGS for topic_id, topic in topics.items()
    )
    return uvarint(len(topics) + 1) + b"".join(written)


_WRITERS: Mapping[Kind, Callable[[Any], bytes]] = {
    Kind.MEMBER: _write_member,
    Kind.EPOCH: _write_epoch,
    Kind.TARGET_EPOCH: write_target_epoch,
    Kind.TARGET: write_target,
    Kind.CURRENT: _write_current,
    Kind.STATE_PARTITIONS: _write_state_partitions,
}


# ---- reading -------------------------------------------------------------------------------------------------


def _read_member(reader: Reader) -> Member:
    """Decode the value of a member's record."""
    found = Member(reader.nullable(), reader.text(), reader.text(), reader.texts())
    reader.tags()
    return found


def _read_epoch(reader: Reader) -> GroupEpoch:
    """Decode the value of a GroupEpoch record."""
    found = GroupEpoch(reader.number(INT32), reader.number(INT64))
    reader.tags()
    return found


def _read_current(reader: Reader) -> Current:
    """Decode the value of a record of a member's current assignment."""
    epoch, previous_epoch, state = reader.number(INT32), reader.number(INT32), reader.number(INT8)
    found = Current(epoch, previous_epoch, reader.partitions(), state)
    reader.tags()
    return found


def _read_state_partitions(reader: Reader) -> StatePartitions:
    """Decode the value of the record of a group's share partitions."""
    initializing, initialized, deleting = _read_topics(reader), _read_topics(reader), {}
    for _ in range(reader.count()):
        topic_id = reader.bytes(16)
        deleting[topic_id] = reader.text()
        reader.tags()
    reader.tags()
    return StatePartitions(initialized, initializing, deleting)


def _read_topics(reader: Reader) -> dict[TopicId, SharedTopic]:
    """Decode topics with their partitions, by topic id."""
    found = {}
    for _ in range(reader.count()):
        topic_id = reader.bytes(16)
        found[topic_id] = SharedTopic(reader.text(), frozenset(reader.numbers()))
        reader.tags()
    return found


_READERS: Mapping[Kind, Callable[[Reader], Value]] = {
    Kind.MEMBER: _read_member,
    Kind.EPOCH: _read_epoch,
    Kind.TARGET_EPOCH: read_target_epoch,
    Kind.TARGET: read_target,
    Kind.CURRENT: _read_current,
    Kind.STATE_PARTITIONS: _read_state_partitions,
}


# ---- records -------------------------------------------------------------------------------------------------

_LAYOUT = Layout("share group", Kind, OF_THE_GROUP, Change, _WRITERS, _READERS)
key, record, read = _LAYOUT.key, _LAYOUT.record, _LAYOUT.read
