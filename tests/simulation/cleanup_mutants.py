"""The bank of bugs, in retention and compaction: what goes too soon, too much, or in the wrong place.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from fencepost.protocol.raw_records import raw_records
from fencepost.protocol.records import DECOMPRESSED_LIMIT_BYTES, payload_of
from fencepost.storage.cleaning import compaction, retention
from fencepost.storage.cleaning.compaction_rules import AbortedSpans, KeyMap, name_of
from simulation.planting import _around, around, breaks, mutant, replaced


@mutant
@breaks("settings.md: Oldest segments are deleted while a partition is larger")
def retention_by_size_goes_below_its_limit(stack: ExitStack) -> None:
    def wrapper(new_start: Any) -> Any:
        def start(segments: Any, start_offset: int, bound: int, tail_bytes: int, now_ms: int, settings: Any) -> Any:
            least = max(-1, settings.retention_bytes // 2)
            return new_start(
                segments, start_offset, bound, tail_bytes, now_ms, replace(settings, retention_bytes=least)
            )

        return start

    around(stack, retention.new_start, wrapper)


@mutant
@breaks("settings.md: Records that arrived so long ago are deleted")
def retention_goes_by_the_oldest_record_of_a_segment(stack: ExitStack) -> None:
    def wrapper(new_start: Any) -> Any:
        def start(segments: Any, *more: Any) -> Any:
            return new_start([state._replace(last_age_ms=state.first_age_ms) for state in segments], *more)

        return start

    around(stack, retention.new_start, wrapper)


@mutant
@breaks("guarantees.md: compaction loses the latest value of a key")
def compaction_drops_the_newest_record_of_a_key(stack: ExitStack) -> None:
    def wrapper(add: Any) -> Any:
        def added(self: Any, batch: Any) -> bool:
            before = dict(self.offsets)
            has_room: bool = add(self, batch)
            for key, offset in self.offsets.items():
                if before.get(key) != offset:
                    self.offsets[key] = offset + 1
            return has_room

        return added

    around(stack, KeyMap.add, wrapper)


@mutant
@breaks("guarantees.md: compaction loses the latest value of a key")
def compaction_lets_aborted_records_replace_committed_ones(stack: ExitStack) -> None:
    _around(stack, compaction, "KeyMap", lambda make: lambda aborted, most_keys: make(AbortedSpans([]), most_keys))


@mutant
@breaks("guarantees.md: aborted read (G1a)")
def compaction_keeps_aborted_records_as_if_they_were_committed(stack: ExitStack) -> None:
    def wrapper(run: Any) -> Any:
        def ran(self: Any) -> Any:
            self._find_aborted = list
            return run(self)

        return ran

    around(stack, compaction.Compaction._run, wrapper)


@mutant
@breaks("guarantees.md: compaction loses the latest value of a key")
def compaction_goes_above_the_last_stable_offset(stack: ExitStack) -> None:
    def wrapper(cleanable: Any) -> Any:
        return lambda one, bound, now_ms: cleanable(one, one.checkpointed_offset, now_ms)

    around(stack, compaction.cleanable, wrapper)


@mutant
@breaks("guarantees.md: resurrected data after DeleteRecords, retention, compaction")
def compaction_lets_tombstones_replace_nothing(stack: ExitStack) -> None:
    def add(self: Any, batch: Any) -> bool:
        if not batch.is_control and not self._aborted.cover(batch):
            for record in raw_records(batch, payload_of(batch, DECOMPRESSED_LIMIT_BYTES)):
                if record.key is not None and not record.is_tombstone:
                    self.offsets[name_of(record.key)] = record.offset
        return True

    replaced(stack, KeyMap.add, add)
