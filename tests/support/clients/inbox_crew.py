"""Workers with an inbox, as processes of one group: they are killed, stopped, and have their group deleted."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inbox_worker import TABLES

from fencepost import Admin, ErrorCode, KafkaError, NewTopic, Producer, sql

WORKER = Path(__file__).parent / "inbox_worker.py"
PARTITIONS, WORKERS, WITHIN_S = 4, 3, 120


class Crew:
    """Workers of one group, which read one topic. All of them end with the block."""

    def __init__(
        self,
        bootstrap: str,
        protocol: str,
        url: str,
        topic: str = "orders",
        group: str = "billing",
        session_ms: int = 1_000,
    ) -> None:
        """protocol: "classic" or "consumer". url: of the database. session_ms: of members of the classic protocol."""
        self._command = [sys.executable, str(WORKER), bootstrap, protocol, url, topic, group, str(session_ms)]
        self._group = group
        self._session_s = session_ms / 1000
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            self.end(process)

    def begin(self) -> None:
        self.processes.append(subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        process.kill()
        process.wait()

    def replace(self, process: "subprocess.Popen[bytes]") -> None:
        self.end(process)
        self.processes.remove(process)
        self.begin()

    async def harass(self, choice: random.Random, admin: Admin, times: int, stops_s: Sequence[int]) -> None:
        """Kill and stop workers; kill all, and delete the group. stops_s: for how long one is stopped."""
        for _ in range(times):
            await asyncio.sleep(choice.uniform(0.3, 1.2))
            process = choice.choice(self.processes)
            what = choice.choice(["kill", "stop", "all"])
            if what == "kill":
                self.replace(process)
            elif what == "stop":
                os.kill(process.pid, signal.SIGSTOP)
                await asyncio.sleep(choice.choice(stops_s))
                os.kill(process.pid, signal.SIGCONT)
            else:
                for each in [*self.processes]:
                    self.end(each)
                self.processes.clear()
                await self._delete_group(admin)
                for _ in range(WORKERS):
                    self.begin()

    async def _delete_group(self, admin: Admin) -> None:
        """Delete the group when the sessions of its members have ended."""
        for _ in range(100 + int(20 * self._session_s)):
            try:
                await admin.delete_groups([self._group])
            except KafkaError as error:
                if error.code == ErrorCode.GROUP_ID_NOT_FOUND:  # nobody has joined yet
                    return
                if error.code != ErrorCode.NON_EMPTY_GROUP:
                    raise
                await asyncio.sleep(0.1)
            else:
                return
        raise AssertionError("the group has members still")


async def produce(bootstrap: str, topic: str, stop: asyncio.Event) -> list[int]:
    """Send to all partitions until told to stop, and return how many records each has."""
    counts = [0] * PARTITIONS
    async with Producer(bootstrap) as producer:
        while not stop.is_set():
            for partition in range(PARTITIONS):
                await producer.send(topic, b"x", partition=partition)
                counts[partition] += 1
            await asyncio.sleep(0.02)
    return counts


async def effects(db: Any) -> list[list[int]]:
    """Return the offsets whose effects are in the database, by partition, in the order in which they came."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for partition, at in await db.fetch("select partition_number, at from effects order by position"):
        found[partition].append(at)
    return found


async def wait_for(db: Any, count: int) -> None:
    """Wait until the table `effects` has `count` rows."""
    async with asyncio.timeout(WITHIN_S):
        while (await db.fetch("select count(*) from effects"))[0][0] < count:  # noqa: ASYNC110 (processes write it)
            await asyncio.sleep(0.1)


async def compare_under_faults(
    crew: Crew, bootstrap: str, url: str, seed: int, times: int, stops_s: Sequence[int], topic: str = "orders"
) -> None:
    """Create the topic, and produce to it while workers read it and Crew.harass() kills and stops them. Then compare
    the effects in the database with the records.
    """
    async with Admin(bootstrap) as admin, sql.connect(url, create=True) as db:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])
        await db.execute(TABLES[db.dialect])
        with crew:
            for _ in range(WORKERS):
                crew.begin()
            stop = asyncio.Event()
            producing = asyncio.ensure_future(produce(bootstrap, topic, stop))
            await crew.harass(random.Random(seed), admin, times, stops_s)
            stop.set()
            counts = await producing
            await wait_for(db, sum(counts))
            found, written = await effects(db), [list(range(count)) for count in counts]
            assert found == written, [_first_difference(*each) for each in zip(found, written, strict=True)]


def _first_difference(found: list[int], written: list[int]) -> tuple[list[int], list[int]]:
    """Return up to nine numbers of each list, from the first place on at which they differ."""
    place = next((at for at, pair in enumerate(zip(found, written, strict=False)) if pair[0] != pair[1]), len(found))
    return found[place : place + 9], written[place : place + 9]
