"""The log against a small model: whatever the order of appends, flushes, crashes, retention and compaction.

The model is a list of batches in log order and a set of producer states fed with the same batches. Two machines: one
log that keeps batches as they are, whose every byte is compared; one that is compacted, whose meaning is.
"""

from typing import Any

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches, records
from fencepost.protocol.batches import Batch
from fencepost.protocol.errors import KafkaError
from fencepost.protocol.records import Marker, Record
from fencepost.storage.producers.producers import RETIRED_EPOCH, ProducerStates
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_driver import DIRECTORY, LogDriver, keyed
from long_runs import share_of

pytestmark = pytest.mark.slow

KEYS = [b"a", b"b", b"c", b"a key of more than sixteen bytes", None]
PRODUCERS = [0, 1, 2]
RETENTION_MS = 1000
DELETE_RETENTION_MS = 500

keys = st.sampled_from(KEYS)
values = st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"x" * 150]))
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=3)
bursts = st.lists(st.tuples(pairs, st.sampled_from(PRODUCERS), st.integers(0, 3)), min_size=6, max_size=12)


class LogMachine(RuleBasedStateMachine):
    """What both machines do. `stored` is the model: every batch ever applied, with the bytes that stand in the log."""

    cleanup_policy = "delete"

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[Batch] = []
        self.start_offset = 0
        self.shadow = ProducerStates()
        self.ids = {producer: producer for producer in PRODUCERS}
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.open: dict[int, list[Batch]] = {}
        self.aborted: list[Batch] = []
        self.released = 0

    @initialize(
        segment_bytes=st.sampled_from([200, 500, 2000]),
        interval=st.sampled_from([0, 100, 4096]),
        producers=st.sampled_from([1, 3]),
    )
    def begin(self, segment_bytes: int, interval: int, producers: int) -> None:
        self.producers = producers
        self.driver = LogDriver(
            SimulatedDisk(history=True),
            open_files=3,
            cleanup_policy=self.cleanup_policy,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_ms=RETENTION_MS,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=DELETE_RETENTION_MS,
        )

    @property
    def end_offset(self) -> int:
        return self.stored[-1].next_offset if self.stored else 0

    def take(self, produced: bytes, release: bool) -> Batch:
        offset = self.driver.append(produced, release=release)
        assert offset == self.end_offset
        batch = batches.read(
            memoryview(batches.stamp_header(batches.read(memoryview(produced)), offset) + produced[16:])
        )
        self.stored.append(batch)
        self.shadow.apply(batch, self.driver.age_ms)
        if release:
            self.released = self.end_offset
        return batch

    # ---- rules of both ---------------------------------------------------------------------------------------

    @rule(pairs=pairs, codec=st.integers(0, 4), timestamp=st.integers(0, 50), release=st.booleans())
    def append_plain(self, pairs: list[Any], codec: int, timestamp: int, release: bool) -> None:
        self.take(keyed(pairs, codec=codec, timestamp=timestamp), release)

    @rule(pairs=pairs, producer=st.sampled_from(PRODUCERS), transactional=st.booleans(), release=st.booleans())
    def append_idempotent(self, pairs: list[Any], producer: int, transactional: bool, release: bool) -> None:
        producer %= self.producers
        transactional = transactional or producer in self.open
        fields = {"producer_epoch": self.epochs[producer], "base_sequence": self.sequences[producer]}
        batch = self.take(keyed(pairs, producer_id=self.ids[producer], transactional=transactional, **fields), release)
        self.sequences[producer] += len(pairs)
        if transactional:
            self.open.setdefault(producer, []).append(batch)

    @rule(data=bursts)
    def append_many(self, data: list[tuple[list[Any], int, int]]) -> None:
        for pairs, producer, kind in data:
            if kind == 3:
                self.append_plain(pairs, 0, 20, True)
            elif kind == 2 and producer % self.producers in self.open:
                self.end_transaction(producer, Marker(len(pairs) % 2), False, True)
            else:
                self.append_idempotent(pairs, producer, kind >= 1, True)

    @rule(producer=st.sampled_from(PRODUCERS), kind=st.sampled_from(Marker), bump=st.booleans(), release=st.booleans())
    def end_transaction(self, producer: int, kind: Marker, bump: bool, release: bool) -> None:
        producer %= self.producers
        if bump:
            self.epochs[producer] += 1
            self.sequences[producer] = 0
        self._end(producer, kind, self.epochs[producer], release)

    @rule(producer=st.sampled_from(PRODUCERS), kind=st.sampled_from(Marker), release=st.booleans())
    def end_for_good(self, producer: int, kind: Marker, release: bool) -> None:
        """End a transaction with the last epoch of its producer id. The next one has another producer id."""
        producer %= self.producers
        self._end(producer, kind, RETIRED_EPOCH, release)
        self.ids[producer] += len(PRODUCERS)
        self.epochs[producer] = self.sequences[producer] = 0

    @rule(
        producer=st.sampled_from(PRODUCERS),
        kind=st.sampled_from(Marker),
        steps=st.permutations(["flush", "end", "checkpoint"]),
    )
    def end_in_between_and_crash(self, producer: int, kind: Marker, steps: list[str]) -> None:
        """End a transaction before, between or after a flush and a checkpoint; then crash."""
        self.append_idempotent([(b"a", b"in between")], producer, True, True)
        for step in steps:
            if step == "flush":
                self.flush_all()
            elif step == "end":
                self.end_for_good(producer, kind, True)
            else:
                self.checkpoint()
        self.crash(False, False)

    def _end(self, producer: int, kind: Marker, epoch: int, release: bool) -> None:
        self.take(records.control_marker(kind, self.ids[producer], epoch, 0, 5), release)
        ended = self.open.pop(producer, [])
        if kind is Marker.ABORT:
            self.aborted += ended

    @rule(max_bytes=st.sampled_from([1, 300, 5000]))
    def flush_a_part(self, max_bytes: int) -> None:
        job = self.driver.log.flush_job(max_bytes)
        if job is not None:
            job.run()
            self.driver.log.flushed(job)

    @rule()
    def flush_all(self) -> None:
        self.driver.flush()

    @rule()
    def snapshot(self) -> None:
        self.driver.snapshot()

    @rule()
    def checkpoint(self) -> None:
        self.driver.checkpoint()

    @rule()
    def settle(self) -> None:
        self.driver.settle()

    @rule(older=st.booleans(), cut=st.booleans())
    def crash(self, older: bool, cut: bool) -> None:
        """Crash, and open the log again: from the newest checkpoint, or from the older one; with all that was written,
        or (cut) only with what was synced.
        """
        driver = self.driver
        driver.files.close()
        driver.disk = driver.disk.after_power_cut() if cut else driver.disk.after_process_crash()
        driver.reopen(row=0 if older else -1)
        self.released = self.end_offset
        assert driver.log.offline is None, driver.log.offline
        driver.flush()
        driver.checkpoint()
        driver.checkpoint()
        self.meaning_stays()

    def meaning_stays(self) -> None:
        """Check what neither a crash nor a compaction may change. Subclasses say what that is."""

    @rule()
    def lose_the_indexes(self) -> None:
        driver = self.driver
        driver.files.indexes.clear()
        for name in driver.disk.list(DIRECTORY) if driver.disk.exists(DIRECTORY) else []:
            if name.endswith("index"):
                driver.files.forget(f"{DIRECTORY}/{name}")
                driver.disk.unlink(f"{DIRECTORY}/{name}")

    @rule(data=st.data())
    def delete_records(self, data: Any) -> None:
        offset = data.draw(st.integers(self.start_offset, self.released))
        self.driver.start_at(offset)
        self.start_offset = offset

    @rule(ms=st.sampled_from([1, 200, 700, 2000]))
    def time_passes(self, ms: int) -> None:
        self.driver.advance(ms)

    # ---- what always holds -----------------------------------------------------------------------------------

    @invariant()
    def offsets_agree(self) -> None:
        if not hasattr(self, "driver"):
            return
        log = self.driver.log
        assert log.start_offset == self.start_offset
        assert log.end_offset == self.end_offset
        assert log.high_watermark == self.released
        assert log.last_stable_offset == self.last_stable_offset()

    @invariant()
    def producers_agree(self) -> None:
        if hasattr(self, "driver"):
            mine = sorted(self.driver.log.producers.describe())
            assert mine == sorted(self.shadow.describe())
            for batch in self.stored[-15:]:
                if not batch.is_control:
                    assert verdict(self.driver.log.producers, batch) == verdict(self.shadow, batch)

    def last_stable_offset(self) -> int:
        first: dict[int, int] = {}
        lowest = self.released
        for batch in self.stored:
            if batch.is_control:
                begun = first.pop(batch.producer_id, None)
                if begun is not None and batch.base_offset >= self.released:
                    lowest = min(lowest, begun)
            elif batch.is_transactional:
                first.setdefault(batch.producer_id, batch.base_offset)
        return max(min([lowest, *first.values()]), self.start_offset)

    def expected_committed(self) -> list[Record]:
        below = self.last_stable_offset()
        dead = {batch.base_offset for batch in self.aborted}
        return [
            record
            for batch in self.stored
            if not batch.is_control and batch.base_offset not in dead and batch.last_offset < below
            for record in records.records(batch)
            if record.offset >= self.start_offset
        ]


