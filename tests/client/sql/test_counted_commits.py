"""Transactions with a database are counted and traced as those without one, by the database's decision."""

import sqlite3

import pytest
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
