"""The classes that Spark calls to read: for a batch query, for a stream, and in the tasks of both.

The rules: planning runs in a process of the driver and reading in others, so a task knows only its range. The end of a
batch never changes once it was returned, and it is complete without the memory of this process: see `offsets`. Spark
does not document the order of its calls, so nothing depends on `commit` or `stop`. Source: pyspark's
DataSourceStreamReader; Spark's KafkaMicroBatchStream.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ...client.values import TopicPartition
from ...protocol.errors import KafkaError
from ..client_thread import cluster_for, run
from ..hints import add_hint
from ..options import LIMITS, SourceOptions
from . import survey
from .blocked_reads import BlockedPartitions, log_blockers
from .committing import commit_to_group
from .offsets import (
    MARK,
    NO_LIMITS,
    Json,
    Limits,
    Position,
    Range,
    Seen,
    begins_of,
    from_json,
    initial,
    nest,
    new_records,
    plan_batch,
    ranges,
    split,
    to_json,
    up_to,
)
from .reading import chunks, handle_loss
from .rows import arrow_schema_of, to_batch, wanted_columns

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    ADMISSION = True
except ImportError:  # Spark 4.1 has no admission limits
    ADMISSION = False

log = logging.getLogger("fencepost.spark")
PLANNING_S = 120
IDLE_S = 0.05
"""The least time between two requests for the end of the log while there are no new records: Spark asks every 10 ms."""


class Reader:
    """The base class of both readers. Spark pickles it for the tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._was_noted = False

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the rows of one range as Arrow record batches. Runs in a task. Raises DataLost and the client's
        errors.
        """
        whole = getattr(partition, "value", None)
        if not isinstance(whole, Range):  # Spark also makes a task for an empty batch
            return
        schema = arrow_schema_of(self._schema)
        with add_hint():
            for columns in chunks(self._options, whole, wanted_columns(self._schema)):
                yield to_batch(columns, whole.topic, whole.partition, schema)

    def _look(self, expected: Sequence[str] = ()) -> Seen:
        """Return the selected topics as they are now; at the first call, log the notes about options. expected: topics
        to wait for if they are missing.
        """
        seen = run(survey.look(cluster_for(self._options), self._options, expected), PLANNING_S)
        if not self._was_noted:
            self._was_noted = True
            for note in self._options.notes:
                log.warning("%s", note)
            unnamed = sorted({tp.topic for tp in seen.logs} - set(seen.ids))
            if unnamed:
                log.warning(
                    "the broker has no topic ids: it may stay unnoticed that one of %s is deleted and created again",
                    ", ".join(unnamed),
                )
        return seen

    def _resolve(self, seen: Seen, which: str) -> dict[TopicPartition, int]:
        """Return the offset of each partition that an option means. which: "startingOffsets" or "endingOffsets"."""
        bound = self._options.starting if which == "startingOffsets" else self._options.ending
        resolving = survey.resolve(cluster_for(self._options), self._options, bound, seen, which)
        return dict(run(resolving, PLANNING_S))

    def _split(self, found: list[Range]) -> list[InputPartition]:
        """Return the Spark partitions in which these ranges are read, split as the options demand."""
        options = self._options
        density = None
        if options.max_bytes_each is not None:
            density = self._densities(survey.starts_of(found))
        parts = split(
            found,
            min_partitions=options.min_partitions,
            max_records=options.max_records_each,
            max_bytes=options.max_bytes_each,
            density=density,
        )
        return [InputPartition(each) for each in parts]

    def _densities(self, begins: dict[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Return bytes of a record for each partition, sampled at these offsets."""
        found = run(survey.densities(cluster_for(self._options), self._options, begins), PLANNING_S)
        return survey.spread(found, begins)

    def _handle_losses(self, lost: Sequence[str]) -> None:
        """Raise DataLost for these losses, or only log them if failOnDataLoss is false."""
        if self._options.fail_on_loss and len(lost) > 1:
            handle_loss(self._options, f"{lost[0]} (and {len(lost) - 1} more)")
        for text in lost:
            handle_loss(self._options, text)


