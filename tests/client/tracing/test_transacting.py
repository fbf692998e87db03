"""Spans of transactions: committed, aborted, fenced, with an unknown outcome, and of pools."""

from collections.abc import Iterator

import pytest
from collected_spans import CollectedSpans, id_of, links_of, parent_of, status_of
from fencepost.testing.faults import Faults
from opentelemetry.trace import SpanKind

import fencepost as fp


@pytest.fixture(scope="module")
def broker() -> Iterator[fp.Broker]:
    with fp.Broker(num_partitions=1) as running:
        yield running
        assert not running.failures


@pytest.fixture
def spans() -> CollectedSpans:
    return CollectedSpans()


async def failing(transaction: fp.Transaction) -> None:
    async with transaction as tx:
        await tx.send_and_wait("orders", b"v")
        raise ZeroDivisionError


async def test_spans_of_sends_are_children_of_the_transactions_span(broker: fp.Broker, spans: CollectedSpans) -> None:
    async with fp.Producer(broker.bootstrap_servers, transactional_id="t", tracing=spans.provider) as producer:
        with spans.current("request"):
            async with producer.transaction(label="nightly") as tx:
                await tx.send("orders", b"1")
                with spans.current("step"):
                    await tx.send("orders", b"2")
            assert "request" not in spans.names()
        identity = producer.producer_id
    transaction, request, step = spans.one("transaction"), spans.one("request"), spans.one("step")
    first, second = spans.named("send orders")
    assert transaction.kind is SpanKind.CLIENT
    assert parent_of(transaction) == id_of(request)
    assert (parent_of(first), links_of(first)) == (id_of(transaction), [])
    assert (parent_of(second), links_of(second)) == (id_of(step), [id_of(transaction)])
    assert status_of(transaction) == "UNSET"
    assert transaction.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "transaction",
        "messaging.client.id": "fencepost",
        "fencepost.transactional_id": "t",
        "fencepost.producer.id": identity,
        "fencepost.producer.epoch": 0,
        "fencepost.transaction.label": "nightly",
        "fencepost.transaction.partitions": 1,
        "fencepost.transaction.outcome": "committed",
    }


async def test_the_span_of_an_aborted_transaction_names_the_error(broker: fp.Broker, spans: CollectedSpans) -> None:
    """One that the caller aborts has no error."""
    async with fp.Producer(broker.bootstrap_servers, transactional_id="t", tracing=spans.provider) as producer:
        with pytest.raises(ZeroDivisionError):
            await failing(producer.transaction())
        await producer.begin_transaction()
        await producer.abort_transaction()
    failed, wanted = spans.named("transaction")
    assert failed.attributes is not None
    assert wanted.attributes is not None
    assert status_of(failed) == "ERROR"
    assert failed.attributes["error.type"] == "ZeroDivisionError"
    assert failed.attributes["fencepost.transaction.outcome"] == "aborted"
    assert (status_of(wanted), wanted.attributes["fencepost.transaction.outcome"]) == ("UNSET", "aborted")


async def test_the_span_of_a_record_dropped_by_an_abort_has_an_error(broker: fp.Broker, spans: CollectedSpans) -> None:
    at = broker.bootstrap_servers
    async with fp.Producer(at, transactional_id="t", linger_ms=10_000, tracing=spans.provider) as producer:
        await producer.begin_transaction()
        await producer.send("orders", b"v")
        await producer.abort_transaction()
    sent = spans.one("send orders")
    assert status_of(sent) == "ERROR"
    assert sent.attributes is not None
    assert sent.attributes["fencepost.maybe_written"] is False
    assert parent_of(sent) == id_of(spans.one("transaction"))


async def test_the_span_of_a_fenced_transaction_has_producer_fenced_error(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    async with fp.Producer(broker.bootstrap_servers, transactional_id="fenced", tracing=spans.provider) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"v")
        async with fp.Producer(broker.bootstrap_servers, transactional_id="fenced"):
            with pytest.raises(fp.ProducerFencedError):
                await producer.commit_transaction()
            with pytest.raises(fp.ProducerFencedError):
                await producer.abort_transaction()
    transaction = spans.one("transaction")
    assert transaction.attributes is not None
    assert status_of(transaction) == "ERROR"
    assert transaction.attributes["fencepost.transaction.outcome"] == "fenced"
    assert "another producer" in (transaction.status.description or "")


