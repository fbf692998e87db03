"""Measures how long a restart takes after kill -9, when the journal is full of small units (journal entries) over
many partitions.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ...effects.clock import SystemClock
from ...effects.disk import SystemDisk
from ...effects.rng import SystemRng
from ...protocol import batches, records
from ...storage.recovery import open_store
from ...storage.store import Store, StoreSettings
from .. import topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import OS
from .sizes import Say, Size, by_figure

PARTITIONS = 2_000
UNIT_BYTES = 200
UNITS_A_ROUND = 500
SMALLEST_JOURNAL = 8 << 20


def full_journal(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure the start of a broker whose journal is full, in a new data directory in each round. Yields one result."""
    rounds = []
    for number in range(size.rounds):
        say(f"{name} · round {number + 1} of {size.rounds}")
        rounds.append(_measure(size))
    yield Measured(name, "start", OS, by_figure(rounds))


def _measure(size: Size) -> dict[str, float]:
    """Return the seconds that a start takes with a full journal, and the broker's peak memory in MB. The journal is
    filled without a broker, so that no checkpoint empties it.
    """
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        with peers.fencepost("os", directory) as broker:
            topics.create(broker.host, broker.port, "full", size.count(PARTITIONS))
        settings = StoreSettings()
        settings = replace(settings, journal_max_bytes=max(SMALLEST_JOURNAL, size.count(settings.journal_max_bytes)))
        store, _ = open_store(SystemDisk(), SystemClock(), SystemRng(), directory, settings)
        _fill(store)
        store.close()
        with peers.fencepost("os", directory) as broker:
            return {"ready_s": broker.ready_s, "rss_mb": _peak_mb(broker.pid)}


def _peak_mb(pid: int) -> float:
    """Return the most memory in RAM that a process has had so far, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def _fill(store: Store) -> None:
    """Append small batches to the logs in turn, until the journal accepts no more."""
    logs = [log for log in store.logs.values() if log.topic == "full"]
    value = b"x" * (UNIT_BYTES - 61 - 45 - 12)  # less the batch's header, the unit's frame, the record's header
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
