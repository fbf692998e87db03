"""`fencepost spark demo`: real text copied and counted by Spark streams while executor and driver are killed.

The executor is killed after a quarter of the copy, the driver with its JVM after half of it. Spark replaces the
executor; the demo starts another driver on the same checkpoint. Then the copy is compared with the text, record by
record, and the counts with those that Python computes.
"""

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ... import sync
from ...broker.embedded.broker import Broker
from ...client.admin.values import NewTopic
from ...client.values import TopicPartition
from ...effects.threads import start_thread
from ..demo.stage import PARTITIONS, lines_of_text, progress, say, version, whole_lines
from ..output.failures import Failure
from ..output.interruption import Interruption
from ..output.writing import show

TEXT, COPIES, COUNTS = "text", "copies", "counts"
BATCHES = 10
EXECUTOR_DIES_AT, DRIVER_DIES_AT = 0.25, 0.5
STUCK_S = 180.0
LOOK_S = 0.2
EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"


@dataclass(slots=True)
class Found:
    """The counts of the finished copy."""

    lost: int
    twice: int
    changed: int
    wrong_counts: int
    words: int

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.changed or self.wrong_counts)


class Driver:
    """The Spark driver as a process, with a JVM and an executor as its children."""

    def __init__(self, servers: str, folder: str, per_batch: int) -> None:
        command = [sys.executable, "-P", "-m", f"{__package__}.demo_query", servers, TEXT, COPIES, COUNTS, folder]
        self._log = Path(folder) / "driver.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, str(per_batch)], stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self._printed: queue.Queue[str] = queue.Queue()
        start_thread(self._listen, "output of the driver")

    def _listen(self) -> None:
        """Put each line that the driver prints into the queue; runs in a thread until the driver ends."""
        assert self._process.stdout is not None
        for line in whole_lines(self._process.stdout):
            self._printed.put(line)

    def next_line(self) -> str | None:
        """Return the next line that the driver has printed; None if there is none yet."""
        with contextlib.suppress(queue.Empty):
            return self._printed.get_nowait()
        return None

    def check(self) -> None:
        """Raise Failure, with the driver's last output, if it has ended with an error."""
        if self._process.poll() not in (None, 0):
            lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            raise Failure(
                f"Spark's driver ended: {' '.join(lines[-3:])}", "the error shows the last lines of its log", 1
            )

    def kill_executor(self) -> bool:
        """Kill the executor's JVM with SIGKILL. Returns False if there is none at the moment."""
        found = [each for each in _below(self._process.pid) if EXECUTOR_CLASS in _command_of(each)]
        for each in found:
            os.kill(each, signal.SIGKILL)
        return bool(found)

    def kill(self) -> None:
        """Kill the driver's Python process and all its JVMs with SIGKILL, and wait for its end."""
        below = [each for each in _below(self._process.pid) if "java" in _command_of(each)]
        for each in (*below, self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait()


def _below(pid: int) -> list[int]:
    """Return the ids of all processes below this one, from ps, which Linux and macOS have."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for line in table.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    pending = [pid]
    while pending:
        found += (below := children.get(pending.pop(), []))
        pending += below
    return found


def _command_of(pid: int) -> str:
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout


def demonstrate(lines: int) -> bool:
    """Run the demo and print its report. Returns whether all counts are right."""
    text = [f"{number}:{line}" for number, line in enumerate(lines_of_text(lines))]
    began = time.monotonic()
    with Interruption() as interruption, tempfile.TemporaryDirectory(prefix="fencepost-spark-") as folder:
        say(f"text      {len(text):,} lines of the project's own documents")
        with Broker(Path(folder) / "data") as broker:
            _fill(broker.bootstrap_servers, text)
            say(f"spark     {version('pyspark')}, an executor of its own, batches of {len(text) // BATCHES:,} lines")
            _run(broker.bootstrap_servers, folder, len(text), interruption)
            found = _compare(broker.bootstrap_servers, text)
    say(f"copy      {len(text):,} lines: lost {found.lost}, twice {found.twice}, changed {found.changed}")
    say(f"counts    {found.words:,} words: wrong {found.wrong_counts}")
    mark, words = ("✔", "exactly once") if found.good else ("✘", "NOT exactly once")
    show()
    show(f"{mark} {words}, {time.monotonic() - began:.1f} s")
    return found.good


def _fill(servers: str, text: list[str]) -> None:
    """Create the demo's topics and write the text."""
    with sync.Admin(servers) as admin:
        admin.create_topics([NewTopic(TEXT, PARTITIONS, 1), NewTopic(COPIES, PARTITIONS, 1), NewTopic(COUNTS, 1, 1)])
    with sync.Producer(servers) as producer:
        for number, line in enumerate(text):
            producer.send(TEXT, line.encode(), partition=number % PARTITIONS)
        producer.flush()


def _run(servers: str, folder: str, total: int, interruption: Interruption) -> None:
    """Run drivers one after the other, with the kills, until one has finished. Raises Failure if none gets on."""
    kills = [(EXECUTOR_DIES_AT, "executor"), (DRIVER_DIES_AT, "driver")]
    applications: list[str] = []
    driver = Driver(servers, folder, total // BATCHES)
    try:
        with sync.Consumer(servers) as consumer, progress(total) as show:
            moved_at, before = time.monotonic(), -1
            while (word := driver.next_line()) != "done":
                if word and word.startswith("application "):
                    applications.append(word.split()[-1])
                interruption.check()
                driver.check()
                seen = sum(consumer.end_offsets([TopicPartition(COPIES, each) for each in range(PARTITIONS)]).values())
                show(min(seen, total))
                if seen != before or word:
                    moved_at, before = time.monotonic(), seen
                elif time.monotonic() - moved_at > STUCK_S:
                    raise Failure(
                        f"nothing was copied for {STUCK_S:.0f} s", "run it again; the machine may be overloaded"
                    )
                if kills and seen >= kills[0][0] * total:
                    driver = _do_next_kill(kills, driver, seen, lambda: Driver(servers, folder, total // BATCHES))
                time.sleep(LOOK_S)
    finally:
        driver.kill()
        _remove_work_folders(applications)


def _remove_work_folders(applications: list[str]) -> None:
    """Remove the folders that Spark's local cluster made for these applications in its installation."""
    import pyspark

    work = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "work"
    for each in applications:
        shutil.rmtree(work / each, ignore_errors=True)
    with contextlib.suppress(OSError):
        work.rmdir()


def _do_next_kill(kills: list[tuple[float, str]], driver: Driver, seen: int, another: Callable[[], Driver]) -> Driver:
    """Do the next kill, if possible. Returns the current driver."""
    whom = kills[0][1]
    if whom == "executor":
        if driver.kill_executor():
            kills.pop(0)
            say(f"kill -9   the executor, at {seen:,}; Spark starts another")
        return driver
    driver.kill()
    kills.pop(0)
    say(f"kill -9   the driver and its JVM, at {seen:,}; started again on the same checkpoint")
    return another()


def _compare(servers: str, text: list[str]) -> Found:
    """Compare copies and word counts with the text. Returns how many lines are lost, duplicate or changed, and how
    many counts are wrong.
    """
    copies = Counter(value for _, value in _read(servers, COPIES))
    whole = set(text)
    counts = dict(_read(servers, COUNTS))  # the last count of each word
    expected = Counter(word for line in text for word in re.split("[^a-z]+", line.split(":")[-1].lower()) if word)
    return Found(
        lost=len(whole - copies.keys()),
        twice=sum(count - 1 for line, count in copies.items() if line in whole),
        changed=sum(count for line, count in copies.items() if line not in whole),
        wrong_counts=sum(counts.get(word) != str(expected[word]) for word in counts.keys() | expected.keys()),
        words=len(counts),
    )


def _read(servers: str, topic: str) -> list[tuple[str, str]]:
    """Return keys and values of all records that read_committed sees, in the order of each partition."""
    found = []
    with sync.Consumer(servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, each) for each in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for records in consumer.getmany(timeout_ms=200).values():
                found += [((each.key or b"").decode(), (each.value or b"").decode()) for each in records]
    return found