@pytest.mark.slow
async def test_a_span_with_an_unknown_outcome_has_status_error_and_resolve_links_to_it(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    faults = Faults(broker)
    settings = {"transactional_id": "unknown", "request_timeout_ms": 300, "max_block_ms": 600}
    async with fp.Producer(broker.bootstrap_servers, tracing=spans.provider, **settings) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"v")
        faults.blackhole("EndTxn", when="after_write")
        with pytest.raises(fp.CommitOutcomeUnknownError) as unknown:
            await producer.commit_transaction()
        faults.clear()
        transaction = spans.one("transaction")
        assert transaction.attributes is not None
        assert transaction.attributes["fencepost.transaction.outcome"] == "unknown"
        assert status_of(transaction) == "ERROR"
        assert await unknown.value.resolve() == "committed"
    resolved = spans.one("resolve")
    assert resolved.attributes is not None
    assert resolved.attributes["fencepost.transaction.outcome"] == "committed"
    assert links_of(resolved) == [id_of(transaction)]


async def test_a_transaction_links_to_the_senders_of_its_batch(broker: fp.Broker, spans: CollectedSpans) -> None:
    at = broker.bootstrap_servers
    async with fp.Producer(at, tracing=spans.provider) as plain:
        for number in range(3):
            await plain.send_and_wait("input", b"%d" % number)
    consumer = fp.Consumer(at, topics=["input"], group_id="g", auto_offset_reset="earliest", tracing=spans.provider)
    producer = fp.Producer(at, transactional_id="t", tracing=spans.provider)
    async with consumer, producer:
        async for batch in consumer.batches(max_records=3, max_wait_ms=5_000):
            with consumer.processing(batch):
                async with producer.transaction(batch) as tx:
                    await tx.send("output", b"v")
            break
    sources = [id_of(span) for span in spans.named("send input")]
    transaction, processed = spans.one("transaction"), spans.one("process input")
    assert links_of(transaction) == links_of(processed) == links_of(spans.one("poll input")) == sources
    assert parent_of(transaction) == id_of(processed)
    assert parent_of(spans.one("send output")) == id_of(transaction)
    assert transaction.attributes is not None
    assert transaction.attributes["messaging.consumer.group.name"] == "g"


async def test_a_pool_traces_and_counts_the_transactions_of_all_its_slots(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    metrics = fp.ClientMetrics()
    at = broker.bootstrap_servers
    pool = fp.ProducerPool(at, prefix="p", size=2, metrics=metrics, tracing=spans.provider)
    async with pool, pool.transaction(label="outer") as tx, pool.transaction() as other:
        await tx.send("orders", b"1")
        await other.send("orders", b"2")
    ids = [span.attributes["fencepost.transactional_id"] for span in spans.named("transaction") if span.attributes]
    assert ids == ["p-1", "p-0"], "in the order in which they end"
    assert metrics.snapshot().transactions == {"committed": 2}
    assert {parent_of(span) for span in spans.named("send orders")} == set(map(id_of, spans.named("transaction")))


def test_blocking_transactions_and_pools_have_spans_too(broker: fp.Broker, spans: CollectedSpans) -> None:
    at = broker.bootstrap_servers
    with fp.sync.Producer(at, transactional_id="b", tracing=spans.provider) as producer, spans.current("request"):
        with producer.transaction(label="blocking") as tx:
            tx.send("orders", b"1")
        with fp.sync.ProducerPool(at, prefix="q", tracing=spans.provider) as pool, pool.transaction() as tx:
            tx.send("orders", b"2")
    request = spans.one("request")
    assert [parent_of(span) for span in spans.named("transaction")] == [id_of(request)] * 2
    assert [parent_of(span) for span in spans.named("send orders")] == [
        id_of(span) for span in spans.named("transaction")
    ]
