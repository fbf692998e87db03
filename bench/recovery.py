"""How long a restart takes after kill -9 with a full journal of small units over many partitions."""

import asyncio
import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop

from . import peers, small, topics

PARTITIONS = 2_000
RECORD_BYTES = 80  # with batch and unit framing about 200 bytes
FULL_BYTES = 200 << 20


@dataclass(frozen=True, slots=True)
class Recovery:
    """ready_s: from start to the ready line. units, journal_mb: what was in the journal."""

    ready_s: float
    units: int
    journal_mb: float


def measure() -> Recovery:
    """Fill a journal, kill the broker, start it again. Checkpoints are held off meanwhile."""
    options = ["-X", "log.checkpoint.interval.ms=3600000", "-X", "journal.checkpoint.ratio=1.0"]
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        with peers.fencepost("os", directory, *options) as broker:
            topics.create(broker.host, broker.port, "full", PARTITIONS)
            units = 0
            while _journal_bytes(directory) < FULL_BYTES:
                load = small.SmallLoad("full", PARTITIONS, PARTITIONS, 2, RECORD_BYTES, 1, 1.0, 0.0)
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    units += runner.run(small.run(broker.host, broker.port, load, lambda: None)).requests
                if units > 3_000_000:
                    break
            os.kill(broker.pid, signal.SIGKILL)
        journal_mb = _journal_bytes(directory) / 1e6
        began = time.perf_counter()
        with peers.fencepost("os", directory):
            return Recovery(time.perf_counter() - began, units, journal_mb)


def _journal_bytes(directory: str) -> int:
    return sum(path.stat().st_size for path in Path(directory, "journal").glob("*") if path.is_file())
