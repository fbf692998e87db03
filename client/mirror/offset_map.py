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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import IllegalStateError

VERSION = 1
FULL = 512
"""An entry has at most this many runs; the records after it belong to another one."""


class Run(NamedTuple):
    """`count` records at consecutive offsets: from `source` on the source, from `target` on the target."""

    source: int
    target: int
    count: int  # type: ignore[assignment]  # hides the method of tuples


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
    """Return the value of the record in the map's topic. first: the `first` of the record's key (EntryKey)."""
    source, target, runs = first, 0, list[list[int]]()
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
        source, target, runs = first, 0, list[Run]()
        for source_gap, target_gap, count in found["runs"]:
            runs.append(Run(source + source_gap, target + target_gap, count))
            source, target = source + source_gap + count, target + target_gap + count
        return Entry(int(found["end"]), tuple(runs))
    except (ValueError, KeyError, TypeError) as error:
        raise IllegalStateError(f"an entry in the map of offsets does not parse: {error}") from None


def entries_of(first: int, end: int, runs: Sequence[Run]) -> list[tuple[int, Entry]]:
    """Return the entries for the span from `first` up to `end`, each with its first offset: none has more than FULL
    runs, and the last one is not empty.
    """
    found = list[tuple[int, Entry]]()
    for at in range(0, max(1, len(runs)), FULL):
        begins = first if at == 0 else runs[at].source
        ends = runs[at + FULL].source if at + FULL < len(runs) else end
        found.append((begins, Entry(ends, tuple(runs[at : at + FULL]))))
    return found
