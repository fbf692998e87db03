"""What a cutover leaves on the target, so that one that crashed is finished or taken back by the next. Pure.

A record in the topic of the map, by the mirror's name. It is written before writes are refused, and says which refusals
are its own; with the offsets of the groups, in their transaction; before anything is taken back; and at the end. All by
one transactional id: a second cutover of the mirror fences the first, which then touches nothing any more.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ...errors import IllegalStateError
from ...values import OffsetAndMetadata, TopicPartition
from .plan import Barrier

VERSION = 1

MAX_PACKED_BYTES = 900_000
"""A batch of this size fits everywhere: Kafka's default of max.message.bytes is 1,048,588."""

PRODUCER_CONFIG = {"max.request.size": 100 << 20, "compression.type": "gzip"}
"""The settings of the producer that writes the record: with many groups it is large, and compresses well."""

State = Literal["begun", "committed", "undoing", "done"]
STATES = ("begun", "committed", "undoing", "done")


class Carried(NamedTuple):
    """One group in one partition: its source offset, what is committed at the target, and what was there before (None:
    nothing).
    """

    source: int
    target: OffsetAndMetadata
    before: OffsetAndMetadata | None


@dataclass(frozen=True)
class CutoverRecord:
    """The state of a cutover. refused: the topics whose writes it refuses, and nobody before it did.

    ends: of the source's partitions, when nothing was written any more. groups: what is committed, since "committed".
    """

    state: State
    barrier: Barrier
    refused: tuple[str, ...]
    ends: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    groups: Mapping[str, Mapping[TopicPartition, Carried]] = field(
        default_factory=dict[str, Mapping[TopicPartition, Carried]]
    )


def explain_left(record: CutoverRecord | None) -> str | None:
    """Return a line for people that says what the next cutover does first because of this record, which an earlier one
    left on the target; None if there is nothing to do.
    """
    if record is None or record.state == "done":
        return None
    topics = f": {', '.join(record.refused)} may still refuse writes at the source" if record.refused else ""
    done = {
        "begun": "an earlier cutover crashed before it committed; the next one goes on with it",
        "committed": "an earlier cutover crashed after it committed the offsets; the next one finishes it first",
        "undoing": "an earlier cutover was not quite taken back; the next one does that first",
    }[record.state]
    return done + topics


def encode_key(mirror: str) -> bytes:
    """Return the key of the mirror's record. Keys of the map have no `cutover`."""
    return json.dumps({"mirror": mirror, "cutover": VERSION}, separators=(",", ":")).encode()


def is_cutover_key(key: bytes) -> bool:
    """Return whether a record of the map's topic with this key is a cutover's, of any mirror."""
    try:
        found = json.loads(key)
    except ValueError:
        return False
    return isinstance(found, dict) and "cutover" in found


def encode_record(record: CutoverRecord) -> bytes:
    """Return the value of the record."""
    groups = [
        [name, *partition, carried.source, *carried.target[:2], *(carried.before[:2] if carried.before else (None, ""))]
        for name, partitions in sorted(record.groups.items())
        for partition, carried in sorted(partitions.items())
    ]
    kept = {
        "version": VERSION,
        "state": record.state,
        "barrier": record.barrier,
        "refused": list(record.refused),
        "ends": [[*partition, end] for partition, end in sorted(record.ends.items())],
        "groups": groups,
    }
    return json.dumps(kept, separators=(",", ":")).encode()


def packed_size(record: CutoverRecord) -> int:
    """Return about how many bytes the record's batch has, compressed with gzip."""
    return len(zlib.compress(encode_record(record)))


def decode_record(value: bytes) -> CutoverRecord:
    """Return the record that `encode_record` was given. Raises IllegalStateError for anything else."""
    try:
        kept = json.loads(value)
        if kept["version"] != VERSION or kept["state"] not in STATES:
            raise ValueError(f"it has version {kept['version']} and state {kept['state']}")
        return _decode(kept)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IllegalStateError(
            f"the record of a cutover does not parse: {error}", hint="a newer fencepost wrote it: use that one"
        ) from None


def _decode(kept: Mapping[str, Any]) -> CutoverRecord:
    groups: dict[str, dict[TopicPartition, Carried]] = {}
    for name, topic, partition, source, target, metadata, before, before_metadata in kept["groups"]:
        groups.setdefault(name, {})[TopicPartition(topic, partition)] = Carried(
            source,
            OffsetAndMetadata(target, metadata),
            None if before is None else OffsetAndMetadata(before, before_metadata),
        )
    ends = {TopicPartition(topic, partition): end for topic, partition, end in kept["ends"]}
    return CutoverRecord(kept["state"], kept["barrier"], tuple(kept["refused"]), ends, groups)