class BatchReader(Reader, DataSourceReader):
    """Reads a range of each partition. The ranges are determined when Spark asks for the tasks."""

    @add_hint()
    def partitions(self) -> list[InputPartition]:
        """Return one task for each range. Raises UnknownTopicError, DataLost and others."""
        seen = self._look(self._options.selection.named)
        start = Position(self._resolve(seen, "startingOffsets"), seen.ids)
        end = Position(self._resolve(seen, "endingOffsets"), seen.ids)
        found, lost = ranges(start, end, seen)
        self._handle_losses(lost)
        return self._split(found)


class _Stream(Reader, DataSourceStreamReader):
    """Plans and reads micro-batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: Json | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._seen: Seen | None = None
        self._at: Position | None = None
        self._blocked = BlockedPartitions()
        self._planned_s = -float("inf")  # when the last batch was planned
        self._idle_s = -float("inf")  # when there were last no new records

    @add_hint()
    def initialOffset(self) -> Json:
        """Return where a new query starts, as JSON. It is the same at every call; a batch that was planned does not
        depend on it.
        """
        if self._initial is None:
            seen = self._look(self._options.selection.named)
            self._initial = to_json(initial(self._resolve(seen, "startingOffsets"), seen.ids))
        return self._initial

    @add_hint()
    def prepareForTriggerAvailableNow(self) -> None:
        """Set the end of this run (trigger availableNow) to the current ends of the logs."""
        seen = self._look(self._options.selection.named)
        self._target = {tp: each.end for tp, each in seen.logs.items()}
        waiting = [tp for tp, each in seen.logs.items() if each.end < each.high_watermark]
        if waiting:
            log.warning("this run ends where transactions are still open: %s", ", ".join(map(str, sorted(waiting))))
            run(log_blockers(self._options.connection, waiting), PLANNING_S)

    @add_hint()
    def plan(self, start: Json, *, is_limited: bool = True) -> Json:
        """Return the end of the next batch as JSON: `start` itself if there is nothing new. is_limited: obey the
        options that limit a batch. After a call without new records it waits a moment. Raises DataLost and others.
        """
        position = from_json(start)
        if time.monotonic() - self._idle_s < IDLE_S:
            time.sleep(IDLE_S)
        seen = self._seen = self._look(sorted({tp.topic for tp in position.offsets}))
        self._at = position
        self._log_blockers(seen)
        if self._target is not None:
            seen = up_to(seen, self._target | {tp: at for tp, at in position.offsets.items() if tp not in self._target})
        if is_limited and self._is_too_little(position, seen):
            return start
        limits, density = NO_LIMITS, None
        if is_limited:
            limits = Limits(self._options.max_offsets, self._options.max_bytes)
        if limits.payload_bytes is not None:
            density = self._densities(begins_of(position, seen)[0])
        end, lost = plan_batch(position, seen, limits, density)
        self._handle_losses(lost)
        if end is position:
            self._idle_s = time.monotonic()
            return start
        self._planned_s = time.monotonic()
        self._at = end
        return to_json(end)

    def _is_too_little(self, position: Position, seen: Seen) -> bool:
        """Return whether to wait for more records, as minOffsetsPerTrigger demands. Always false in a run with a fixed
        end.
        """
        least = self._options.min_offsets
        if least is None or self._target is not None or position.is_initial:
            return False
        has_waited_ms = (time.monotonic() - self._planned_s) * 1000
        return new_records(position, seen) < least and has_waited_ms < self._options.max_delay_ms

    def _log_blockers(self, seen: Seen) -> None:
        """Log which transactions block partitions of this query, if they have done so for some seconds."""
        if self._options.reads_committed:
            due = self._blocked.due(seen, time.monotonic() * 1000)
            if due:
                run(log_blockers(self._options.connection, due), PLANNING_S)

    def reportLatestOffset(self) -> Json | None:
        """Return for the query's progress, as JSON: the high watermarks, and the query's lag in records to them and to
        the readable ends. None before the first batch.
        """
        seen, at = self._seen, self._at
        if seen is None or at is None:
            return None
        logs = {tp: each for tp, each in seen.logs.items() if tp in at.offsets}
        own = {
            "behindHighWatermark": sum(max(0, each.high_watermark - at.offsets[tp]) for tp, each in logs.items()),
            "behindReadable": sum(max(0, each.end - at.offsets[tp]) for tp, each in logs.items()),
            "readable": nest({tp: each.end for tp, each in seen.logs.items()}),
        }
        return {MARK: own, **nest({tp: each.high_watermark for tp, each in seen.logs.items()})}

    @add_hint()
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Return the tasks of a batch: the same rows at every call. Raises DataLost and others."""
        if start == end:
            return []
        before, after = from_json(start), from_json(end)
        found, lost = ranges(before, after, self._look(sorted({tp.topic for tp in after.offsets})))
        self._handle_losses(lost)
        return self._split(found)

    def commit(self, end: Json) -> None:
        """Commit to the group of the option commitGroup, for tools that show lag. Spark keeps the offsets itself."""
        group = self._options.commit_group
        if group is None:
            return
        try:
            run(commit_to_group(cluster_for(self._options), group, from_json(end).offsets), PLANNING_S)
        except KafkaError as error:
            log.warning("the offsets were not committed to group %r: %s", group, error)


