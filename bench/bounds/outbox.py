"""Measures the outbox: how many rows a second a relay moves from PostgreSQL, each committed together with its
record.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

from ..measured import Measured
from ..peers import peers
from ..peers.names import FSYNC
from ..peers.postgres import postgres
from . import outbox_load
from .sizes import Say, Size, by_figure

ROWS = 100_000
TWO_PHASE = "transaction.two.phase.commit.enable=true"
FEWEST = 1_000  # rows of a quick run


def rows(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure how many rows a second the relay sends; broker and database both sync. Yields one result."""
    count = max(FEWEST, size.count(ROWS))
    with postgres() as url, peers.fencepost("fsync", None, "-X", TWO_PHASE) as broker:
        command = [sys.executable, "-m", outbox_load.__name__, url, broker.bootstrap, str(count)]
        found = []
        for _ in range(size.rounds):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=peers.environment())
            if done.returncode:
                raise RuntimeError(f"{name}: " + " / ".join(done.stderr.splitlines()[-5:]))
            found.append(json.loads(done.stdout))
    yield Measured(name, "row", FSYNC, by_figure(found))
