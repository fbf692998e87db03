"""Compaction of one log: a run over its older segments that writes smaller segments, which then replace them.

The loop makes a run, and a worker advances it in slices of a few milliseconds. A run reads only immutable segments, and
writes files of a new generation. The log changes only when it takes the result back on the loop, and a replaced file is
removed only when no checkpoint that is kept names it. A run stays below every offset from which a recovery reads
batches: the end in the checkpoint, the older producer snapshot, and the last stable offset. If there are more keys than
the map can hold, a run ends early, and the next run continues there.
"""

from collections.abc import Callable, Generator, Iterator, Sequence

from ...effects.disk import Buffer
from ...effects.gathering import SLICE_BYTES, write_gathered
from ...protocol import batches
from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from .. import checkpoints
from ..log.index import OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX, IndexGrowth, IndexRow
from ..log.indexes import EVERY_BATCH, load_indexes
from ..log.partition_log import PartitionLog
from ..log.producer_snapshots import KIND, VERSION, Snapshot
from ..log.reads import AbortedLookup, judge_unreadable
from ..log.segment import HIGHEST_RELATIVE_OFFSET, LOG_SUFFIX, TXN_SUFFIX, SegmentDamaged, SegmentState, scan
from ..log.state import LogState
from ..producers import encoding
from ..producers.aborted import TXN_ENTRY, AbortedTransaction, pack
from .compaction_rules import AbortedSpans, KeyMap, Rules

SLICE_MS = 4
MAX_KEYS = 250_000  # about 50 MB of map


def cleanable(log: LogState, bound: int, now_ms: int) -> list[SegmentState]:
    """Return the oldest segments, up to the first that a compaction may not rewrite: the last one, one that reaches
    beyond the offset `bound`, or one younger than min.compaction.lag.ms. now_ms: the store's age.
    """
    found: list[SegmentState] = []
    for state in log.segments[:-1]:
        if state.end_offset > bound or now_ms - state.last_age_ms < log.settings.min_compaction_lag_ms:
            break
        found.append(state)
    return found


def is_due(log: LogState, states: Sequence[SegmentState], now_ms: int) -> bool:
    """Return whether enough was written since the last compaction, by ratio of bytes or by age (Kafka's LogToClean)."""
    dirty = [state for state in states if state.end_offset > log.cleaned_offset]
    if not dirty:
        return False
    dirty_bytes = sum(state.size_bytes for state in dirty)
    total_bytes = sum(state.size_bytes for state in states)
    waited_ms = now_ms - dirty[0].first_age_ms
    return dirty_bytes > log.settings.min_cleanable_dirty_ratio * total_bytes or (
        waited_ms > log.settings.max_compaction_lag_ms
    )


def begin_compaction(
    log: PartitionLog, now_ms: int, monotonic_ms: Callable[[], int], most_keys: int = MAX_KEYS
) -> "Compaction | None":
    """Return a compaction of the log's cleanable segments, ready for run_slice(); None if none is due, one runs
    already, the log is offline, or its cleanup.policy does not compact.

    When the compaction has ended, give it to the log's compacted() or compaction_failed().

    now_ms: the store's age. monotonic_ms: the clock that limits a slice. most_keys: how many keys one run may remember.
    """
    offered = log.offered
    if log.compacting or log.offline is not None or offered is None or not log.settings.compacts:
        return None
    bound = min(log.checkpointed_offset, log.last_stable_offset, offered.snapshot_floor)
    states = cleanable(log, bound, now_ms)
    if not is_due(log, states, now_ms):
        return None
    aborted = log.aborted_between(states[0].base_offset, states[-1].end_offset)
    find = aborted.run if isinstance(aborted, AbortedLookup) else lambda: aborted
    return Compaction(log, states, log.begin_compaction(), log.snapshots.kept, find, monotonic_ms, now_ms, most_keys)


