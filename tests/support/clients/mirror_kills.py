"""A mirror under kills: its tasks as processes, the brokers of both sides, and who writes to the source meanwhile."""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fencepost.client.errors import KafkaError
from fencepost.client.producer.producer import Producer
from mirrored import Sides

PARTITIONS = 6
SESSION_S = 6
OPTIONS = (
    "--every",
    "1s",
    "-X",
    f"to.session.timeout.ms={SESSION_S * 1000}",
    "-X",
    "to.transaction.timeout.ms=10000",
)


class KilledBroker(Protocol):
    """A broker process, such as BrokerProcess."""

    @property
    def bootstrap(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class KilledMirror:
    """A mirror of these topics between two brokers, which are running. directory: for what its tasks say."""

    def __init__(
        self, source: KilledBroker, target: KilledBroker, topics: str, directory: Path, chance: random.Random
    ) -> None:
        self.sides = Sides(source.bootstrap, target.bootstrap)
        self._brokers = {"source": source, "target": target}
        self._topics = topics
        self._directory = directory
        self._chance = chance
        self._tasks: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self, tasks: int) -> None:
        """Start this many tasks."""
        self._tasks += [self._start_task() for _ in range(tasks)]

    def _start_ended(self) -> None:
        """Start those tasks again that have ended by themselves: they could not reach a broker when they started."""
        for number, task in enumerate(self._tasks):
            if task.poll() is not None:
                self._tasks[number] = self._start_task()

    def _start_task(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fencepost", "mirror", "--from", self.sides.source, "--to", self.sides.target]
        with (self._directory / f"task-{self._started}").open("ab") as out:
            self._started += 1
            return subprocess.Popen([*command, "--topics", self._topics, *OPTIONS], stdout=out, stderr=out)

    async def suffer(self, fault: str) -> None:
        """Kill the source, the target or a task, and start it again; "stop": stop a task beyond its session."""
        if fault in self._brokers:
            await asyncio.to_thread(self._brokers[fault].kill)
            await asyncio.to_thread(self._brokers[fault].start)
            return
        victim = self._chance.randrange(len(self._tasks))
        if fault == "stop":
            self._tasks[victim].send_signal(signal.SIGSTOP)
            await asyncio.sleep(SESSION_S + 2)
            self._tasks[victim].send_signal(signal.SIGCONT)
        else:
            self._tasks[victim].kill()
            self._tasks[victim].wait()
            self._tasks[victim] = self._start_task()

    async def suffer_all(self, faults: Sequence[str]) -> None:
        """Make these faults happen one after the other, with random pauses."""
        for fault in faults:
            await asyncio.sleep(self._chance.uniform(0.3, 2.5))
            self._start_ended()
            await self.suffer(fault)

    async def drained(self, *topics: str) -> None:
        """Wait until all of these topics is copied: for several minutes, on a busy machine."""
        for _ in range(9):
            self._start_ended()
            with contextlib.suppress(TimeoutError):
                await self.sides.drained(*topics)
                return
        await self.sides.drained(*topics)

    async def cut_over(self, groups: str, *, kills: int) -> None:
        """Move the groups to the target by `fencepost mirror cutover`, after `kills` runs of it that are killed."""
        sides = ("--from", self.sides.source, "--to", self.sides.target)
        command = [sys.executable, "-m", "fencepost", "mirror", "cutover", *sides, "--groups", groups]
        for _ in range(kills):
            cutover = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
            await asyncio.sleep(self._chance.uniform(0.3, 2.5))
            with contextlib.suppress(ProcessLookupError):  # it was quicker
                cutover.kill()
            await cutover.wait()
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    def end(self) -> None:
        """Kill the tasks."""
        for task in self._tasks:
            task.kill()
            task.wait()
        self._tasks.clear()

    def show_logs(self) -> None:
        """Print the last 2000 characters of each task's output; pytest shows them if the test has failed."""
        for path in sorted(self._directory.glob("task-*")):
            sys.stdout.write(f"---- {path.name}\n{path.read_text()[-2000:]}\n")


def value_of(topic: str, partition: int, number: int | str) -> bytes:
    """Return the value of a record: its topic, partition and number."""
    return f"{topic}-{partition}/{number}".encode()


async def write_transactions(bootstrap: str, topic: str, records: int, may_end: asyncio.Event) -> None:
    """Write until `records` records are surely committed, and more until it may end; each fourth transaction is
    aborted.

    A transaction that fails is begun anew. Where its commit may have happened, only a reader can tell: so what is
    compared is the source with the target, and not what was written.
    """
    written = 0
    while written < 3 * records // 2 or not may_end.is_set():
        try:
            async with Producer(bootstrap, transactional_id="writer") as producer:
                while written < 3 * records // 2 or not may_end.is_set():
                    await producer.begin_transaction()
                    for each in range(written, written + 100):
                        at = each % PARTITIONS
                        await producer.send(topic, value_of(topic, at, each), key=b"%d" % (each % 999), partition=at)
                    aborts = written % 400 == 300
                    await (producer.abort_transaction() if aborts else producer.commit_transaction())
                    written += 100
                    await asyncio.sleep(0.1)
        except (KafkaError, OSError):
            await asyncio.sleep(0.2)
