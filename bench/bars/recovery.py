"""How long a restart takes after kill -9 with a full journal of small units over many partitions."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ...effects.clock import SystemClock
from ...effects.disk import SystemDisk
from ...effects.rng import SystemRng
from ...protocol import batches, records
from ...storage.recovery import open_store
from ...storage.store import Store, StoreSettings
from .. import topics
from ..peers import peers

PARTITIONS = 2_000
UNIT_BYTES = 200
UNITS_A_ROUND = 500


@dataclass(frozen=True, slots=True)
class Recovery:
    """ready_s: from start to the ready line. peak_mb: memory it took. units, journal_mb: what was in the journal."""

    ready_s: float
    peak_mb: float
    units: int
    journal_mb: float


def measure() -> Recovery:
    """Make the topic with a broker; fill the journal without one, so that no checkpoint empties it; start and wait."""
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        with peers.fencepost("os", directory) as broker:
            topics.create(broker.host, broker.port, "full", PARTITIONS)
        store, _ = open_store(SystemDisk(), SystemClock(), SystemRng(), directory, StoreSettings())
        units = _fill(store)
        journal_mb = store.journal.used_bytes / 1e6
        store.close()
        began = time.perf_counter()
        with peers.fencepost("os", directory) as broker:
            return Recovery(time.perf_counter() - began, _peak_mb(broker.pid), units, journal_mb)


def _peak_mb(pid: int) -> float:
    """The most memory that a process has had in RAM."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def _fill(store: Store) -> int:
    """Append small batches, a log after another, until the journal takes no more. Returns how many."""
    logs = [log for log in store.logs.values() if log.topic == "full"]
    value = b"x" * (UNIT_BYTES - 61 - 45 - 12)  # beside it: the batch's header, the unit's frame, the record's own
    batch = memoryview(records.build([records.Record(0, 0, None, value)]))
    units = 0
    while store.journal.admits(2 * UNIT_BYTES * UNITS_A_ROUND):
        for _ in range(UNITS_A_ROUND):
            store.append(logs[units % len(logs)], batches.read(batch))
            units += 1
        write = store.take_round(sync=False)
        assert write is not None
        write.run()
        store.round_finished(write)
        while (job := store.journal.fill_job()) is not None:
            job.run()
            store.journal.filled(job)
    return units


if __name__ == "__main__":
    print(measure())