def verdict(states: ProducerStates, batch: Batch) -> object:
    try:
        return states.judge(batch)
    except KafkaError as error:
        return error.code


class KeptWhole(LogMachine):
    """cleanup.policy=delete: every byte from the start on is there until retention takes it."""

    @rule(data=st.data(), max_bytes=st.integers(1, 1000), at_least_one=st.booleans())
    def read_anywhere(self, data: Any, max_bytes: int, at_least_one: bool) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end_offset))
        below = data.draw(st.integers(0, self.released))
        got = self.driver.read(offset, max_bytes, below=below, at_least_one=at_least_one)
        content = b"".join(got.buffers)
        assert len(content) == got.size_bytes
        wanted = [batch for batch in self.stored if batch.last_offset >= offset]
        found = [batch.base_offset for batch in batches.walk(memoryview(content))]
        assert content == b"".join(batch.buffer for batch in wanted[: len(found)])
        assert all(batch.last_offset < below for batch in wanted[: len(found)])
        assert got.size_bytes <= max_bytes or (at_least_one and len(found) == 1)
        assert got.next_offset == (wanted[len(found) - 1].next_offset if found else offset)
        fits = bool(wanted) and wanted[0].last_offset < below and (at_least_one or wanted[0].size <= max_bytes)
        assert bool(found) == (fits and offset < below)

    @rule(timestamp=st.integers(0, 60), data=st.data())
    def look_up_a_time(self, timestamp: int, data: Any) -> None:
        below = data.draw(st.integers(0, self.released))
        everything = [
            record
            for batch in self.stored
            if batch.last_offset < below
            for record in records.records(batch)
            if record.offset >= self.start_offset
        ]
        lookup = self.driver.log.offset_for_time(timestamp, below)
        found = None if lookup is None else lookup.run()
        first = next((record for record in everything if record.timestamp >= timestamp), None)
        assert (found and tuple(found)) == (first and (first.offset, first.timestamp))
        latest = self.driver.log.offset_of_latest_time(below)
        found = None if latest is None else latest.run()
        best = max(everything, key=lambda record: record.timestamp, default=None)
        assert (found and tuple(found)) == (best and (best.offset, best.timestamp))

    @rule()
    def retention(self) -> None:
        driver = self.driver
        before = driver.log.start_offset
        driver.retain()
        self.start_offset = driver.log.start_offset
        assert before <= self.start_offset <= max(before, driver.log.checkpointed_offset)
        assert all(self.start_offset <= max(before, kept[0].base_offset) for kept in self.open.values())

    @rule(max_bytes=st.sampled_from([1, 300, 5000]))
    def read_all(self, max_bytes: int) -> None:
        wanted = [b.buffer.tobytes() for b in self.stored if self.start_offset <= b.last_offset < self.released]
        assert [batch.buffer.tobytes() for batch in self.driver.batches(max_bytes)] == wanted

    @rule()
    def meaning_stays(self) -> None:
        assert self.driver.committed() == self.expected_committed()


