"""`send_offsets_to_transaction(consumer)`: the offsets of all that was given since the last commit or abort, no others.

If that transaction is rolled back, exactly this is read again.
"""

import asyncio

import pytest
from fencepost.client.errors import AbortableTransactionError, IllegalStateError
from fencepost.client.values import TopicPartition
from reading import make, member, reader, values, write
from txn_world import within

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FAILED = AbortableTransactionError("as it happens")


async def one_by_one(consumer, count=1, *wanted):
    return values([await consumer.getone(*wanted, timeout_ms=5_000) for _ in range(count)])


async def commit(producer, consumer, error=None):
    async with producer.transaction() as tx:
        await tx.send_offsets_to_transaction(consumer)
        if error is not None:
            raise error


async def roll_back(producer, consumer):
    with pytest.raises(AbortableTransactionError):
        await commit(producer, consumer, error=FAILED)


async def offsets(consumer):
    return {tp: at and at.offset for tp, at in (await consumer.committed(T0, T1)).items()}


async def one_from_each_partition(world, consumer, how):
    """Let the consumer return a record of T1, then one of T0."""
    if how == "one by one, then a batch":
        assert await one_by_one(consumer, 1, T1) == [b"1"]
        consumer.pause(T1)
        assert values(await anext(consumer.batches(max_records=1))) == [b"0"]
    else:
        consumer.pause(T0)
        assert values(await anext(consumer.batches(max_records=1))) == [b"1"]
        consumer.pause(T1)
        consumer.resume(T0)
        assert values(await anext(consumer.batches(max_records=1))) == [b"0"]
    consumer.resume(T0, T1)


@pytest.mark.parametrize("how", ["two batches", "one by one, then a batch"])
def test_offsets_for_a_transaction_include_partitions_of_earlier_polls(how):
    async def main(world):
        await make(world, 2)
        await write(world, b"0")
        await write(world, b"1", partition=1)
        producer = await world.producer()
        async with member(world) as consumer:
            assert await consumer.assigned() == {T0, T1}
            await one_from_each_partition(world, consumer, how)
            await roll_back(producer, consumer)
            assert (await consumer.position(T0), await consumer.position(T1)) == (0, 0)
            await one_from_each_partition(world, consumer, how)
            await commit(producer, consumer)
            assert await offsets(consumer) == {T0: 1, T1: 1}

    within(main)


@pytest.mark.parametrize("where", ["committed", "beginning"])
def test_offsets_for_a_transaction_omit_partitions_without_a_position(where):
    async def main(world):
        await make(world, 2)
        await write(world, b"0", b"2")
        await write(world, b"1", b"3", partition=1)
        producer = await world.producer()
        async with member(world) as consumer:
            await consumer.assigned()
            await one_by_one(consumer, 1, T0)
            await commit(producer, consumer)
            await one_by_one(consumer, 1, T0)
            await one_by_one(consumer, 1, T1)
            await getattr(consumer, f"seek_to_{where}")(T0)
            await commit(producer, consumer)
            assert await offsets(consumer) == {T0: 1, T1: 1}

    within(main)


@pytest.mark.parametrize("how", ["by the consumer", "in a transaction"])
def test_records_below_an_explicitly_committed_offset_are_not_read_again(how):
    async def main(world):
        await write(world, b"a", b"b", b"c")
        producer = await world.producer()
        async with member(world) as consumer:
            assert await one_by_one(consumer) == [b"a"]
            if how == "by the consumer":
                await consumer.commit({T0: 1})
            else:
                async with producer.transaction() as tx:
                    await tx.send_offsets_to_transaction({T0: 1}, consumer.group_metadata())
            assert await one_by_one(consumer) == [b"b"]
            await roll_back(producer, consumer)
            assert await one_by_one(consumer) == [b"b"]
            await commit(producer, consumer)
            assert await one_by_one(consumer) == [b"c"]

    within(main)


def test_after_a_commit_of_a_lower_offset_an_abort_returns_only_the_last_record():
    async def main(world):
        await write(world, b"a", b"b", b"c")
        producer = await world.producer()
        async with member(world) as consumer:
            assert await one_by_one(consumer, 2) == [b"a", b"b"]
            await consumer.commit()
            assert await one_by_one(consumer) == [b"c"]
            await consumer.commit({T0: 0})
            await roll_back(producer, consumer)
            assert await one_by_one(consumer) == [b"c"]

    within(main)


@pytest.mark.parametrize("reads", ["before the transaction", "in the transaction"])
def test_run_in_transaction_retries_only_work_that_itself_reads_its_records(reads):
    async def main(world):
        await write(world, b"a", b"b", b"c")
        producer = await world.producer()
        async with member(world) as consumer:
            tries = []

            async def work(tx):
                tries.append(await one_by_one(consumer, 2) if reads == "in the transaction" else None)
                await tx.send_offsets_to_transaction(consumer)
                if len(tries) == 1:
                    raise FAILED

            if reads == "in the transaction":
                await producer.run_in_transaction(work)
                assert tries == [[b"a", b"b"]] * 2
            else:
                await one_by_one(consumer, 2)
                with pytest.raises(IllegalStateError, match="returned nothing since the last commit or abort") as none:
                    await producer.run_in_transaction(work)
                assert "come again" in none.value.hint
                assert await one_by_one(consumer, 2) == [b"a", b"b"]
                await commit(producer, consumer)
            assert await one_by_one(consumer) == [b"c"]

    within(main)


