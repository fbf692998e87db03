"""A task's producer: columns in, one transaction that waits for a decision, and nothing after that."""

import asyncio

import pytest
from client_world import run
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import (
    AbortableTransactionError,
    IllegalStateError,
    InvalidConfigurationError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from fencepost.client.producer.task_producer import TaskProducer
from fencepost.client.values import TopicPartition
from fencepost.protocol.messages.ledger import DescribeLedgerRequest, EndTxnsRequest

LEDGER = ("transaction", "sink")


class Job:
    """A broker, a cluster that all tasks share, and a topic of two partitions."""

    def __init__(self, world, cluster):
        self.world, self.cluster = world, cluster

    def task(self, name="fencepost.once.a", timeout_ms=60_000, **more):
        settings = self.world.settings(**more)
        return TaskProducer(self.cluster, settings, transactional_id=name, transaction_timeout_ms=timeout_ms)

    async def waiting(self):
        answer = await self.cluster.ask(LEDGER, DescribeLedgerRequest(keys=["sink"]))
        return list(answer.keys[0].waiting)

    async def commit(self, number=1):
        items = [
            EndTxnsRequest.Transaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
            )
            for each in await self.waiting()
        ]
        request = EndTxnsRequest(
            ledger_key="sink", number=number, owner="o", digest=b"d", committed=True, transactions=items
        )
        assert not (await self.cluster.ask(LEDGER, request)).error_code

    async def records(self):
        async with Consumer(
            "127.0.0.1:9092", environment=self.world.environment, auto_offset_reset="earliest"
        ) as consumer:
            partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            found = []
            while any([await consumer.position(each) < ends[each] for each in partitions]):
                for some in (await consumer.getmany(timeout_ms=100)).values():
                    found += some
            return found


def with_job(work, **broker):
    async def main(world):
        await world.start_broker(**broker)
        async with Admin("127.0.0.1:9092", environment=world.environment) as admin:
            await admin.create_topics([NewTopic("t", 2)])
        await work(Job(world, await world.cluster()))

    run(main)


def test_column_batches_of_a_task_become_visible_with_the_decision_in_the_ledger():
    """A task of a Spark sink only prepares its transaction; an entry in the log of decisions ends it."""

    async def work(job):
        task = job.task()
        await task.begin()
        await task.send_columns("t", [b"1", None], [b"a", b"b"])
        await task.send_columns("t", [b"2"], None, [1], [[("h", b"x")]])
        assert await task.prepare("sink", 1, 60_000)
        await task.close()
        assert not await job.records()
        await job.commit()
        found = {each.value: each for each in await job.records()}
        assert set(found) == {b"1", None, b"2"}
        assert (found[b"1"].key, found[b"2"].partition, found[b"2"].headers) == (b"a", 1, (("h", b"x"),))

    with_job(work)


def test_a_ledger_task_can_write_more_than_its_buffer_holds():
    async def work(job):
        task = job.task(buffer_memory=200_000)
        await task.begin()
        await task.send_columns("t", [bytes(1000)] * 1_000)
        assert await task.prepare("sink", 1, 60_000)
        await task.close()
        await job.commit()
        assert len(await job.records()) == 1_000

    with_job(work)


def test_after_prepare_a_task_refuses_begin_commit_and_abort_until_the_decision():
    async def work(job):
        task = job.task()
        await task.begin()
        await task.send_columns("t", [b"1"])
        assert await task.prepare("sink", 1, 60_000)
        for step in (task.begin_transaction, task.abort_transaction, task.commit_transaction):
            with pytest.raises(IllegalStateError, match="waits for its decision"):
                await step()
        await task.close()
        assert len(await job.waiting()) == 1

    with_job(work)


def test_prepare_returns_false_and_aborts_if_the_ledger_has_decided_the_batch_number():
    async def work(job):
        await job.commit(number=1)
        task = job.task()
        await task.begin()
        await task.send_columns("t", [b"1"])
        assert not await task.prepare("sink", 1, 60_000)
        await task.close()
        assert not await job.waiting()
        assert not await job.records()

    with_job(work)


