"""Consumers with an inbox, as processes: killed, stopped until others have their partitions, joined and left.

Each record's effect is in the database once, in order. They stop for 3 s, three times their session; in the long runs
some stop for 20 s.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from inbox_worker import TABLE

from fencepost import Admin, Broker, ErrorCode, KafkaError, NewTopic, Producer, sql

WORKER = Path(__file__).parents[2] / "support" / "clients" / "inbox_worker.py"
PARTITIONS, WORKERS, WITHIN_S = 4, 3, 120
QUICK, LONG = 3, 100  # what happens to workers in one run


class Crew:
    """Workers of one group. All of them end with the block."""

    def __init__(self, *arguments):
        self._command = [sys.executable, str(WORKER), *arguments]
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            self.end(process)

    def begin(self):
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def end(self, process):
        process.kill()
        process.wait()

    def replace(self, process):
        self.end(process)
        self.processes.remove(process)
        self.begin()


async def produce(broker, stop):
    """Send to all partitions until told to stop, and return how many records each has."""
    counts = [0] * PARTITIONS
    async with Producer(broker) as producer:
        while not stop.is_set():
            for partition in range(PARTITIONS):
                await producer.send("orders", b"x", partition=partition)
                counts[partition] += 1
            await asyncio.sleep(0.02)
    return counts


async def effects(db):
    """Return the offsets whose effects are in the database, by partition, in the order in which they came."""
    found = [[] for _ in range(PARTITIONS)]
    order = "rowid" if db.dialect == "sqlite" else "ctid"
    for partition, at in await db.fetch(f"select partition_number, at from effects order by {order}"):
        found[partition].append(at)
    return found


async def harass(crew, choice, admin, times, stops_s):
    """Kill, stop and add workers; delete the group where it is empty."""
    for _ in range(times):
        await asyncio.sleep(choice.uniform(0.3, 1.2))
        process = choice.choice(crew.processes)
        what = choice.choice(["kill", "stop", "all"])
        if what == "kill":
            crew.replace(process)
        elif what == "stop":
            os.kill(process.pid, signal.SIGSTOP)
            await asyncio.sleep(choice.choice(stops_s))
            os.kill(process.pid, signal.SIGCONT)
        else:
            for each in [*crew.processes]:
                crew.end(each)
            crew.processes.clear()
            await delete_group(admin)
            for _ in range(WORKERS):
                crew.begin()


async def delete_group(admin):
    """Delete the group when the sessions of its members have ended."""
    for _ in range(100):
        try:
            await admin.delete_groups(["billing"])
        except KafkaError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:  # nobody has joined yet
                return
            if error.code != ErrorCode.NON_EMPTY_GROUP:
                raise
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("the group has members still")


async def wait_for(db, count):
    """Wait until there are so many effects."""
    async with asyncio.timeout(WITHIN_S):
        while (await db.fetch("select count(*) from effects"))[0][0] < count:  # noqa: ASYNC110 (processes write it)
            await asyncio.sleep(0.1)


async def compare(tmp_path, url, protocol, seed, times, stops_s):
    settings = {"group_min_session_timeout_ms": 500, "group_consumer_min_session_timeout_ms": 500}
    settings |= {"group_consumer_session_timeout_ms": 1_000, "group_consumer_min_heartbeat_interval_ms": 100}
    settings |= {"group_consumer_heartbeat_interval_ms": 200, "group_initial_rebalance_delay_ms": 0}
    async with (
        Broker(data_dir=tmp_path / "broker", **settings) as broker,
        Admin(broker.bootstrap_servers) as admin,
        sql.connect(url, create=True) as db,
    ):
        await admin.create_topics([NewTopic("orders", PARTITIONS)])
        await db.execute(TABLE)
        with Crew(broker.bootstrap_servers, protocol, url) as crew:
            for _ in range(WORKERS):
                crew.begin()
            stop = asyncio.Event()
            producing = asyncio.ensure_future(produce(broker.bootstrap_servers, stop))
            await harass(crew, random.Random(seed), admin, times, stops_s)
            stop.set()
            counts = await producing
            await wait_for(db, sum(counts))
            assert await effects(db) == [list(range(count)) for count in counts]


@pytest.mark.slow
async def test_inbox_consumers_killed_at_random_apply_each_record_once_in_sqlite(tmp_path):
    await compare(tmp_path, f"sqlite:///{tmp_path}/bills.db", "classic", 1, QUICK, [3])


@pytest.mark.slow
async def test_inbox_consumers_killed_at_random_apply_each_record_once_in_postgresql(tmp_path, postgres_url):
    await compare(tmp_path, postgres_url, "consumer", 2, QUICK, [3])


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_inbox_consumers_apply_each_record_once_through_a_hundred_faults(tmp_path, postgres_url, protocol):
    await compare(tmp_path, postgres_url, protocol, 3, LONG, [3, 3, 20])
