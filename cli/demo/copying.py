"""Consume, transform, produce of `fencepost demo`: copies the whole text in transactions, under random kills.

The copier is a process; it is killed at random moments, once together with the broker, and a successor continues each
time. A client library may hang after the broker was killed, so a copier without progress is killed too. Then everything
is read back: every line must be there once, in order, and every transaction complete.
"""

import queue
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...bench.topics import address
from ...bench.wire import Wire
from ...effects.threads import start_thread
from ...protocol.batches import Batch, walk
from ...protocol.messages.fetch import FetchRequest
from ...protocol.records import Marker, read_marker
from ..output.interruption import Interruption
from ..output.writing import show
from .flaky_proxy import FlakyProxy
from .stage import Broker, whole_lines

TARGET = "copies"
PROGRAM = Path(__file__).with_name("copier.py")  # by its path, so that it does not import the whole demo
COPIER_KILLS = 4
STUCK_S = 6.0
ANSWER_S = 20.0
FETCH_BYTES = 4 << 20


@dataclass(slots=True)
class Copied:
    """Counts of the copy. Transactions are counted as readers see them."""

    committed: int = 0
    aborted: int = 0
    lost: int = 0
    twice: int = 0
    half_visible: int = 0
    ordered: bool = True
    copiers_killed: int = 0
    brokers_killed: int = 0

    @property
    def good(self) -> bool:
        return self.ordered and not (self.lost or self.twice or self.half_visible)