class Compaction:
    """One compaction of one log. Call run_slice() in a worker until `finished`, then PartitionLog.compacted() on the
    loop.
    """

    def __init__(
        self,
        log: LogState,
        states: list[SegmentState],
        generation: int,
        snapshots: Sequence[Snapshot],
        aborted: Callable[[], list[AbortedTransaction]],
        monotonic_ms: Callable[[], int],
        now_ms: int,
        most_keys: int = MAX_KEYS,
    ) -> None:
        """states: the segments to rewrite, the log's first ones. generation: the number that the new segments' file
        names get.

        snapshots: the log's producer snapshots, ascending. aborted: returns the aborted transactions in `states`; may
        block.
        """
        self.states = states
        self.outputs: list[SegmentState] = []
        self.finished = False
        self.generation = generation
        self.end_offset = states[-1].end_offset  # everything below is clean after this run
        self.paths: list[str] = []  # of all files written
        self._log = log
        self._files = log.open_files
        self._settings = log.settings
        self._start_offset = log.released_start
        self._dirty_offset = max(log.cleaned_offset, states[0].base_offset)
        self._snapshots = tuple(snapshots)
        self._find_aborted = aborted
        self._monotonic_ms = monotonic_ms
        self._now_ms = now_ms
        self._most_keys = most_keys
        self._steps: Generator[None, None, None] = self._run()

    def run_slice(self) -> None:
        """Continue for a few milliseconds.

        Raises: KafkaError KAFKA_STORAGE_ERROR, if a segment is damaged (which puts the log offline) or cannot be read
        now (a later run may succeed); DiskFull and OSError from writing.
        """
        until_ms = self._monotonic_ms() + SLICE_MS
        try:
            for _ in self._steps:
                if self._monotonic_ms() >= until_ms:
                    return
        except SegmentDamaged as damage:
            raise judge_unreadable(self._log, damage) from damage
        self.finished = True

    def close(self) -> None:
        """Abandon the compaction: close its files."""
        self._steps.close()

    def _run(self) -> Generator[None, None, None]:
        """Do the whole compaction, as a generator that yields between slices."""
        last_batches, last_epochs = self._last_of_producers()
        aborted = self._find_aborted()
        spans = AbortedSpans(aborted)
        keys = KeyMap(spans, self._most_keys)
        yield from self._map_keys(keys)
        rules = Rules(
            keys.offsets,
            spans,
            start_offset=self._start_offset,
            end_offset=self.end_offset,
            last_batches=last_batches,
            last_epochs=last_epochs,
            now_ms=self._now_ms,
            delete_retention_ms=self._settings.delete_retention_ms,
        )
        yield from self._rewrite(rules, {entry.last_offset: entry for entry in aborted})
        for state in self.outputs:
            self._files.sync(self._path(state, LOG_SUFFIX))
            yield
        self._files.sync_all([], [self._log.directory])

    def _map_keys(self, keys: KeyMap) -> Iterator[None]:
        """Note the latest offset of each key in the segments that are not compacted yet. If the map of keys is full,
        the compaction ends before the first batch that does not fit. Yields after each batch, so that a slice can end
        there.
        """
        for number, state in enumerate(self.states):
            if state.end_offset <= self._dirty_offset:
                continue
            for batch in self._batches(number, self._dirty_offset):
                if not keys.add(batch):
                    self.end_offset = batch.base_offset
                    self.states = self.states[: number + 1]
                    return
                yield

    def _batches(self, number: int, offset: int) -> Iterator[Batch]:
        """Yield the batches of one segment from `offset` on, with their checksums checked. Raises SegmentDamaged;
        KafkaError KAFKA_STORAGE_ERROR if it cannot be read now.
        """
        state = self.states[number]
        position, ends_at = 0, -1
        try:
            if state.base_offset < offset:
                indexes = load_indexes(self._log, self.states, number)
                position, ends_at = indexes.place_before(offset - state.base_offset)
                ends_at += state.base_offset if ends_at >= 0 else 0
            with self._files.use(self._path(state, LOG_SUFFIX)) as file:
                for _, batch in scan(file, state, position=position, ends_at=ends_at):
                    if batch.last_offset >= offset:
                        yield batch
        except OSError as error:  # of a read: writes are made outside of this generator
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"it cannot be read now: {error}") from error

    def _last_of_producers(self) -> tuple[set[int], dict[int, int]]:
        """Return, from the newest snapshot, the base offset of each live producer's newest batch, and by producer id
        the epoch of each producer that has no batch left. Raises KafkaError if the snapshot cannot be used.
        """
        last_batches: set[int] = set()
        last_epochs: dict[int, int] = {}
        newest = self._snapshots[-1] if self._snapshots else None
        if newest is None or newest.empty:
            return last_batches, last_epochs
        path = newest.path_in(self._log.directory)
        try:
            payload = checkpoints.read_file(self._files.disk, path, KIND, VERSION)
            producers = encoding.unpack(payload)
        except (checkpoints.Damaged, OSError, ValueError) as problem:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log cannot be compacted without {path}: {problem}"
            ) from problem
        for producer_id, producer in producers.items():
            if producer.window:
                last_batches.add(producer.window[-1][1])
            else:
                last_epochs[producer_id] = producer.epoch
        return last_batches, last_epochs

    def _rewrite(self, rules: Rules, aborted: dict[int, AbortedTransaction]) -> Iterator[None]:
        """Write all segments again, merging neighbours as far as segment.bytes allows. Yields after each batch."""
        output = _Output(self, self.states[0].base_offset)
        for number, state in enumerate(self.states):
            output.draws_on(state)
            for batch in self._batches(number, state.base_offset):
                kept = rules.retain(batch)
                if kept is not None:
                    if not output.takes(batch, len(kept)):
                        output.finish(batch.base_offset)
                        output = _Output(self, batch.base_offset)
                        output.draws_on(state)
                    output.add(batch, kept, aborted.get(batch.last_offset))
                yield
        output.finish(self.states[-1].end_offset)

    def _path(self, state: SegmentState, suffix: str) -> str:
        """Return the path of a segment's file. suffix: `.log` or that of an index."""
        return f"{self._log.directory}/{state.stem}{suffix}"


