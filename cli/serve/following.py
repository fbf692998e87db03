"""The follower of `fencepost serve --backup URL`: a child process that ships the data directory to an object store.

The rule: it asks the broker nothing and reads the broker's files from outside (decision 20), so it may die or fall
behind without effect on the broker. Its reports become metrics of the broker; while it reports nothing, the loss window
in them grows.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ...broker.metrics import Metrics
from ...effects.clock import Clock
from ..backup.places import objects_of
from ..output.failures import WRONG_USAGE, Failure
from .children import end_child, run_child

ENDING_S = 10.0  # once the broker has stopped: what it wrote last is still to be shipped
LEAST_EVERY_MS = 100


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """The options --backup…, with the values that were given."""

    url: str
    every_ms: int
    keep_ms: int

    def check(self) -> None:
        """Raise Failure, before the broker starts, if the URL names no store, the library for it is missing, or
        every_ms is too short.
        """
        objects_of(self.url)
        if self.every_ms < LEAST_EVERY_MS:
            raise Failure("--backup-every is too short", f"{LEAST_EVERY_MS}ms or more", WRONG_USAGE)

    def command(self, directory: str) -> list[str]:
        """Return the child's command line. The store's keys are not in it, but in the environment. With -P, Python
        imports no modules from the working directory.
        """
        command = [sys.executable, "-P", "-m", "fencepost", "backup", "--follow", "--beside-broker"]
        command += ["--every", f"{self.every_ms}ms", "--keep", f"{self.keep_ms}ms"]
        return [*command, "--data-dir", directory, self.url]


class Following:
    """The running child, and its last report."""

    def __init__(self, command: Sequence[str], metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        metrics.backup.is_followed = True
        self._running = asyncio.create_task(run_child("the backup", command, self._take), name="backup")

    def _take(self, line: bytes) -> None:
        """Take over the report in a line that the child has printed; a line that is not a report is ignored."""
        try:
            told = json.loads(line)
            uncovered_ms, counts = (
                told["uncovered_ms"],
                [int(told[name]) for name in ("points", "objects", "size_bytes")],
            )
        except (ValueError, TypeError, KeyError):
            return
        backup = self._metrics.backup
        if uncovered_ms is not None:
            backup.covered_ms = self._clock.monotonic_ms() - int(uncovered_ms)
        backup.points, backup.objects, backup.size_bytes = counts
        backup.is_troubled = bool(told.get("trouble"))

    async def end(self) -> None:
        """Let the child process ship the rest; kill it if that takes long."""
        await end_child(self._running, ENDING_S)