class Compacted(LogMachine):
    """cleanup.policy=compact: the latest record of each key is there, at its offset, and nothing that never was."""

    cleanup_policy = "compact"

    def __init__(self) -> None:
        super().__init__()
        self.tombstones_seen: dict[int, int] = {}  # offset → age at which compaction may have met it first
        self.before_compaction: list[Record] = []

    @rule(data=bursts, most_keys=st.sampled_from([1, 3, 1000]))
    def compact(self, data: list[Any], most_keys: int) -> None:
        self.append_many(data)
        driver = self.driver
        driver.settle()
        self.append_idempotent([(None, b"filler")], 2, False, True)  # a snapshot later than that of now
        self.released = self.end_offset
        driver.settle()
        for record in driver.contents():
            if record.value is None:
                self.tombstones_seen.setdefault(record.offset, driver.age_ms)
        driver.compact(most_keys=most_keys)
        self.meaning_stays()

    @precondition(lambda self: self.stored)
    @rule()
    def meaning_stays(self) -> None:
        expected = self.expected_committed()
        latest: dict[bytes, Record] = {record.key: record for record in expected if record.key is not None}
        found = self.driver.committed()
        assert [r.offset for r in found] == sorted({r.offset for r in found})
        written = {record.offset: record for record in expected}
        assert all(written.get(record.offset) == record for record in found)
        visible = {record.key: record for record in found if record.key is not None}
        for key, record in latest.items():
            seen_ms = self.tombstones_seen.get(record.offset, self.driver.age_ms)
            old = record.value is None and self.driver.age_ms - seen_ms >= DELETE_RETENTION_MS
            assert visible.get(key) == record or (old and key not in visible), (key, record)

    @rule(max_bytes=st.sampled_from([1, 300, 5000]))
    def what_is_not_cleaned_is_whole(self, max_bytes: int) -> None:
        cleaned = self.driver.log.cleaned_offset
        wanted = [
            b.buffer.tobytes()
            for b in self.stored
            if b.base_offset >= cleaned and self.start_offset <= b.last_offset < self.released
        ]
        found = [b.buffer.tobytes() for b in self.driver.batches(max_bytes) if b.base_offset >= cleaned]
        assert found == wanted

    @rule(data=st.data(), max_bytes=st.integers(1, 1000))
    def reads_go_on_over_gaps(self, data: Any, max_bytes: int) -> None:
        """Check that successive reads get from any offset to the high watermark, and return every batch there."""
        offset = data.draw(st.integers(self.start_offset, self.released))
        all_found = [batch.base_offset for batch in self.driver.batches() if batch.last_offset >= offset]
        found: list[int] = []
        while offset < self.released:
            got = self.driver.read(offset, max_bytes)
            assert got.size_bytes
            found += [batch.base_offset for batch in batches.walk(memoryview(b"".join(got.buffers)))]
            offset = got.next_offset
        assert found == all_found


SHORT = settings(
    max_examples=share_of(80), stateful_step_count=40, suppress_health_check=list(HealthCheck), derandomize=True
)
LONG = settings(max_examples=400, stateful_step_count=80, suppress_health_check=list(HealthCheck))

TestKeptWhole = KeptWhole.TestCase
TestKeptWhole.settings = SHORT
TestCompacted = Compacted.TestCase
TestCompacted.settings = SHORT


@pytest.mark.long
class TestKeptWholeForLong(KeptWhole.TestCase):
    settings = LONG


@pytest.mark.long
class TestCompactedForLong(Compacted.TestCase):
    settings = LONG