class _Output:
    """A segment that a compaction writes. Its files are created with its first batch."""

    def __init__(self, run: Compaction, base_offset: int) -> None:
        """run: the compaction that writes it. base_offset: the first offset of the segment."""
        self._run = run
        self._files = run._files
        self._settings = run._settings
        self._state = SegmentState(base_offset, run.generation, first_age_ms=2**63 - 1)
        self._growth = IndexGrowth(base_offset, EVERY_BATCH)
        self._buffers: list[Buffer] = []
        self._aborted: list[AbortedTransaction] = []
        self._size_bytes = 0
        self._written_bytes = 0
        self._first_age_ms = 2**63 - 1
        self._last_age_ms = 0

    def takes(self, batch: Batch, size: int) -> bool:
        """Return whether the batch still fits into the segment that is being written."""
        settings = self._settings
        return not self._size_bytes or (
            self._size_bytes + size <= settings.segment_bytes
            and batch.last_offset - self._state.base_offset <= HIGHEST_RELATIVE_OFFSET
        )

    def draws_on(self, state: SegmentState) -> None:
        """Widen the output's ages (first and last) to include those of an input segment whose batches may follow."""
        self._first_age_ms = min(self._first_age_ms, state.first_age_ms)
        self._last_age_ms = max(self._last_age_ms, state.last_age_ms)

    def add(self, batch: Batch, kept: Buffer, aborted: AbortedTransaction | None) -> None:
        """Add a batch to the new segment. kept: its bytes that remain. aborted: the transaction that it ends, for the
        index.
        """
        written = batch if kept is batch.buffer else batches.read(memoryview(kept))
        self._growth.add(written.last_offset, self._size_bytes, written.size, written.max_timestamp)
        self._buffers.append(kept)
        self._size_bytes += written.size
        if aborted is not None and written.record_count:
            self._aborted.append(aborted)
        if self._size_bytes - self._written_bytes >= SLICE_BYTES:
            self._write()

    def finish(self, end_offset: int) -> None:
        """Write the batches that are not written yet, and the indexes. end_offset: of the segment (exclusive). Without
        any batch, no file is made.
        """
        if not self._size_bytes:
            return
        self._write()
        growth = self._growth
        growth.add_time_entry()
        offset_entries, time_entries = b"".join(growth.offset_entries), b"".join(growth.time_entries)
        txn_entries = pack(self._aborted)
        for suffix, entries in (
            (OFFSET_SUFFIX, offset_entries),
            (TIME_SUFFIX, time_entries),
            (TXN_SUFFIX, txn_entries),
        ):
            if entries:
                self._put(suffix, [entries], 0, len(entries))
        finished = self._state._replace(
            size_bytes=self._size_bytes,
            end_offset=end_offset,
            max_timestamp=growth.max_timestamp,
            max_timestamp_offset=growth.max_timestamp_offset,
            first_age_ms=self._first_age_ms,
            last_age_ms=self._last_age_ms,
            offset_index=IndexRow.of(offset_entries, OFFSET_ENTRY.size),
            time_index=IndexRow.of(time_entries, TIME_ENTRY.size),
            txn_index=IndexRow.of(txn_entries, TXN_ENTRY.size),
            last_indexed_time=growth.last_time,
        )
        self._run.outputs.append(finished)

    def _write(self) -> None:
        """Write the collected batches to the new segment's file."""
        self._put(LOG_SUFFIX, self._buffers, self._written_bytes, self._size_bytes - self._written_bytes)
        self._buffers.clear()
        self._written_bytes = self._size_bytes

    def _put(self, suffix: str, buffers: Sequence[Buffer], position: int, size_bytes: int) -> None:
        """Write buffers to a file of the new segment at this position; at position 0 the file is created."""
        path = self._run._path(self._state, suffix)
        if position == 0:
            self._run.paths.append(path)
        with self._files.use(path, create=True) as file:
            write_gathered(file, buffers, position, size_bytes, past_cache=False)
            if suffix == LOG_SUFFIX:
                self._files.wrote(path)
