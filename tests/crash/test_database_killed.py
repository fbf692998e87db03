"""Writers over a database and a broker: they, the broker and PostgreSQL are killed at random, in real processes.

Each row has its record and each record its row, in one order for each key; nothing stays prepared, and readers get to
the end. A killed writer has a successor; before that one starts, `fencepost txn resolve` sometimes ends what was left.
Some writers are stopped for longer than their transaction timeout, and go on beside their successors. KILLS (default
100) in all, in an order that the printed SEED gives. The suite has writers that are killed at each of their calls
(tests/client/sql/test_killed_writers.py).
"""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess, broker_process
from database_writer import TABLES, TRANSACTION_TIMEOUT_MS
from mirrored import records_of
from postgres_server import MISSING, PostgresServer, find_programs

from fencepost import Admin, NewTopic, TopicPartition, sql

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).parents[1] / "support" / "clients" / "database_writer.py"
KILLS = int(os.environ.get("KILLS", "100"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1 << 32)
WRITERS, PARTITIONS = 4, 3
AT_WORK = 6  # commits between two faults
PATIENCE_S = 120


class Writer:
    """A process that writes with this transactional id. last: its last line of output; committed: how often it
    committed.
    """

    def __init__(self, name: str, life: int, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name, self.life, self.process, self.log = name, life, process, log
        self.last, self.committed = "", 0
        self.was_killed = False
        self.has_said = asyncio.Event()

    def __str__(self) -> str:
        return f"{self.name} {self.life}: committed {self.committed}, {self.last!r}, ended {self.process.returncode}"

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None


class Crew:
    """The writers, and how often they printed each line. writers: the newest one of each id. The block's end kills
    all.
    """

    def __init__(self, bootstrap: str, urls: list[str], logs: Path) -> None:
        """urls: of the database, which the writers take in turn."""
        self._bootstrap, self._urls, self._logs = bootstrap, urls, logs
        self.writers: dict[str, Writer] = {}
        self.said: Counter[str] = Counter()
        self.resolved: Counter[str] = Counter()
        self._all: list[Writer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> "Crew":
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._all:
            if each.is_alive:
                each.process.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url_of(self, name: str) -> str:
        return self._urls[int(name.rpartition("-")[2]) % len(self._urls)]

    async def begin(self, name: str) -> Writer:
        """Start a writer with this id; it takes the place of the one before."""
        life = self.writers[name].life + 1 if name in self.writers else 0
        log = self._logs / f"{name}-{life}.log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(PROGRAM), self._bootstrap, self.url_of(name), name, str(life)),
                stdout=asyncio.subprocess.PIPE,
                stderr=out,
            )
        writer = self.writers[name] = Writer(name, life, process, log)
        self._all.append(writer)
        self._tasks.append(asyncio.create_task(self._listen(writer)))
        return writer

    async def _listen(self, writer: Writer) -> None:
        assert writer.process.stdout is not None
        async for line in writer.process.stdout:
            async with self._changed:
                writer.last = line.decode().strip()
                writer.committed += writer.last == "committed"
                self.said[writer.last] += 1
                self._changed.notify_all()
        await writer.process.wait()
        async with self._changed:
            self._changed.notify_all()

    async def until(self, done: Any) -> None:
        """Wait until done() is true; it is called whenever a writer prints a line or ends.

        Raises AssertionError as soon as check() does, or after PATIENCE_S.
        """
        try:
            async with asyncio.timeout(PATIENCE_S), self._changed:
                await self._changed.wait_for(lambda: done() or self._ended_by_themselves())
        except TimeoutError:
            raise AssertionError([str(each) for each in self._all if each.is_alive or not each.was_killed]) from None
        self.check()

    def _ended_by_themselves(self) -> list[Writer]:
        """Return the writers that have ended for another reason than a kill by this test or a fence by their
        successor.
        """
        return [
            each
            for each in self._all
            if not each.is_alive
            and not each.was_killed
            and ((each.last, each.process.returncode) != ("fenced", 0) or each is self.writers[each.name])
        ]

    def check(self) -> None:
        """Raise AssertionError if a writer has ended that was neither killed by this test nor fenced by its
        successor.
        """
        for each in self._ended_by_themselves():
            raise AssertionError(f"{each}:\n{each.log.read_text()[-5000:]}")

    async def work(self) -> None:
        """Wait until the writers have committed AT_WORK more transactions."""
        before = self.said["committed"]
        await self.until(lambda: self.said["committed"] >= before + AT_WORK)

    async def end(self, writer: Writer) -> None:
        writer.was_killed = True
        writer.process.kill()
        await writer.process.wait()

    async def resolve(self, *more: str) -> int:
        """Run `fencepost txn resolve`, count what it ended how, and return its exit code."""
        words = [sys.executable, "-m", "fencepost", "txn", "resolve", "-b", self._bootstrap, "--db", self._urls[0]]
        process = await asyncio.create_subprocess_exec(
            *words, *more, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        for line in out.decode().splitlines():
            if " number " in line:
                self.resolved[line.partition(": ")[2].partition(",")[0]] += 1
        assert process.returncode in (0, 4), (out, err)  # 4: some stay undecided, as broker or database did not answer
        return process.returncode

    def ended_by_successors(self) -> int:
        """Return how many prepared transactions of predecessors the writers have ended."""
        return sum(each.log.read_text().count("fencepost.client:'writer-") for each in self._all)


class Trouble:
    """What happens to the crew, the broker and the database. counts: of each kind."""

    def __init__(self, crew: Crew, broker: BrokerProcess, server: PostgresServer | None, chance: random.Random) -> None:
        self._crew, self._broker, self._server, self._chance = crew, broker, server, chance
        self.counts: Counter[str] = Counter()
        self._kinds = {"writer": self._kill_writer, "broker": self._kill_broker, "database": self._kill_database}

    async def make(self, kinds: list[str]) -> None:
        """Make KILLS kills, of these kinds as often, in random order; for "stop" among them some stops."""
        plan = [kinds[number % len(kinds)] for number in range(KILLS)]
        if self._server is not None:
            plan += ["stop"] * (KILLS // 10)
        self._chance.shuffle(plan)
        for kind in plan:
            await self._crew.work()
            await asyncio.sleep(self._chance.uniform(0, 0.3))  # any of their steps may be met
            await (self._stop_writer() if kind == "stop" else self._kinds[kind]())
            self.counts[kind] += 1

    def _any_writer(self) -> Writer:
        return self._crew.writers[self._chance.choice(sorted(self._crew.writers))]

    async def _kill_writer(self) -> None:
        writer = self._any_writer()
        await self._crew.end(writer)
        if self._chance.random() < 0.3:
            await self._crew.resolve()
        await self._crew.begin(writer.name)

    async def _kill_broker(self) -> None:
        await asyncio.to_thread(self._broker.kill)
        await asyncio.to_thread(self._broker.start)

    async def _kill_database(self) -> None:
        assert self._server is not None
        await asyncio.to_thread(self._server.kill)
        await asyncio.to_thread(self._server.start)

    async def _stop_writer(self) -> None:
        """Stop a writer for longer than its transaction timeout, give it a successor, and let it go on: it is fenced.

        Where it holds its row, the successor can begin only after it goes on, or `resolve --terminate` has ended its
        session.
        """
        stopped = self._any_writer()
        await self._crew.until(lambda: stopped.committed)  # one that has not begun yet would be the newer one
        stopped.process.send_signal(signal.SIGSTOP)
        successor = await self._crew.begin(stopped.name)
        await asyncio.sleep(TRANSACTION_TIMEOUT_MS / 1000 + 1)
        if not successor.committed and self._chance.random() < 0.7:
            await self._crew.resolve("--terminate")
        self.counts["taken over while stopped"] += bool(successor.committed)
        stopped.process.send_signal(signal.SIGCONT)
        await self._crew.until(lambda: not stopped.is_alive)
        await self._crew.until(lambda: successor.committed)
        assert stopped.last == "fenced", stopped.log.read_text()[-5000:]


async def end_what_is_left(crew: Crew, admin: Admin) -> None:
    """Kill all writers at once, and end what they left, until readers get to the end of each partition."""
    for writer in crew.writers.values():
        await crew.end(writer)
    while await crew.resolve() != 0:
        pass
    partitions = [TopicPartition("orders", each) for each in range(PARTITIONS)]
    async with asyncio.timeout(PATIENCE_S):
        while await admin.ends(partitions, -1, "read_committed") != await admin.ends(partitions, -1):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # for the timeout of what was not prepared
    assert await admin.list_transactions(states=["Ongoing", "PrepareCommit", "PrepareAbort"]) == []
    assert await admin.prepared_transactions() == {}


async def compare(bootstrap: str, url: str) -> int:
    """Compare the rows of each key with its records, in order. Returns how many there are."""
    rows: dict[str, list[str]] = {}
    async with sql.connect(url) as db:
        for key, value in await db.fetch("select key, value from orders order by position"):
            rows.setdefault(key, []).append(value)
    records: dict[str, list[str]] = {}
    for some in (await records_of(bootstrap, "orders")).values():
        for one in some:
            assert one.key is not None
            assert one.value is not None
            records.setdefault(one.key.decode(), []).append(one.value.decode())
    assert records == rows
    for values in rows.values():
        assert values == sorted(set(values))  # nothing of an older life after a newer one, nothing twice
    return sum(map(len, rows.values()))


async def run(tmp_path: Path, urls: list[str], server: PostgresServer | None, kinds: list[str]) -> None:
    print(f"seed {SEED}")
    options = ["-X", "transaction.two.phase.commit.enable=true"]
    with broker_process(str(tmp_path / "broker"), *options) as broker:
        async with Admin(broker.bootstrap) as admin, Crew(broker.bootstrap, urls, tmp_path) as crew:
            await admin.create_topics([NewTopic("orders", PARTITIONS)])
            async with sql.connect(urls[0], create=True) as db:
                await db.execute(TABLES["sqlite" if server is None else "postgresql"])
            for number in range(WRITERS):
                await crew.begin(f"writer-{number}")
            trouble = Trouble(crew, broker, server, random.Random(SEED))
            await trouble.make(kinds)
            await crew.work()
            await end_what_is_left(crew, admin)
            count = await compare(broker.bootstrap, urls[0])
            print(f"{count} rows and records; {dict(trouble.counts)}; writers said {dict(crew.said)}")
            print(f"prepared, ended by successors: {crew.ended_by_successors()}, by resolve: {dict(crew.resolved)}")


async def test_each_row_has_its_record_though_writers_broker_and_postgresql_are_killed(tmp_path: Path) -> None:
    programs = find_programs()
    if programs is None:
        pytest.skip(MISSING)
    server = PostgresServer(programs)
    try:
        server.make()
        urls = [server.url("postgres").replace(":", f"+{each}:", 1) for each in ("asyncpg", "psycopg")]
        await run(tmp_path, urls, server, ["writer", "broker", "database"])
    finally:
        server.remove()


async def test_each_row_of_sqlite_has_its_record_though_writers_and_broker_are_killed(tmp_path: Path) -> None:
    await run(tmp_path, [f"sqlite:///{tmp_path}/orders.db"], None, ["writer", "broker"])