class Copiers:
    """Runs one copier at a time. started: how many were started, the running one included."""

    def __init__(self, bootstrap: str, source: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._source = source
        self._random = random.Random(seed)
        self._printed: queue.Queue[str] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self.started = 0

    def start(self) -> None:
        """Start the next copier."""
        self.started += 1
        command = [sys.executable, "-P", str(PROGRAM), self._bootstrap, self._source, TARGET]
        self._process = subprocess.Popen([*command, str(self.started)], stdout=subprocess.PIPE, text=True)
        start_thread(self._listen, "output of a copier", self._process)

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        """Put each line that a copier prints into the queue; runs in a thread until the copier ends."""
        assert process.stdout is not None
        for line in whole_lines(process.stdout):
            self._printed.put(line)

    def next_line(self, timeout_s: float) -> str | None:
        """Return the next printed line, or None if there is none in time."""
        try:
            return self._printed.get(timeout=timeout_s)
        except queue.Empty:
            return None

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """Kill the copier with SIGKILL after a random delay, and wait for its end."""
        if self._process is not None:
            time.sleep(self._random.random() * 0.05)
            self._process.kill()
            self._process.wait()


def copy(
    source: str, lines: int, broker: Broker, proxy: FlakyProxy, interruption: Interruption, say: Callable[[str], None]
) -> Copied:
    """Copy a topic while copiers and the broker are killed. Returns the numbers of kills, to which `count` adds the
    rest.
    """
    copied = Copied()
    copiers = Copiers(f"127.0.0.1:{proxy.port}", source, seed=lines)
    kills = [lines * (i + 1) // (COPIER_KILLS + 2) for i in range(COPIER_KILLS + 1)]
    broker_dies_at = kills.pop(len(kills) // 2)
    try:
        _supervise(copiers, copied, kills, broker_dies_at, broker, proxy, interruption, say)
    finally:
        copiers.kill()
    return copied


def _supervise(
    copiers: Copiers,
    copied: Copied,
    kills: list[int],
    broker_dies_at: int | None,
    broker: Broker,
    proxy: FlakyProxy,
    interruption: Interruption,
    say: Callable[[str], None],
) -> None:
    """Run the copiers until they report that they are done; restart one that is killed, ended or stuck.

    kills: kill the copier after each of these numbers of lines. broker_dies_at: kill the broker once, after that many.
    """
    copiers.start()
    done, last = 0, time.monotonic()
    while True:
        interruption.check()
        line = copiers.next_line(0.1)
        if line == "done":
            return
        if line is not None:
            done += int(line.split()[1])
            last = time.monotonic()
        if broker_dies_at is not None and done >= broker_dies_at:
            broker_dies_at = None
            broker.kill()
            proxy.target_port = broker.start()
            copied.brokers_killed += 1
            say(f"          kill -9 of the broker after {done:,} lines; ready again in {broker.ready_s:.2f} s")
        if kills and done >= kills[0]:
            kills.pop(0)
            copiers.kill()
            copied.copiers_killed += 1
            say(f"          kill -9 of the copier after {done:,} lines; its successor continues")
            copiers.start()
            last = time.monotonic()
        elif copiers.ended or time.monotonic() - last > STUCK_S:
            copiers.kill()
            copiers.start()
            last = time.monotonic()


def count(copied: Copied, bootstrap: str, text: list[str], partitions: int) -> None:
    """Read the copy at read_committed and compare it with the text; count the ends of transactions in the log."""
    found: dict[int, list[str]] = {partition: [] for partition in range(partitions)}
    sizes: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for message in read_all(bootstrap, TARGET, partitions):
        found[message.partition()].append(message.value().decode())
        headers = dict(message.headers())
        name = headers["transaction"].decode()
        sizes[name] = int(headers["records"])
        seen[name] += 1
    wanted = Counter(line.upper() for line in text)
    counts = Counter(line for lines in found.values() for line in lines)
    copied.lost = sum((wanted - counts).values())
    copied.twice = sum((counts - wanted).values())
    copied.committed = len(seen)
    copied.half_visible = sum(1 for name, count in seen.items() if count != sizes[name])
    for partition, lines in found.items():
        copied.ordered &= lines == [line.upper() for line in text[partition::partitions]]
    copied.aborted = _count_aborts(bootstrap, partitions)


def _count_aborts(bootstrap: str, partitions: int) -> int:
    """Count aborted transactions in the log: each abort of this copier has its own epoch."""
    wire = Wire(*address(bootstrap))
    ended = set()
    try:
        for partition in range(partitions):
            for batch in _batches(wire, partition):
                marker = read_marker(batch) if batch.is_control else None
                if marker is not None and marker[0] is Marker.ABORT:
                    ended.add((batch.producer_id, batch.producer_epoch))
    finally:
        wire.close()
    return len(ended)


def _batches(wire: Wire, partition: int) -> Iterator[Batch]:
    """Yield all batches of a partition of the copy, from the log."""
    offset = 0
    while True:
        place = FetchRequest.Topic.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        topic = FetchRequest.Topic(topic=TARGET, partitions=[place])
        answer = wire.call(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, topics=[topic]), 11)
        data = b"".join(answer.responses[0].partitions[0].records or ())
        batch = None
        for batch in walk(memoryview(data)):
            yield batch
        if batch is None:
            return
        offset = batch.last_offset + 1


def read_all(bootstrap: str, topic: str, partitions: int) -> list[Any]:
    """Return every committed record of a topic as confluent-kafka's messages. Raises RuntimeError for an error, or if
    no answer comes.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo-look",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    found, ends = [], 0
    try:
        while ends < partitions:
            message = consumer.poll(ANSWER_S)
            if message is None:
                raise RuntimeError(f"reading {topic}: no answer in {ANSWER_S:.0f} s")
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends += 1
            else:
                raise RuntimeError(f"reading {topic}: {error}")
    finally:
        consumer.close()
    return found


def report(copied: Copied) -> None:
    """Print the counts."""
    rows: list[tuple[str, object]] = [
        ("copiers killed", copied.copiers_killed),
        ("brokers killed", copied.brokers_killed),
        ("transactions committed", copied.committed),
        ("transactions aborted", copied.aborted),
        ("lines lost", copied.lost),
        ("duplicates", copied.twice),
        ("half-visible transactions", copied.half_visible),
        ("order kept", "yes" if copied.ordered else "NO"),
    ]
    show()
    for label, value in rows:
        show(f"  {label:36}{value!s:>10}")
