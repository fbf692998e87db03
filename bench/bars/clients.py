"""The SDK's bars of `make bench-bars`: our client and the others in turns, each in a process of its own, one broker."""

import statistics
import subprocess
import sys

from .. import librdkafka, topics
from ..peers import peers
from . import client_loads
from .rows import ROUNDS, Row

PARTITIONS = 4
NOISE = 5  # lines of a failed load that are shown


def rate(work: str, library: str, load: client_loads.Load) -> float:
    """Units per second of one load. Raises RuntimeError with what it said."""
    arguments = [work, library, load.bootstrap, load.topic, str(load.records), str(load.size)]
    command = [sys.executable, "-m", "fencepost.bench.bars.client_loads", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * client_loads.PATIENCE_S)
    if done.returncode:
        raise RuntimeError(f"{work} of {library}: " + " / ".join(done.stderr.splitlines()[-NOISE:]))
    return float(done.stdout)


def compared(work: str, other: str, load: client_loads.Load) -> tuple[float, float]:
    """Medians of the SDK's rate and the other library's, taken in turns."""
    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(ROUNDS):
        pairs = [("fencepost", ours), (other, theirs)]
        for library, rates in pairs if turn % 2 == 0 else reversed(pairs):
            rates.append(rate(work, library, load))
    return statistics.median(ours), statistics.median(theirs)


def _row(title: str, bar: float, work: str, other: str, load: client_loads.Load) -> Row:
    one, two = compared(work, other, load)
    return Row(title, one / two, ">=", bar, f"{one:,.0f}", f"{other} {two:,.0f}")


def clients(scale: float) -> list[Row]:
    """What the SDK does against aiokafka, and against confluent-kafka for transactions; durability os."""
    rows = []
    with peers.fencepost("os") as broker:

        def load(topic: str, records: int, size: int = 100) -> client_loads.Load:
            return client_loads.Load(broker.bootstrap, topic, max(1, int(records * scale)), size)

        for topic in ("small", "large", "read", "read-copy", "txn"):
            topics.create(broker.host, broker.port, topic, PARTITIONS)
        for size, topic in ((100, "small"), (1000, "large")):
            for work, how in (("produce", "at defaults"), ("produce_equal", "equal batches")):
                title = f"SDK idempotent producer, {size} B, {how}: records/s"
                rows.append(_row(title, 2.0, work, "aiokafka", load(topic, 200_000, size)))
        filled = librdkafka.ProduceLoad("read", load("read", 400_000).records, 100)
        librdkafka.produce(broker.bootstrap, filled, lambda done: None)
        for work, title in (("getmany", "getmany"), ("iterate", "async for")):
            rows.append(_row(f"SDK consumer, {title}: records/s", 1.5, work, "aiokafka", load("read", 400_000)))
        rows.append(_row("SDK consume-transform-produce: records/s", 2.0, "loop", "aiokafka", load("read", 50_000)))
        rows.append(_row("SDK transactions/s, one producer", 1.3, "txn", "confluent", load("txn", 1_500)))
    return rows


STARTS = {
    "import fencepost, ms": ("import fencepost", "", 60.0),
    "import of the pytest plugin, ms": ("import fencepost.testing.plugin", "import pytest, fencepost", 5.0),
    "fp.Broker() ready after imports, ms": ("broker.start()", "import fencepost; broker = fencepost.Broker()", 300.0),
}
"""What is timed, what is done before it, and the bar."""


def starts() -> list[Row]:
    """What a user waits for before the first record, each in a process of its own."""
    rows = []
    for title, (timed, before, bar) in STARTS.items():
        program = f"import time\n{before}\nbegan = time.perf_counter()\n{timed}\nprint(time.perf_counter() - began)"
        program += "\nif 'broker' in globals(): broker.stop()"
        times = []
        for _ in range(2 * ROUNDS + 1):
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
            )
            times.append(1e3 * float(done.stdout))
        rows.append(Row(title, statistics.median(times), "<=", bar, f"{statistics.median(times):.1f}", "-"))
    return rows
