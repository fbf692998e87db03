"""Outbox relays by a group's offsets, with Apache Kafka and with our broker: KAFKA=HOST:PORT pytest -m long FILE.

Each row is sent once, and those of a key in their order. With our broker the relays of all three ways are killed in
tests/client/sql/outbox/.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.net.environment import SYSTEM
from fencepost.client.sql import sqlite
from fencepost.client.sql.outbox.statements import outbox_schema
from mirrored import records_of
from outbox_rows import insert_until
from relays import Where, relay_with_trouble

from fencepost import sql

pytestmark = pytest.mark.long
RUN = f"o{os.getpid()}"  # part of every name: a Kafka that is given keeps what earlier runs left
LEAST = 30  # calls of a relay with three rows
KEYS = b"abcd"
KILLS = 8
FENCED = 5  # exit code of `fencepost outbox` that another one has taken over from


async def make(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1)])


async def values_of(bootstrap: str, topic: str) -> list[bytes]:
    """Return what a read_committed reader gets up to the end: nothing holds it up."""
    (records,) = (await records_of(bootstrap, topic)).values()
    return [record.value or b"" for record in records]


@pytest.mark.parametrize("how", ["killed", "stopped", "unanswered"])
async def test_each_row_is_sent_once_whatever_happens_to_a_relay_at_any_call(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Another relay goes on: after the first one, or beside it if it was stopped."""
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_S", 0)

    async def relay(at: int) -> list[str]:
        topic = f"{RUN}-{how}-{at}"
        await make(bootstrap, topic)
        where = Where(SYSTEM, bootstrap, topic, f"outbox-{topic}")
        path = str(tmp_path / f"{at}.db")
        return await relay_with_trouble(
            where, path, "offsets", at, how, lambda: values_of(bootstrap, topic), pause_s=0, patience_s=3
        )

    names = await relay(-1)
    assert len(names) >= LEAST, names
    for at in range(len(names)):
        await relay(at)


async def end_at(bootstrap: str, topic: str) -> int:
    """Return the log's end, which each transaction moves."""
    from fencepost.client.values import TopicPartition

    async with Admin(bootstrap) as admin:
        (end,) = (await admin.ends([TopicPartition(topic, 0)], -1)).values()
    return int(end)


async def test_of_two_relays_at_once_that_are_killed_each_row_is_sent_once(bootstrap: str, postgres_url: str) -> None:
    """Four writers insert rows whose positions are committed out of order. Each new relay starts beside the old one."""
    topic = f"{RUN}-two"
    await make(bootstrap, topic)
    async with sql.connect(postgres_url, create=True) as db:
        for statement in outbox_schema("postgresql", "outbox"):
            await db.execute(statement)
        where = ["-b", bootstrap, "--db", postgres_url, "--to", topic, "--name", topic, "--by", "offsets"]
        words = [sys.executable, "-m", "fencepost", "outbox", *where, "--at-once", "20"]
        done, chance = asyncio.Event(), random.Random(5)
        writers = [asyncio.create_task(insert_until(postgres_url, key, done)) for key in KEYS]
        relays: list[asyncio.subprocess.Process] = []

        async def begin() -> None:
            """Start one more, and wait until something is sent again."""
            relays.append(await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL))
            end = await end_at(bootstrap, topic)
            async with asyncio.timeout(60):
                while await end_at(bootstrap, topic) < end + 10:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

        try:
            await begin()
            for number in range(KILLS):
                if number % 2:  # a kill, and then a new one
                    relays[-1].kill()
                    await begin()
                else:  # a second one beside it
                    await begin()
                    assert await asyncio.wait_for(relays[-2].wait(), 60) == FENCED
                await asyncio.sleep(chance.random() * 0.5)
            done.set()
            written = await asyncio.gather(*writers)
        finally:
            done.set()
            for each in relays:
                if each.returncode is None:
                    each.kill()
                    await each.wait()
        last = await asyncio.create_subprocess_exec(*words, "--until-empty")
        assert await last.wait() == 0
        found = await values_of(bootstrap, topic)
        for key, rows in zip(KEYS, written, strict=True):
            assert [value for value in found if value[0] == key] == rows
        assert len(found) == sum(map(len, written))
        assert await db.fetch("select count(*) from outbox") == [(0,)]
