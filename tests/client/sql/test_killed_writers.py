"""A writer is killed, stopped for a while or cut off at each of its calls to database and broker, and somebody ends
what it left: rows and records are the same. With each of the bugs planted at the end they are not.
"""

import asyncio
import contextlib
import sqlite3
from functools import partial

import pytest
from fencepost.client.errors import KafkaError, OutcomeDivergedError, error_of
from fencepost.client.sql import sqlite
from fencepost.client.sql.resolving import resolve
from fencepost.client.transactions import decisions, sql_commits
from fencepost.client.transactions.deciding import Row
from fencepost.client.values import NO_IDENTITY
from fencepost.protocol.errors import ErrorCode
from reading import make
from txn_world import BOOTSTRAP, within

CALLS = {
    "database": ["claim", "begin", "execute", "decide", "commit", "close_number"],
    "decisions": ["look", "prepare", "end"],
    "requests": ["init", "end"],
    "sender": ["flush"],
}
LEAST = 17  # calls of a writer with two transactions


class Killed(BaseException):
    """The writer's process is gone."""


class Fate:
    """What happens to a writer at one of its calls, the first being 0. how: it is killed before it, stopped before it
    while others end what it left, or gets an error after it.
    """

    def __init__(self, at, how, meanwhile):
        self.at, self.how, self.meanwhile, self.names, self.dead = at, how, meanwhile, [], False

    def watch(self, part, names):
        for name in names:
            setattr(part, name, partial(self.call, name, getattr(part, name)))

    async def call(self, name, inner, *arguments):
        if self.dead:
            raise Killed
        self.names.append(name)
        is_it = len(self.names) == self.at + 1
        if is_it and self.how == "killed":
            self.dead = True
            raise Killed
        if is_it and self.how == "stopped":
            with contextlib.suppress(KafkaError):
                await self.meanwhile()
        found = await inner(*arguments)
        if is_it and self.how == "cut" and name == "commit":
            raise sqlite3.OperationalError("the connection is gone")
        return found


async def write(producer, db, *numbers):
    for number in numbers:
        async with producer.transaction(db=db) as tx:
            await db.execute("insert into orders values (?)", number)
            await tx.send("t", b"%d" % number)


async def live(world, path, fate):
    """Run a writer of two transactions until it has done them, is killed, or is told that another one goes on."""
    db = sqlite.Database(path)
    await db.open()
    await db.execute("create table if not exists orders (id integer primary key)")
    producer = await world.producer()
    driver = producer._driver
    parts = {"database": db, "decisions": driver.databases._decisions, "requests": driver._requests}
    for name, part in {**parts, "sender": driver.sender}.items():
        fate.watch(part, CALLS[name])
    with contextlib.suppress(Killed, KafkaError, sqlite3.Error):
        await write(producer, db, 1, 2)
    fate.dead = True
    db._connection.close()  # as the system does, and SQLite rolls back
    producer._closed = True
    world._producers.remove(producer)
    await producer._parts.release()  # what is open stays open


