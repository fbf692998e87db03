"""The records of a consumer group in __consumer_offsets, in Kafka's formats: keys 3 to 8 and 16. Pure.

A group's state is the newest record of each key. A Change is one record, or with no value its tombstone; what a group
does is a list of changes, and a restart applies the same changes again. All values have version 0. Values with
key 4, which Kafka wrote before 4.1, are ignored, as Kafka 4.3 does; it only writes tombstones for that key.
Sources: Kafka's ConsumerGroup*Key.json, ConsumerGroup*Value.json, GroupCoordinatorRecordHelpers; docs/formats.md.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ....protocol.primitives import uvarint
from ....protocol.record_fields import INT8, INT32, INT64, NO_TAGS, Reader, UnreadableRecord, numbers, tag, text, texts
from ..assigned.records import Layout
from ..group_records import AGE_TAG
from ..targets import Target, TargetEpoch, TopicId, read_target, read_target_epoch, write_target, write_target_epoch

Held = Mapping[TopicId, Mapping[int, int]]
"""Partitions of a member, each with the epoch in which it got it, by topic."""

NONE_HELD: Held = {}


class Kind(IntEnum):
    """The kind of a record: the number that its key begins with."""

    CLASSIC_GROUP = 2  # only as a tombstone: the classic group of this id ends (group_records.py)
    EPOCH = 3
    PARTITION_METADATA = 4
    SUBSCRIPTION = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


KINDS = frozenset(Kind) - {Kind.CLASSIC_GROUP}
OF_THE_GROUP = frozenset({Kind.CLASSIC_GROUP, Kind.EPOCH, Kind.PARTITION_METADATA, Kind.TARGET_EPOCH})
"""Kinds with one record for each group. The others have one for each member or regular expression."""


class MemberState(IntEnum):
    """How far a member has come on the way to its target assignment."""

    STABLE = 0
    UNREVOKED = 1  # it has to give up partitions first
    UNRELEASED = 2  # it waits for partitions that others have to give up


class GroupEpoch(NamedTuple):
    """The epoch of the group, which grows with each change. metadata_hash: of the topics that the group subscribes to.

    empty_since_ms: since when the group has no members, on the clock of the data directory, which runs only while the
    broker does. Kafka has no such field.
    """

    epoch: int
    metadata_hash: int = 0
    empty_since_ms: int | None = None


class Classic(NamedTuple):
    """What a member of the classic protocol has sent. protocols: (name, metadata) of each, in the member's order of
    preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(NamedTuple):
    """What a member reports about itself. topics: sorted. regex: empty if it subscribes to no regular expression."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: Classic | None = None


class Current(NamedTuple):
    """A member's epoch and partitions. assigned: those that it may read. revoking: those that it must give up but may
    still own.
    """

    epoch: int
    previous_epoch: int
    state: MemberState = MemberState.STABLE
    assigned: Held = NONE_HELD
    revoking: Held = NONE_HELD


class Resolved(NamedTuple):
    """The topics that a regular expression matched. version: of the list of topics when they were matched; see
    TopicView.
    """

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


Value = GroupEpoch | Subscription | TargetEpoch | Target | Current | Resolved


class Change(NamedTuple):
    """A record. name: the member's id, or the regular expression. value: None for a tombstone."""

    kind: Kind
    name: str
    value: Value | None


# ---- writing -------------------------------------------------------------------------------------------------


def _write_epoch(found: GroupEpoch) -> bytes:
    """Encode the value of a GroupEpoch record, in Kafka's format."""
    tags = [tag(0, INT64.pack(found.metadata_hash))] if found.metadata_hash else []
    if found.empty_since_ms is not None:
        tags.append(tag(AGE_TAG, INT64.pack(found.empty_since_ms)))
    return INT32.pack(found.epoch) + uvarint(len(tags)) + b"".join(tags)


def _write_subscription(found: Subscription) -> bytes:
    """Encode the value of a member's subscription record, in Kafka's format."""
    return b"".join(
        (
            text(found.instance_id),
            text(found.rack_id),
            text(found.client_id),
            text(found.client_host),
            texts(found.topics),
            text(found.regex),
            INT32.pack(found.rebalance_timeout_ms),
            text(found.assignor),
            b"\x01" + tag(0, _write_classic(found.classic)),
        )
    )


def _write_classic(found: Classic | None) -> bytes:
    """Encode what a classic member has sent, as a nullable struct: the byte 0 for None, else 1 and the struct. Kafka
    writes the 0 too.
    """
    if found is None:
        return b"\x00"
    protocols = (text(name) + uvarint(len(metadata) + 1) + metadata + NO_TAGS for name, metadata in found.protocols)
    head = b"\x01" + INT32.pack(found.session_timeout_ms) + uvarint(len(found.protocols) + 1)
    return head + b"".join(protocols) + NO_TAGS