def test_closing_a_task_before_prepare_aborts_its_transaction():
    async def work(job):
        task = job.task()
        await task.begin()
        await task.send_columns("t", [b"1"])
        await task.flush()
        await task.close()
        assert not job.world.broker.transactions.open

    with_job(work)


def test_a_ledger_task_initialises_its_transactional_id_in_begin():
    async def work(job):
        task = job.task()
        known = job.world.broker.transactions.transactions
        assert not known
        await task.begin()
        assert set(known) == {"fencepost.once.a"}
        assert (task.producer_id, task.producer_epoch) == (known["fencepost.once.a"].producer_id, 0)
        await task.close()

    with_job(work)


def test_a_task_whose_begin_is_refused_leaves_the_shared_cluster_open():
    async def work(job):
        refused, other = job.task(timeout_ms=1_000_000), job.task()
        with pytest.raises(InvalidConfigurationError):
            await refused.begin()
        await refused.close()
        await other.begin()
        await other.send_columns("t", [b"1"])
        assert await other.prepare("sink", 1, 60_000)
        await other.close()
        await job.commit()
        assert len(await job.records()) == 1

    with_job(work)


def test_a_garbage_collected_task_leaves_the_shared_cluster_open():
    async def work(job):
        tasks, other = [job.task("fencepost.once.b")], job.task()
        await tasks[0].begin()
        with pytest.warns(ResourceWarning, match="never closed"):
            tasks.clear()
        await asyncio.sleep(0.1)
        await other.begin()
        await other.send_columns("t", [b"1"])
        assert await other.prepare("sink", 1, 60_000)
        await other.close()

    with_job(work)


def test_kafka_13412_a_task_can_begin_after_a_begin_that_timed_out():
    async def work(job):
        task = job.task(request_timeout_ms=1_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await task.begin()
        await task.begin()
        await task.send_columns("t", [b"1"])
        assert await task.prepare("sink", 1, 60_000)
        await task.close()

    with_job(work)


def test_a_record_that_is_too_large_is_refused_and_its_task_can_be_closed():
    async def work(job):
        task = job.task(max_request_size=1_000)
        await task.begin()
        with pytest.raises(RecordTooLargeError):
            await task.send_columns("t", [bytes(2_000)])
        await task.close()

    with_job(work)


def test_prepare_raises_if_the_broker_refused_a_batch():
    async def work(job):
        task = job.task(max_request_size=4_000_000)
        await task.begin()
        await task.send_columns("t", [bytes(2_000_000)])
        with pytest.raises(AbortableTransactionError, match="larger than the topic accepts"):
            await task.prepare("sink", 1, 60_000)
        await task.close()

    with_job(work, message_max_bytes=1_000_000)


def test_preparing_on_a_broker_without_a_ledger_is_refused():
    async def work(job):
        task = job.task()
        await task.begin()
        await task.send_columns("t", [b"1"])
        with pytest.raises(UnsupportedVersionError):
            await task.prepare("sink", 1, 60_000)
        await task.close()

    with_job(work, release="4.0")


def test_without_a_transactional_id_finish_raises_if_a_record_was_not_written():
    async def work(job):
        task = job.task(None)
        await task.begin()
        await task.send_columns("t", [b"1", b"2"], [b"a", b"b"])
        await task.finish()
        await task.close()
        assert len(await job.records()) == 2
        task = job.task(None, max_request_size=4_000_000)
        await task.begin()
        await task.send_columns("t", [bytes(2_000_000)])
        with pytest.raises(RecordTooLargeError):
            await task.finish()
        await task.close()

    with_job(work, message_max_bytes=1_000_000)


def test_closed_tasks_leave_no_listener_on_their_shared_cluster():
    async def work(job):
        before = len(job.cluster.on_metadata)
        for number in range(5):
            task = job.task(f"fencepost.once.{number}")
            await task.begin()
            await task.send_columns("t", [b"1"])
            assert await task.prepare("sink", 1, 60_000)
            await task.close()
        assert len(job.cluster.on_metadata) == before
        await job.commit()
        assert len(await job.records()) == 5

    with_job(work)