def rows_in(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [b"%d" % number for (number,) in connection.execute("select id from orders order by id")]


async def end_by_successor(world, path, number=3):
    async with sqlite.Database(path) as db:
        await write(await world.producer(), db, number)


async def end_by_resolve(world, path, number=3):
    async with sqlite.Database(path) as db:
        await resolve(BOOTSTRAP, db, environment=world.world.environment)


def compare(path, at, how, end):
    """Let this happen to a writer, end what it left, and compare rows with records. Returns the names of its calls."""

    async def main(world):
        await make(world)
        fate = Fate(at, how, lambda: end(world, path, 4))
        await live(world, path, fate)
        await asyncio.sleep(10)
        await end(world, path)
        await (await world.producer()).close()  # aborts what was not prepared
        assert sorted(await world.values()) == rows_in(path), (fate.names, at)
        return fate.names

    return within(main, 2, transaction_two_phase_commit_enable=True)


def names_of_calls(tmp_path):
    names = compare(str(tmp_path / "untouched.db"), -1, "", end_by_successor)
    assert len(names) >= LEAST
    return names


def compare_all(tmp_path, names, how, end, only=()):
    """Compare for each call of a writer, or for those of these names."""
    for at, name in enumerate(names):
        if not only or name in only:
            compare(str(tmp_path / f"{at}.db"), at, how, end)


@pytest.fixture(autouse=True)
def no_waiting_for_locks(monkeypatch):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_S", 0)


@pytest.mark.parametrize("end", [end_by_successor, end_by_resolve])
@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.slow
def test_rows_equal_records_whatever_call_a_writer_is_killed_or_stopped_at(tmp_path, how, end):
    compare_all(tmp_path, names_of_calls(tmp_path), how, end)


@pytest.mark.slow
@pytest.mark.parametrize("end", [end_by_successor, end_by_resolve])
def test_rows_equal_records_if_the_answer_to_commit_is_lost(tmp_path, end):
    compare_all(tmp_path, names_of_calls(tmp_path), "cut", end, ["commit"])


# ---- bugs ------------------------------------------------------------------------------------------------------------


def who_closes_leaves_no_trace(monkeypatch):
    monkeypatch.setattr(sqlite.Database, "close_number", lambda self, waiting: self.read_row(waiting.transactional_id))


def the_resolver_guesses(monkeypatch):
    async def guessed(self, waiting):
        return Row(0, waiting.number, False)

    monkeypatch.setattr(sqlite.Database, "close_number", guessed)


def a_prepared_transaction_has_a_timeout(monkeypatch):
    monkeypatch.setattr(decisions, "NEVER_MS", 1_000)


def the_database_commits_before_prepare(monkeypatch):
    decide = sql_commits.DatabaseCommits._decide

    async def early(self, database, waiting):
        await decide(self, database, waiting)
        await database.commit()
        database.commit = partial(asyncio.sleep, 0)

    monkeypatch.setattr(sql_commits.DatabaseCommits, "_decide", early)


def a_commit_without_an_answer_is_taken_for_committed(monkeypatch):
    async def guessed(self, waiting):
        return Row(0, waiting.number, True)

    monkeypatch.setattr(sqlite.Database, "close_number", guessed)


def a_prepared_transaction_is_not_held(monkeypatch):
    request = decisions.PrepareTxnRequest
    monkeypatch.setattr(decisions, "PrepareTxnRequest", lambda **fields: request(**{**fields, "hold": False}))


BUGS = {
    who_closes_leaves_no_trace: ("stopped", end_by_resolve, ["commit"]),
    the_resolver_guesses: ("killed", end_by_resolve, ["end"]),
    a_prepared_transaction_has_a_timeout: ("killed", end_by_resolve, ["end"]),
    the_database_commits_before_prepare: ("killed", end_by_successor, ["commit"]),
    a_commit_without_an_answer_is_taken_for_committed: ("killed", end_by_resolve, ["commit"]),
    a_prepared_transaction_is_not_held: ("killed", end_by_successor, ["end"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_each_planted_bug_makes_rows_and_records_differ_or_is_refused(tmp_path, monkeypatch, plant):
    how, end, only = BUGS[plant]
    names = names_of_calls(tmp_path)
    plant(monkeypatch)
    with pytest.raises((AssertionError, OutcomeDivergedError)) as found:
        compare_all(tmp_path, names, how, end, only)
    print(found.value)


@pytest.mark.slow
def test_a_producer_without_a_database_gets_an_error_naming_the_one_waited_for(tmp_path):
    path = str(tmp_path / "orders.db")

    async def main(world):
        await make(world)
        await live(world, path, Fate(9, "killed", None))  # between COMMIT and EndTxns
        successor = await world.producer()
        with pytest.raises(KafkaError, match="waits for number 0 of database") as refused:
            await successor.transaction().__aenter__()
        assert "fencepost txn resolve" in refused.value.hint
        async with sqlite.Database(path) as db:
            assert [each.result for each in await dry(world, db)] == ["committed"]
            await write(successor, db, 3)
            assert await dry(world, db) == []
        async with successor.transaction() as tx:
            await tx.send("t", b"4")
        assert await world.values() == [b"1", b"3", b"4"]

    async def dry(world, db):
        return await resolve(BOOTSTRAP, db, dry_run=True, environment=world.world.environment)

    within(main, 2, transaction_two_phase_commit_enable=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["execute", "decide", "commit"])
def test_rows_equal_records_if_the_writer_is_cancelled_in_a_call_to_the_database(tmp_path, name):
    path = str(tmp_path / "orders.db")

    async def main(world):
        await make(world)
        async with sqlite.Database(path) as db:
            await db.execute("create table orders (id integer primary key)")
            inner = getattr(db, name)

            async def slowly(*arguments):
                found = await inner(*arguments)
                await asyncio.sleep(1)
                return found

            setattr(db, name, slowly)
            producer = await world.producer()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await write(producer, db, 1)
            await write(producer, db, 2)
            assert await world.values() == rows_in(path) == ([b"1", b"2"] if name == "commit" else [b"2"])

    within(main, 2, transaction_two_phase_commit_enable=True)


def test_a_producer_raises_if_the_broker_refuses_to_end_its_predecessor(tmp_path, monkeypatch):
    path = str(tmp_path / "orders.db")

    async def main(world):
        await make(world)
        await live(world, path, Fate(9, "killed", None))  # between COMMIT and EndTxns
        successor = await world.producer()
        monkeypatch.setattr(decisions.Decisions, "end", refuse)
        async with sqlite.Database(path) as db:
            with pytest.raises(OutcomeDivergedError, match="the broker refuses to"):
                await write(successor, db, 3)

    async def refuse(self, waiting, committed):
        return decisions.Ended(NO_IDENTITY, -1, False, error_of(ErrorCode.LEDGER_CONFLICT, "no"))

    within(main, 2, transaction_two_phase_commit_enable=True)


def test_a_producer_with_another_database_gets_an_error_naming_the_first(tmp_path):
    path, other = str(tmp_path / "orders.db"), str(tmp_path / "other.db")

    async def main(world):
        await make(world)
        await live(world, path, Fate(9, "killed", None))  # between COMMIT and EndTxns
        successor = await world.producer()
        async with sqlite.Database(path) as db, sqlite.Database(other) as second:
            await second.execute("create table orders (id integer primary key)")
            with pytest.raises(KafkaError, match=f"waits for number 0 of database {db.database_id}"):
                await write(successor, second, 3)
            await write(successor, db, 4)
            await write(successor, second, 5)
        assert await world.values() == [b"1", b"4", b"5"]

    within(main, 2, transaction_two_phase_commit_enable=True)
