"""A mirror whose tasks, source and target are killed again and again, and put to sleep: every record once."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.errors import KafkaError
from fencepost.client.producer.producer import Producer
from mirrored import Sides, assert_exact

pytestmark = pytest.mark.long
RECORDS = int(os.environ.get("MIRROR_RECORDS", "100000"))
KILLS = int(os.environ.get("MIRROR_KILLS", "20"))
PARTITIONS = 6
OPTIONS = (
    "--topics",
    "t",
    "--every",
    "1s",
    "-X",
    "to.session.timeout.ms=6000",
    "-X",
    "to.transaction.timeout.ms=10000",
)


def start_task(sides: Sides, log: Path) -> subprocess.Popen[bytes]:
    """Start one `fencepost mirror`, whose output goes to the file."""
    command = [sys.executable, "-m", "fencepost", "mirror", "--from", sides.source, "--to", sides.target, *OPTIONS]
    with log.open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out)


def show_logs(directory: Path) -> None:
    """Print the ends of what the tasks have said; pytest shows it of a test that failed."""
    for path in sorted(directory.glob("task-*")):
        sys.stdout.write(f"---- {path.name}\n{path.read_text()[-2000:]}\n")


async def write(bootstrap: str, may_end: asyncio.Event) -> None:
    """Write until RECORDS are committed for sure, and more until it may end; each fourth transaction is aborted.

    A transaction that fails is begun anew. Where its commit may have happened, only a reader can tell: so what is
    compared is the source with the target, and not what was written.
    """
    written = 0
    while written < 3 * RECORDS // 2 or not may_end.is_set():
        try:
            async with Producer(bootstrap, transactional_id="writer") as producer:
                while written < 3 * RECORDS // 2 or not may_end.is_set():
                    await producer.begin_transaction()
                    for each in range(written, written + 100):
                        await producer.send("t", b"%d" % each, key=b"%d" % (each % 999), partition=each % PARTITIONS)
                    aborts = written % 400 == 300
                    await (producer.abort_transaction() if aborts else producer.commit_transaction())
                    written += 100
                    await asyncio.sleep(0.1)
        except (KafkaError, OSError):
            await asyncio.sleep(0.2)


async def test_a_mirror_copies_each_record_once_though_tasks_and_brokers_are_killed(tmp_path: Path) -> None:
    chance = random.Random(7)
    source, target = (BrokerProcess(str(tmp_path / name)) for name in ("source", "target"))
    source.start()
    target.start()
    sides = Sides(source.bootstrap, target.bootstrap)
    async with Admin(sides.source) as admin:
        await admin.create_topics(NewTopic("t", PARTITIONS))
    tasks = [start_task(sides, tmp_path / f"task-{each}") for each in range(3)]
    try:
        may_end = asyncio.Event()
        writing = asyncio.ensure_future(write(sides.source, may_end))
        faults = ["source", "target", "task"] * KILLS + ["stop"] * (KILLS // 4)
        chance.shuffle(faults)
        for number, fault in enumerate(faults):
            await asyncio.sleep(chance.uniform(0.3, 2.5))
            victim = chance.randrange(len(tasks))
            if fault == "source":
                await asyncio.to_thread(source.kill)
                await asyncio.to_thread(source.start)
            elif fault == "target":
                await asyncio.to_thread(target.kill)
                await asyncio.to_thread(target.start)
            elif fault == "stop":
                tasks[victim].send_signal(signal.SIGSTOP)
                await asyncio.sleep(8)  # beyond its session
                tasks[victim].send_signal(signal.SIGCONT)
            else:
                tasks[victim].kill()
                tasks[victim].wait()
                tasks[victim] = start_task(sides, tmp_path / f"task-{number}")
        may_end.set()
        await writing
        for _ in range(20):  # a drained() waits for a minute each
            try:
                await sides.drained("t")
                break
            except TimeoutError:
                pass
        copied = await assert_exact(sides, "t")
        print(
            f"{copied} records, {faults.count('task')} kills of tasks, source and target, {faults.count('stop')} stops"
        )
        assert copied >= RECORDS
    finally:
        for task in tasks:
            task.kill()
            task.wait()
        source.kill()
        target.kill()
        show_logs(tmp_path)