if ADMISSION:

    class StreamReader(_Stream, SupportsTriggerAvailableNow):
        """With limits, from Spark 4.2 on."""

        def latestOffset(self, start: Json, limit: "ReadLimit") -> Json:
            """Return the end of the next batch: see plan. limit: ReadAllAvailable if the trigger demands no limit."""
            return self.plan(start, is_limited=self._has_no_limit() or not isinstance(limit, ReadAllAvailable))

        def _has_no_limit(self) -> bool:
            """Return whether no option limits a batch."""
            return isinstance(self.getDefaultReadLimit(), ReadAllAvailable)

        def getDefaultReadLimit(self) -> "ReadLimit":
            """Return one of the limits that are set. Then Spark does not pass ReadAllAvailable to latestOffset, which
            takes all limits from the options.
            """
            options = self._options
            if options.max_offsets is not None:
                return ReadMaxRows(options.max_offsets)
            if options.max_bytes is not None:
                return ReadMaxBytes(options.max_bytes)
            if options.min_offsets is not None:
                return ReadMinRows(options.min_offsets)
            return ReadAllAvailable()

else:

    class StreamReader(_Stream):  # type: ignore[no-redef]
        """Without limits: Spark 4.1 does not even pass the start of a batch."""

        def __init__(self, options: SourceOptions, schema: StructType) -> None:
            limits = zip(LIMITS, (options.max_offsets, options.min_offsets, options.max_bytes), strict=False)
            left_out = [
                f"option {name!r} needs Spark 4.2 and is ignored: a batch reads all available records"
                for name, limit in limits
                if limit is not None
            ]
            super().__init__(replace(options, notes=(*options.notes, *left_out)), schema)

        def latestOffset(self) -> Json:  # type: ignore[override]
            """Return the end of the next batch: see plan. After a restart the query's position is unknown here; then
            the ends of the logs are returned, and partitions() finds lost records.
            """
            if self._at is not None or self._initial is not None:
                return self.plan(to_json(self._at) if self._at is not None else self.initialOffset(), is_limited=False)
            seen = self._look()
            return to_json(Position({tp: each.end for tp, each in seen.logs.items()}, seen.ids))

        def partitions(self, start: Json, end: Json) -> list[InputPartition]:
            """Return the tasks of a batch, and remember its end as the query's position."""
            self._at = from_json(end)
            return super().partitions(start, end)
