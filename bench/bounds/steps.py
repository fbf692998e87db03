"""Measures how much CPU time each step of upkeep (flush, checkpoint, retention, compaction) takes on the event loop,
with 2,000 logs. CPU time is measured because a busy machine changes it little.

These steps cannot run in a worker, because they change state: capturing what a worker needs, applying its result, and
looking at every log. The longest step is the longest time that the broker's own work delays a request.
"""

import gc
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from ...effects.clock import SystemClock
from ...effects.disk import SystemDisk
from ...effects.rng import SystemRng
from ...protocol import batches, records
from ...storage.cleaning.compaction import begin_compaction
from ...storage.cleaning.retention import expired
from ...storage.log.partition_log import PartitionLog
from ...storage.log.settings import LogSettings
from ...storage.recovery import open_store
from ...storage.store import StoreSettings
from ...storage.upkeep import Upkeep
from ..measured import Measured
from ..peers.names import FSYNC
from .sizes import Say, Size

LOGS = 2_000
UNITS_A_ROUND = 500
ONE_LOG_BATCHES = 150_000
TEN_LOGS_BATCHES = 20_000
TOPIC_ID = bytes(15) + b"\1"

T = TypeVar("T")


def steps(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure the CPU time of each step of upkeep on the event loop, in a new data directory in each round. Yields one
    result, with the time in ms of the longest step of each round.
    """
    longest = []
    for number in range(size.rounds):
        step, took_ms = max(_measure(size).items(), key=lambda item: item[1])
        say(f"{name} · round {number + 1} of {size.rounds} · {took_ms:.1f} ms: {step}")
        longest.append(took_ms)
    yield Measured(name, "step", FSYNC, {"took_ms": tuple(longest)})


def _measure(size: Size) -> dict[str, float]:
    """Return the longest CPU time of each step by its name, in ms."""
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        driven = _Driven(directory, size)
        gc.disable()
        try:
            driven.run()
        finally:
            gc.enable()
            driven.store.close()
        return dict(driven.longest_ms)


class _Driven:
    """A store (no broker) that is loaded, flushed and checkpointed directly, with each step of the loop timed."""

    def __init__(self, directory: str, size: Size) -> None:
        self._size = size
        self.store, _ = open_store(SystemDisk(), SystemClock(), SystemRng(), directory, StoreSettings())
        self.upkeep = Upkeep(self.store)
        self.longest_ms: defaultdict[str, float] = defaultdict(float)
        self._batch = memoryview(records.build([records.Record(0, 0, b"key", b"x" * 80)]))

    def run(self) -> None:
        """Append a little to many logs, more to ten, and very much to one, and flush and checkpoint after each. Then
        run retention and compaction.
        """
        self._round()
        logs = self._time_step("make all logs", self._make)
        one, ten = self._size.count(ONE_LOG_BATCHES), self._size.count(TEN_LOGS_BATCHES)
        for count, some in ((20 * len(logs), logs), (2 * len(logs), logs), (one, logs[:1]), (ten, logs[:10])):
            self._load(count, some)
            self._flush()
            self._checkpoint()
            self._checkpoint()  # a second one: files go only when neither of the two newest names them
        self._clean(logs)

    def _time_step(self, step: str, call: Callable[[], T]) -> T:
        """Call a step and return its result. Its CPU time is noted if it is the longest under this name."""
        began = time.thread_time()
        result = call()
        self.longest_ms[step] = max(self.longest_ms[step], 1e3 * (time.thread_time() - began))
        return result

    def _make(self) -> list[PartitionLog]:
        """Create the logs in one unit (journal entry), and return them."""
        store = self.store
        settings = LogSettings(segment_bytes=1 << 20, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
        ids = [store.new_log_id() for _ in range(self._size.count(LOGS))]
        store.commit([store.create_part(log_id, "many", TOPIC_ID, i, settings) for i, log_id in enumerate(ids)])
        return [store.logs[log_id] for log_id in ids]

    def _load(self, count: int, logs: list[PartitionLog]) -> None:
        """Append `count` small batches to these logs in turn, and write the journal after every UNITS_A_ROUND."""
        for number in range(count):
            self.store.append(logs[number % len(logs)], batches.read(self._batch))
            if number % UNITS_A_ROUND == UNITS_A_ROUND - 1:
                self._round()
        self._round()

    def _round(self) -> None:
        """Write and sync the entries that were appended to the journal, as the broker's loop and workers do."""
        store = self.store
        store.look()
        write = store.take_round(sync=True)
        if write is not None:
            write.run()
            self._time_step("round finished", partial(store.round_finished, write))
        while (job := store.journal.fill_job()) is not None:
            job.run()
            store.journal.filled(job)

    def _flush(self) -> None:
        """Flush until every log's batches are in segments."""
        while (run := self._time_step("capture a flush", self.upkeep.begin_flush)) is not None:
            run.run()
            self._time_step("take a flush back", partial(self.upkeep.flushed, run))

    def _checkpoint(self) -> None:
        """Make one checkpoint, and time the steps of it that run on the loop."""
        upkeep = self.upkeep
        self._time_step("is a checkpoint wanted", lambda: upkeep.wanted)
        self._time_step("are snapshots due", upkeep.snapshots_due)
        capture = self._time_step("begin a checkpoint", upkeep.begin_capture)
        while self._time_step("capture some logs", capture.advance):
            pass
        run = upkeep.captured(capture)
        self._round()  # the journal must be synced before the checkpoint is written
        run.run()
        self._time_step("take a checkpoint back", partial(upkeep.checkpointed, run)).run()

    def _clean(self, logs: list[PartitionLog]) -> None:
        """Run retention and then compaction of each log, and time the steps of them that run on the loop."""
        age_ms, monotonic_ms = self.store.age_ms(), self.store.clock.monotonic_ms
        for log in logs:
            self._time_step("retention of a log", partial(expired, log, age_ms))
            self._snapshot(log)
        self._checkpoint()
        self._checkpoint()  # a second one, as in run()
        for log in logs:
            run = self._time_step("is a log to be compacted", partial(begin_compaction, log, age_ms, monotonic_ms))
            if run is not None:
                while not run.finished:
                    run.run_slice()
                self._time_step("swap what is compacted", partial(log.compacted, run))

    @staticmethod
    def _snapshot(log: PartitionLog) -> None:
        """Write the log's producer snapshot if one is due."""
        job = log.snapshot_job()
        if job is not None:
            job.run()
            log.snapshotted(job)
