"""Measures the inbox: database transactions that also store the place in the topic, compared to the same inserts
without it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from os import environ
from pathlib import Path

from .. import librdkafka, topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import INBOX, INSERTS
from . import inbox_loads
from .sizes import Say, Size, in_turns

TOPIC = "bench-inbox"
TRANSACTIONS, RECORD_BYTES = 1_000, 100
FEWEST = 50  # transactions of a quick run
DATABASE = "BENCH_DATABASE"
"""The environment variable with the URL of a database; without it, a file of SQLite."""


def inboxes(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure transactions of one insert with and without an inbox, alternately. Yields a result for each."""
    count = max(FEWEST, size.count(TRANSACTIONS))
    with peers.fencepost("os") as broker, tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        topics.create(broker.host, broker.port, TOPIC, 1)
        load = librdkafka.ProduceLoad(TOPIC, count, RECORD_BYTES)
        librdkafka.produce(broker.bootstrap, load, lambda _done: None)
        url = environ.get(DATABASE) or f"sqlite:///{Path(directory) / 'bench.db'}"
        found = in_turns(
            size.rounds, *(partial(rate, work, broker.bootstrap, url, count) for work in inbox_loads.WORKS)
        )
    for peer, rates in zip((INBOX, INSERTS), found, strict=True):
        yield Measured(name, "transaction", peer, {"rate": tuple(rates)})


def rate(work: str, bootstrap: str, url: str, count: int) -> float:
    """Run one load of inbox_loads in a process. Returns its transactions per second. Raises: RuntimeError with its last
    output.
    """
    command = [sys.executable, "-m", inbox_loads.__name__, work, bootstrap, TOPIC, url, str(count)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=3 * inbox_loads.PATIENCE_S, env=peers.environment()
    )
    if done.returncode:
        raise RuntimeError(f"{work}: {done.stderr[-500:]}")
    return float(done.stdout)
