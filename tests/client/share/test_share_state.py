"""What a share consumer shows of itself: its state, its counts, its spans."""

import asyncio
from typing import Any

import pytest
from collected_spans import CollectedSpans, id_of, links_of, status_of
from fencepost.client.errors import RecordNotHeldError
from fencepost.client.producer.producer import Producer
from fencepost.client.snapshots import ShareConsumerSnapshot, SharePartitionSnapshot
from fencepost.client.values import TopicPartition
from prometheus_client import CollectorRegistry, generate_latest
from reading import write
from share_members import REJECT, RELEASE, sharer
from txn_world import BOOTSTRAP, TxnWorld, within

import fencepost as fp

PARTITION = TopicPartition("t", 0)


def test_share_consumer_state_counts_returned_unsent_and_in_transaction_records() -> None:
    """A share consumer's state() counts records per partition: fetched and not yet returned, returned, acknowledged but
    unsent, acknowledged in a transaction.
    """

    async def main(world: TxnWorld) -> None:
        await write(world, *[b"%d" % n for n in range(10)])
        producer = await world.producer()
        consumer = sharer(world)
        assert consumer.state().life == "not started"
        async with consumer:
            records = await consumer.getmany(timeout_ms=5_000, max_records=6)
            consumer.acknowledge(records[0])
            consumer.acknowledge(records[1], REJECT)
            async with producer.transaction() as tx:
                await tx.acknowledge(consumer, records[2])
                now = consumer.state()
            assert now == ShareConsumerSnapshot(
                life="open",
                connections=now.connections,
                group_id="g",
                membership="stable",
                member_id=now.member_id,
                member_epoch=now.member_epoch,
                subscription=frozenset({"t"}),
                partitions={PARTITION: SharePartitionSnapshot(fetched=4, returned=3, unsent=2, in_transactions=1)},
                last_error=None,
            )
            assert {each.is_open for each in now.connections} == {True}
            await consumer.commit()
            assert consumer.state().partitions == {PARTITION: SharePartitionSnapshot(fetched=4, returned=3)}
        closed = consumer.state()
        assert (closed.life, closed.membership, closed.member_epoch) == ("closed", "unjoined", -1)

    within(main)


def test_last_error_of_the_state_is_the_error_that_the_next_read_raises() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        async with sharer(world) as consumer:
            await consumer.getone()
            world.faults.error("ShareGroupHeartbeat", "GROUP_AUTHORIZATION_FAILED").once()
            await asyncio.sleep(6)
            error = consumer.state().last_error
            with pytest.raises(fp.AuthorizationError) as raised:
                await consumer.getone()
            assert error == f"AuthorizationError: {raised.value}"
            assert consumer.state().last_error is None

    within(main)


def test_client_metrics_count_a_share_consumers_records_and_acknowledgements_by_type() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, *[b"%d" % n for n in range(6)])
        metrics = fp.ClientMetrics()
        producer = await world.producer()
        async with sharer(world, metrics=metrics) as consumer:
            records = await consumer.getmany(timeout_ms=5_000)
            consumer.acknowledge(records[0])
            consumer.acknowledge(records[1])
            consumer.acknowledge(records[2], REJECT)
            consumer.acknowledge(records[3], RELEASE)
            assert metrics.snapshot().acknowledged_records == {}
            await consumer.commit()
            async with producer.transaction() as tx:
                await tx.acknowledge(consumer, records[4])
            world.faults.error("ShareAcknowledge", "SHARE_SESSION_NOT_FOUND").once()
            consumer.acknowledge(records[5])
            with pytest.raises(RecordNotHeldError):
                await consumer.commit()
        now = metrics.snapshot()
        assert now.received_records == {"t": 6}
        assert now.acknowledged_records == {"accept": 3, "reject": 1, "release": 1}
        assert now.failed_acknowledgements == 1
        registry = CollectorRegistry()
        registry.register(metrics.collector())
        shown = generate_latest(registry).decode()
        assert 'fencepost_client_acknowledged_records_total{type="accept"} 3.0' in shown
        assert "fencepost_client_failed_acknowledgements_total 1.0" in shown

    within(main)


async def _one_sent(world: TxnWorld, spans: CollectedSpans) -> None:
    environment = world.world.environment
    async with Producer(BOOTSTRAP, tracing=spans.provider, environment=environment) as producer:
        await producer.send_and_wait("t", b"0")


def test_polls_processing_and_commits_of_a_share_consumer_have_spans() -> None:
    """They are linked to the span of the sender and name the group."""

    async def main(world: TxnWorld) -> None:
        spans = CollectedSpans()
        await _one_sent(world, spans)
        async with sharer(world, tracing=spans.provider) as consumer:
            async for record in consumer:
                with consumer.processing(record):
                    consumer.acknowledge(record)
                break
            await consumer.commit()
        sent, polled, processed = spans.one("send t"), spans.one("poll t"), spans.one("process t")
        assert (links_of(polled), links_of(processed)) == ([id_of(sent)], [id_of(sent)])
        assert processed.parent is not None
        assert processed.parent.span_id == id_of(sent)
        for span in (polled, processed, spans.one("commit")):
            assert span.attributes is not None
            assert span.attributes["messaging.consumer.group.name"] == "g"
        assert processed.attributes is not None
        assert processed.attributes["messaging.kafka.offset"] == 0

    within(main)


def test_a_transactions_span_has_the_group_and_links_to_acknowledged_records() -> None:
    async def main(world: TxnWorld) -> None:
        spans = CollectedSpans()
        await _one_sent(world, spans)
        producer = await world.producer(tracing=spans.provider)
        async with sharer(world) as consumer:
            record = await consumer.getone()
            with consumer.processing(record) as span:  # without tracing
                assert span is None
            async with producer.transaction() as tx:
                await tx.acknowledge(consumer, record)
        transaction: Any = spans.one("transaction")
        assert links_of(transaction) == [id_of(spans.one("send t"))]
        assert transaction.attributes["messaging.consumer.group.name"] == "g"
        assert status_of(transaction) == "UNSET"

    within(main)