def test_an_abort_after_a_seek_returns_to_the_sought_offset_and_no_further():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            assert await one_by_one(consumer) == [b"a"]
            await consumer.commit()
            consumer.seek(T0, 2)
            batches = consumer.batches(max_records=1)
            _, later = await anext(batches), await anext(batches)
            with pytest.raises(AbortableTransactionError):
                async with producer.transaction(later):
                    raise FAILED
            assert await consumer.position(T0) == 2

    within(main)


def test_an_abort_leaves_the_position_of_a_partition_read_only_before_it():
    """T0 was read and committed before the transaction, which aborts with a record of T1: T0 stays at 1."""

    async def main(world):
        await make(world, 2)
        await write(world, b"0")
        await write(world, b"1", b"2", partition=1)
        producer = await world.producer()
        async with reader(world, group_id="g") as consumer:
            consumer.assign([T0, T1])
            assert await one_by_one(consumer, 1, T0) == [b"0"]
            await consumer.commit()
            assert await one_by_one(consumer, 1, T1) == [b"1"]
            await roll_back(producer, consumer)
            assert (await consumer.position(T0), await consumer.position(T1)) == (1, 0)

    within(main)


def test_last_batch_omits_records_read_before_a_seek_to_the_committed_offset():
    async def main(world):
        await make(world, 2)
        await write(world, b"0")
        await write(world, b"1", b"2", partition=1)
        producer = await world.producer()
        async with member(world) as consumer:
            await consumer.assigned()
            assert await one_by_one(consumer, 1, T1) == [b"1"]
            async with producer.transaction() as tx:
                await tx.send_offsets_to_transaction({T1: 1}, consumer.group_metadata())
            await consumer.seek_to_committed(T1)
            assert await consumer.position(T1) == 1
            assert await one_by_one(consumer, 1, T0) == [b"0"]
            assert consumer.last_batch.offsets.keys() == {T0}

    within(main)


def test_an_empty_poll_leaves_the_last_batch_for_the_transaction_unchanged():
    async def main(world):
        await write(world, b"a")
        producer = await world.producer()
        async with member(world) as consumer:
            batch = await anext(consumer.batches())
            assert await consumer.getmany(timeout_ms=10) == {}
            assert consumer.last_batch is batch
            await roll_back(producer, consumer)
            assert await one_by_one(consumer) == [b"a"]

    within(main)


def test_an_abort_after_a_seek_below_the_committed_offset_returns_to_that_seek():
    async def main(world):
        await write(world, b"a", b"b", b"c")
        producer = await world.producer()
        async with member(world) as consumer:
            assert await one_by_one(consumer, 2) == [b"a", b"b"]
            await consumer.commit()
            assert await one_by_one(consumer) == [b"c"]
            consumer.seek(T0, 0)
            assert await one_by_one(consumer) == [b"a"]
            await roll_back(producer, consumer)
            assert await one_by_one(consumer) == [b"a"]

    within(main)


def test_offsets_for_a_transaction_omit_partitions_not_read_since_a_seek_back():
    async def main(world):
        await make(world, 2)
        await write(world, b"0")
        await write(world, b"1", b"2", partition=1)
        producer = await world.producer()
        async with member(world) as consumer:
            await consumer.assigned()
            assert await one_by_one(consumer, 2, T1) == [b"1", b"2"]
            await consumer.commit()
            consumer.seek(T1, 1)
            assert await one_by_one(consumer, 1, T1) == [b"2"]
            consumer.seek(T1, 0)
            assert await one_by_one(consumer, 1, T0) == [b"0"]
            await roll_back(producer, consumer)
            assert await consumer.position(T1) == 0
            assert await one_by_one(consumer, 1, T0) == [b"0"]
            await commit(producer, consumer)
            assert await offsets(consumer) == {T0: 1, T1: 2}

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], [b"b"]])
def test_offsets_polled_before_and_after_a_rebalance_cannot_be_committed_together(more):
    """A transaction with both aborts; its records are all read again, and can then be committed."""

    async def main(world):
        await make(world, 1)
        await write(world, b"a")
        producer = await world.producer()
        async with member(world, partition_assignment_strategy="range") as consumer:
            assert await one_by_one(consumer) == [b"a"]
            async with member(world, topics=["other"], partition_assignment_strategy="range") as another:
                joined = asyncio.ensure_future(another.assigned())
                assert await one_by_one(consumer) == [b"a"]  # it was not committed when the partition came back
                await joined
                await write(world, *more)
                assert await one_by_one(consumer, len(more)) == more
                with pytest.raises(AbortableTransactionError):
                    await commit(producer, consumer)
                assert await one_by_one(consumer, 1 + len(more)) == [b"a", *more]
                await commit(producer, consumer)
                assert (await consumer.committed(T0))[T0].offset == 1 + len(more)

    within(main)
