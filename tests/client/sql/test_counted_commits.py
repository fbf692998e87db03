"""Transactions with a database are counted and traced as those without one, by the database's decision."""

import asyncio
import sqlite3

import pytest
from fencepost.client.errors import (
    BrokerUnreachableError,
    CommitOutcomeUnknownError,
    OutcomeDivergedError,
    RequestTimedOutError,
)
from fencepost.client.transactions.participant import DatabaseAway
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from orders import TABLE, records_of, write

from fencepost import ClientMetrics, Producer, sql

pytestmark = pytest.mark.slow  # with a real database


async def test_a_transaction_with_a_database_is_counted_and_traced_by_its_outcome(broker, tmp_path):
    metrics, exporter, provider = ClientMetrics(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with (
        sql.connect(f"sqlite:///{tmp_path}/orders.db") as db,
        Producer(broker, transactional_id="orders-1", metrics=metrics, tracing=provider) as producer,
    ):
        await db.execute(TABLE)
        await db.execute("create table lines (id integer references orders (id) deferrable initially deferred)")
        await db.execute("pragma foreign_keys = on")
        await write(producer, db, 1)
        with pytest.raises(sqlite3.IntegrityError):  # noqa: PT012 (at COMMIT, when the records are prepared)
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into lines values (7)")
                await tx.send("orders", b"7")
        with pytest.raises(ValueError, match="no"):
            async with producer.transaction(db=db):
                raise ValueError("no")
        async with producer.transaction(db=db, wait="decided") as tx:
            await tx.send("orders", b"2")
    assert metrics.snapshot().transactions == {"committed": 2, "aborted": 2}
    assert metrics.snapshot().transaction_durations.count == 4
    spans = [each.attributes for each in exporter.get_finished_spans() if each.name == "transaction"]
    assert [(each["fencepost.transaction.outcome"], each.get("error.type")) for each in spans] == [
        ("committed", None),
        ("aborted", "IntegrityError"),
        ("aborted", "ValueError"),
        ("committed", None),
    ]
    assert await records_of(broker) == [1, 2]


def counts(metrics):
    """Return how many decisions were counted as undecided, and how many as diverged."""
    now = metrics.snapshot()
    return now.undecided_decisions, now.diverged_decisions


async def test_a_commit_whose_database_cannot_be_asked_is_counted_as_undecided(broker, tmp_path, monkeypatch):
    metrics = ClientMetrics()
    async with (
        sql.connect(f"sqlite:///{tmp_path}/orders.db") as db,
        Producer(broker, transactional_id="orders-1", metrics=metrics, max_block_ms=1_000) as producer,
    ):
        await db.execute(TABLE)
        await write(producer, db, 1)
        assert counts(metrics) == (0, 0)
        commit, close_number = db.commit, db.close_number

        async def lose_answer():
            await commit()
            raise ConnectionError("the connection is gone")

        async def be_away(waiting):
            raise DatabaseAway("it is away")

        monkeypatch.setattr(db, "commit", lose_answer)
        monkeypatch.setattr(db, "close_number", be_away)
        with pytest.raises(CommitOutcomeUnknownError):
            await write(producer, db, 2)
        assert counts(metrics) == (1, 0)
        with pytest.raises(CommitOutcomeUnknownError):  # the next transaction asks again first
            await write(producer, db, 3)
        assert counts(metrics) == (2, 0)
        monkeypatch.setattr(db, "commit", commit)
        monkeypatch.setattr(db, "close_number", close_number)
        await write(producer, db, 4)
    assert counts(metrics) == (2, 0)
    assert await records_of(broker) == [1, 2, 4]


@pytest.mark.parametrize("wait", ["ended", "decided"])
async def test_a_decision_that_the_broker_cannot_be_told_is_counted_as_undecided(broker, tmp_path, wait):
    metrics = ClientMetrics()
    async with (
        sql.connect(f"sqlite:///{tmp_path}/orders.db") as db,
        Producer(broker, transactional_id="orders-1", metrics=metrics, max_block_ms=1_000) as producer,
    ):
        await db.execute(TABLE)
        await write(producer, db, 1)
        decisions = producer._driver.databases._decisions
        end = decisions.end

        async def be_away(*_):
            raise BrokerUnreachableError("the broker is away")

        decisions.end = be_away
        async with producer.transaction(db=db, wait=wait) as tx:
            await tx.send("orders", b"2")
        async with asyncio.timeout(30):
            while counts(metrics) == (0, 0):  # noqa: ASYNC110 (counted by the producer's own task)
                await asyncio.sleep(0)
        with pytest.raises(RequestTimedOutError):
            await write(producer, db, 3)
        assert counts(metrics) == (2, 0)
        decisions.end = end
        await write(producer, db, 4)
    assert counts(metrics) == (2, 0)
    assert await records_of(broker) == [1, 2, 4]


async def test_a_contradiction_of_broker_and_database_is_counted_as_diverged(broker, tmp_path):
    metrics = ClientMetrics()
    async with sql.connect(f"sqlite:///{tmp_path}/orders.db") as db:
        await db.execute(TABLE)
        async with Producer(broker, transactional_id="orders-1", metrics=metrics) as producer:
            await write(producer, db, 1)
        await db.execute("update fencepost_writers set number = -1, committed = 0")  # as an old backup has it
        async with Producer(broker, transactional_id="orders-1", metrics=metrics) as producer:
            with pytest.raises(OutcomeDivergedError):
                await write(producer, db, 2)
    assert counts(metrics) == (0, 1)


async def test_a_commit_of_the_users_own_in_a_block_is_counted_as_diverged(broker, tmp_path):
    metrics = ClientMetrics()
    with sqlite3.connect(tmp_path / "orders.db", check_same_thread=False, isolation_level=None) as connection:
        connection.execute("pragma synchronous = extra")
        async with (
            sql.connect(connection) as db,
            Producer(broker, transactional_id="orders-1", metrics=metrics) as producer,
        ):
            await db.execute(TABLE)
            with pytest.raises(OutcomeDivergedError):  # noqa: PT012
                async with producer.transaction(db=db) as tx:
                    await tx.send("orders", b"1")
                    connection.execute("commit")
    connection.close()
    assert counts(metrics) == (0, 1)