def _write_current(found: Current) -> bytes:
    """Encode the value of a record of a member's current assignment, in Kafka's format."""
    head = INT32.pack(found.epoch) + INT32.pack(found.previous_epoch) + INT8.pack(found.state)
    return head + _encode_held(found.assigned) + _encode_held(found.revoking) + NO_TAGS


def _encode_held(held: Held) -> bytes:
    """Encode the partitions of a member, with the epoch at which it got each."""
    parts = [uvarint(len(held) + 1)]
    for topic_id, epochs in held.items():
        partitions = sorted(epochs)
        parts += topic_id, numbers(partitions), b"\x01", tag(0, numbers([epochs[each] for each in partitions]))
    return b"".join(parts)


def _write_resolved(found: Resolved) -> bytes:
    """Encode the value of a record of the topics that a regular expression matches, in Kafka's format."""
    return texts(found.topics) + INT64.pack(found.version) + INT64.pack(found.resolved_ms) + NO_TAGS


_WRITERS: Mapping[Kind, Callable[[Any], bytes]] = {
    Kind.EPOCH: _write_epoch,
    Kind.SUBSCRIPTION: _write_subscription,
    Kind.TARGET_EPOCH: write_target_epoch,
    Kind.TARGET: write_target,
    Kind.CURRENT: _write_current,
    Kind.REGEX: _write_resolved,
}


# ---- reading -------------------------------------------------------------------------------------------------


def _read_epoch(reader: Reader) -> GroupEpoch:
    """Decode the value of a GroupEpoch record."""
    epoch, tags = reader.number(INT32), reader.tags()
    empty_since_ms = tags[AGE_TAG].number(INT64) if AGE_TAG in tags else None
    return GroupEpoch(epoch, tags[0].number(INT64) if 0 in tags else 0, empty_since_ms)


def _read_subscription(reader: Reader) -> Subscription:
    """Decode the value of a member's subscription record."""
    instance_id, rack_id, client_id, client_host = reader.nullable(), reader.nullable(), reader.text(), reader.text()
    topics, regex, timeout_ms = reader.texts(), reader.nullable(), reader.number(INT32)
    assignor, tags = reader.nullable(), reader.tags()
    classic = _read_classic(tags[0]) if 0 in tags else None
    return Subscription(instance_id, rack_id, client_id, client_host, topics, regex, timeout_ms, assignor, classic)


def _read_classic(reader: Reader) -> Classic | None:
    """Decode the nullable struct that contains what a classic member has sent. Returns None if it is null."""
    if reader.uvarint() == 0:
        return None
    timeout_ms, protocols = reader.number(INT32), []
    for _ in range(reader.count()):
        protocols.append((reader.text(), reader.bytes(reader.uvarint() - 1)))
        reader.tags()
    reader.tags()
    return Classic(timeout_ms, tuple(protocols))


def _read_current(reader: Reader) -> Current:
    """Decode the value of a record of a member's current assignment."""
    epoch, previous_epoch, state = reader.number(INT32), reader.number(INT32), MemberState(reader.number(INT8))
    found = Current(epoch, previous_epoch, state, _read_held(reader, epoch), _read_held(reader, epoch))
    reader.tags()
    return found


def _read_held(reader: Reader, epoch: int) -> Held:
    """Decode the partitions of a member. Returns, by topic id, each partition with the epoch at which the member got
    it.

    Kafka before 4.3 wrote no epochs of partitions; then `epoch`, the member's own, is used.
    """
    found = {}
    for _ in range(reader.count()):
        topic_id, partitions = reader.bytes(16), reader.numbers()
        tags = reader.tags()
        epochs = tags[0].numbers() if 0 in tags else []
        if len(epochs) != len(partitions):
            epochs = [max(epoch, 0)] * len(partitions)
        found[topic_id] = dict(zip(partitions, epochs, strict=True))
    return found


def _read_resolved(reader: Reader) -> Resolved:
    """Decode the value of a record of the topics that a regular expression matches."""
    found = Resolved(reader.texts(), reader.number(INT64), reader.number(INT64))
    reader.tags()
    return found


_READERS: Mapping[Kind, Callable[[Reader], Value]] = {
    Kind.EPOCH: _read_epoch,
    Kind.SUBSCRIPTION: _read_subscription,
    Kind.TARGET_EPOCH: read_target_epoch,
    Kind.TARGET: read_target,
    Kind.CURRENT: _read_current,
    Kind.REGEX: _read_resolved,
}


# ---- records -------------------------------------------------------------------------------------------------

_LAYOUT = Layout("consumer group", Kind, OF_THE_GROUP, Change, _WRITERS, _READERS)
key, record = _LAYOUT.key, _LAYOUT.record


def read(record_key: bytes, value: bytes | None) -> tuple[str, Change]:
    """Decode a record. Returns the group's id and the change. Raises UnreadableRecord."""
    group_id, change = _LAYOUT.read(record_key, value)
    if change.kind is Kind.CLASSIC_GROUP:
        raise UnreadableRecord("the key is that of a classic group")
    return group_id, change
