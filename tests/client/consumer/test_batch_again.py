"""A batch that was rolled back is worked on again or comes again, never both; whose offsets are not the transaction's
alone is refused.
"""

import asyncio

import pytest
from fencepost.client.errors import (
    AbortableTransactionError,
    AlreadyCommittedError,
    CommitOutcomeUnknownError,
    IllegalStateError,
)
from reading import member, values, write
from txn_world import within

T0 = ("t", 0)
FAILED = AbortableTransactionError("as it happens")


async def all_given(consumer, most):
    (records,) = (await consumer.getmany(timeout_ms=5_000, max_records=most)).values()
    return values(records)


async def roll_back(producer, batch):
    with pytest.raises(AbortableTransactionError):
        async with producer.transaction(batch):
            raise FAILED


def test_a_batch_retried_at_once_after_aborts_is_committed_and_not_returned_again():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            batch = await anext(batches)
            for _ in range(2):
                await roll_back(producer, batch)
            async with producer.transaction(batch):
                pass
            assert (await consumer.committed())[T0].offset == 2
            assert await consumer.position(T0) == 2
            assert values(await anext(batches)) == [b"c", b"d"]

    within(main)


def test_run_in_transaction_commits_the_consumers_batch_once_although_it_retries():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            await anext(batches)
            tries = []

            async def work(tx):
                tries.append(tx)
                await tx.send_offsets_to_transaction(consumer)
                if len(tries) == 1:
                    raise FAILED

            await producer.run_in_transaction(work)
            assert len(tries) == 2
            assert values(await anext(batches)) == [b"c", b"d"]

    within(main)


@pytest.mark.slow
def test_an_aborted_batch_can_be_committed_after_a_seek_to_its_first_offset():
    async def main(world):
        await write(world, *[b"before"] * 300, b"a", b"b", b"c")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=300)
            await anext(batches)
            batch = await anext(batches)
            await roll_back(producer, batch)
            consumer.seek(T0, 300)
            async with producer.transaction(batch):
                pass
            assert (await consumer.committed())[T0].offset == 303

    within(main)


def test_a_transaction_refuses_a_batch_whose_records_were_returned_again():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            batch = await anext(batches)
            await roll_back(producer, batch)
            again = await anext(batches)
            with pytest.raises(IllegalStateError, match="it will be read again") as refused:
                async with producer.transaction(batch):
                    pass
            assert refused.value.hint
            async with producer.transaction(again):
                pass
            assert values(await anext(batches)) == [b"c", b"d"]

    within(main)


def test_a_later_batch_is_refused_until_the_aborted_one_before_it_is_committed():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            first, ahead = await anext(batches), await anext(batches)
            await roll_back(producer, first)
            with pytest.raises(IllegalStateError, match="it will be read again"):
                async with producer.transaction(ahead):
                    pass
            async with producer.transaction(first):
                pass
            async with producer.transaction(ahead):  # it stands where this begins
                pass
            assert (await consumer.committed())[T0].offset == 4

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_after_two_rollbacks_reading_resumes_at_the_first_batch(order):
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            both = await anext(batches), await anext(batches)
            for index in order:
                both[index].aborted()
            assert values(await anext(batches)) == [b"a", b"b"]

    within(main)


def test_a_transaction_raises_if_an_earlier_batch_was_rolled_back_meanwhile():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            first, ahead = await anext(batches), await anext(batches)

            async def work():
                async with producer.transaction(ahead) as tx:
                    await tx.send("out", b"x")
                    first.aborted()  # as another producer's transaction tells it

            with pytest.raises(IllegalStateError, match="it will be read again"):
                await work()
            assert await consumer.committed() == {T0: None}
            assert values(await anext(batches)) == [b"a", b"b"]

    within(main)


def test_a_batch_whose_unknown_outcome_is_found_to_be_committed_cannot_be_retried():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            batch = await anext(consumer.batches(max_records=2))
            silence = world.faults.blackhole("EndTxn", when="after_write")
            with pytest.raises(CommitOutcomeUnknownError) as unknown:
                async with producer.transaction(batch):
                    pass
            world.faults.remove(silence)
            assert await unknown.value.resolve() == "committed"
            with pytest.raises(AlreadyCommittedError):
                async with producer.transaction(batch):
                    pass
            assert values(await anext(consumer.batches(max_records=2))) == [b"c", b"d"]

    within(main)


def test_a_seek_during_a_transaction_stays_in_effect_after_its_commit():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=1)
            batch = await anext(batches)
            async with producer.transaction(batch):
                consumer.seek(T0, 3)
            assert values(await anext(batches)) == [b"d"]

    within(main)


@pytest.mark.parametrize("how", ["with the batch", "of the consumer"])
def test_batches_of_a_consumer_with_auto_commit_cannot_join_transactions(how):
    async def main(world):
        await write(world, b"a")
        producer = await world.producer()
        async with member(world, enable_auto_commit=True) as consumer:
            batch = await anext(consumer.batches())

            async def work():
                if how == "with the batch":
                    async with producer.transaction(batch):
                        pass
                else:
                    async with producer.transaction() as tx:
                        await tx.send_offsets_to_transaction(consumer)

            with pytest.raises(IllegalStateError, match="with enable_auto_commit") as refused:
                await work()
            assert "enable_auto_commit=False" in refused.value.hint
            async with producer.transaction() as tx:  # nothing was begun
                await tx.send("t", b"b")

    within(main)


@pytest.mark.parametrize("how", ["transaction", "commit"])
def test_an_abort_returns_a_batch_again_that_was_read_while_another_was_committed(how):
    async def main(world):
        await write(world, *(b"%d" % number for number in range(6)))
        producer = await world.producer()
        async with member(world) as consumer:

            async def two():
                return await all_given(consumer, 2)

            if how == "transaction":
                async with producer.transaction() as tx:
                    assert await two() == [b"0", b"1"]
                    await tx.send_offsets_to_transaction(consumer)
                    assert await two() == [b"2", b"3"]
            else:
                assert await two() == [b"0", b"1"]
                committing = asyncio.ensure_future(consumer.commit())
                await asyncio.sleep(0)
                assert await two() == [b"2", b"3"]
                await committing
            assert consumer.last_batch.first_offsets == {T0: 2}
            await producer.begin_transaction()
            assert await two() == [b"4", b"5"]
            await producer.send_offsets_to_transaction(consumer)
            await producer.abort_transaction()
            assert await two() == [b"2", b"3"]
            assert (await consumer.committed(T0))[T0].offset == 2

    within(main)
