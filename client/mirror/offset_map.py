"""The map of offsets: where each mirrored record of a source partition went on the target. Pure.

A run is consecutive on both sides: `count` records from source offset `source` on are at `target` and the following
offsets. An entry has the runs of a span of source offsets, from `first` up to `end` (exclusive); between the runs there
are no committed records (markers, aborted records, what compaction removed).

On the wire an entry is a record of the map's topic, JSON both: the key `{"mirror", "topic", "topic_id", "partition",
"offset"}` with `first` as its offset, the value `{"version": 1, "end": N, "runs": [[source, target, count], …]}`, where
source and target of a run are the distance from the end of the run before; the first source from `first`, the first
target from 0. Keys are written in this order and without spaces, since compaction compares bytes.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import IllegalStateError

VERSION = 1
FULL = 512
"""An entry with this many runs is not written again: the next cycle begins another."""


class Run(NamedTuple):
    """`count` records at consecutive offsets: from `source` on the source, from `target` on the target."""

    source: int
    target: int
    count: int


class EntryKey(NamedTuple):
    """Of which mirror, topic and partition an entry is, and the first source offset that it answers for."""

    mirror: str
    topic: str
    topic_id: bytes
    partition: int
    first: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The runs of the source offsets from the key's `first` up to `end` (exclusive)."""

    end: int
    runs: tuple[Run, ...]


def add_run(runs: list[Run], source: int, target: int, count: int = 1) -> None:
    """Append `count` records to the runs: to the last run if they follow it on both sides. source, target: the offsets
    of the first.
    """
    if runs:
        last = runs[-1]
        if source == last.source + last.count and target == last.target + last.count:
            runs[-1] = Run(last.source, last.target, last.count + count)
            return
    runs.append(Run(source, target, count))


def encode_key(key: EntryKey) -> bytes:
    """Return the key of the record in the map's topic: equal for equal keys."""
    named = {"mirror": key.mirror, "topic": key.topic, "topic_id": key.topic_id.hex()}
    return json.dumps({**named, "partition": key.partition, "offset": key.first}, separators=(",", ":")).encode()


def decode_key(key: bytes) -> EntryKey:
    """Return what `encode_key` was given. Raises IllegalStateError for anything else."""
    try:
        found = json.loads(key)
        topic_id = bytes.fromhex(found["topic_id"])
        return EntryKey(found["mirror"], found["topic"], topic_id, int(found["partition"]), int(found["offset"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IllegalStateError(f"a key in the map of offsets does not parse: {error}") from None


def encode_entry(first: int, entry: Entry) -> bytes:
    """Return the value of the record in the map's topic. first: that of the key."""
    source, target, runs = first, 0, []
    for run in entry.runs:
        runs.append([run.source - source, run.target - target, run.count])
        source, target = run.source + run.count, run.target + run.count
    return json.dumps({"version": VERSION, "end": entry.end, "runs": runs}, separators=(",", ":")).encode()


def decode_entry(first: int, value: bytes) -> Entry:
    """Return the entry that `encode_entry` was given. Raises IllegalStateError for anything else."""
    try:
        found = json.loads(value)
        if found["version"] != VERSION:
            raise ValueError(f"it has version {found['version']}")
        source, target, runs = first, 0, []
        for source_gap, target_gap, count in found["runs"]:
            runs.append(Run(source + source_gap, target + target_gap, count))
            source, target = source + source_gap + count, target + target_gap + count
        return Entry(int(found["end"]), tuple(runs))
    except (ValueError, KeyError, TypeError) as error:
        raise IllegalStateError(f"an entry in the map of offsets does not parse: {error}") from None


class PartitionMap:
    """All entries of one source partition, for lookups."""

    def __init__(self, runs: Iterable[Run]) -> None:
        """runs: of all its entries, in any order. Entries of one partition never overlap."""
        self._runs = sorted(runs)
        self._sources = [run.source for run in self._runs]

    def target_of(self, offset: int) -> int | None:
        """Return where the first mirrored record at or above this source offset is on the target; None if there is
        none, so that the answer is the target's end.
        """
        at = bisect_right(self._sources, offset)
        for run in self._runs[max(0, at - 1) : at]:
            if offset < run.source + run.count:
                return run.target + offset - run.source
        return self._runs[at].target if at < len(self._runs) else None
