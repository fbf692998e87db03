"""Transactions by begin, commit and abort, without a block: one that failed is ended by whoever comes next."""

import asyncio

import pytest
from fencepost.client.errors import AbortableTransactionError, RequestTimedOutError
from reading import make
from txn_world import within, write

both = pytest.mark.parametrize("version", [1, 2])


async def _failed_commit(world, producer, value=b"lost"):
    """Begin a transaction whose record is refused for good, so that its commit fails."""
    await producer.begin_transaction()
    await producer.send("t", value)
    world.faults.error("Produce", "INVALID_RECORD").once()
    with pytest.raises(AbortableTransactionError):
        await producer.commit_transaction()


@pytest.mark.slow
@both
@pytest.mark.parametrize("commits", [True, False])
def test_the_next_transaction_first_repeats_an_abort_that_failed(version, commits):
    async def main(world):
        producer = await world.producer()
        await write(producer, b"a")
        if commits:
            await _failed_commit(world, producer)
        else:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"lost")
        gone = world.faults.blackhole("EndTxn", when="before_write").every_time()
        with pytest.raises(RequestTimedOutError):
            await producer.abort_transaction()
        world.faults.remove(gone)
        await producer.begin_transaction()
        await producer.send("t", b"b")
        await producer.commit_transaction()
        assert await world.values() == [b"a", b"b"]

    within(main, version)


@both
def test_a_producer_that_is_closed_after_a_failed_commit_leaves_nothing_open(version):
    async def main(world):
        await make(world, 2)
        producer = await world.producer()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"lost", partition=1)
        await producer.send("t", b"lost", partition=0)
        world.faults.error("Produce", "INVALID_RECORD").once()
        with pytest.raises(AbortableTransactionError):
            await producer.commit_transaction()
        await producer.close()
        await write(await world.producer("other"), b"b", partition=1)
        assert await world.values(partition=1) == [b"b"], "an open transaction would hide it"

    within(main, version)


@both
def test_cancelling_a_commit_while_one_of_its_records_fails_aborts_the_transaction(version):
    async def main(world):
        producer = await world.producer()
        await write(producer, b"a")
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"lost")
        world.faults.error("Produce", "INVALID_RECORD").once()
        delivery = await producer.send("t", b"refused")
        committing = asyncio.create_task(producer.commit_transaction())
        delivery.add_done_callback(lambda _: committing.cancel())
        with pytest.raises(asyncio.CancelledError):
            await committing
        await producer.begin_transaction()
        await producer.send("t", b"b")
        await producer.commit_transaction()
        assert await world.values() == [b"a", b"b"]

    within(main, version)


@both
def test_the_next_transaction_first_repeats_the_failed_abort_of_a_cancelled_commit(version):
    async def main(world):
        producer = await world.producer()
        await write(producer, b"a")
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"lost")
        world.faults.delay("Produce", 0.5).once()
        await producer.send("t", b"lost too")
        gone = world.faults.blackhole("EndTxn", when="before_write").every_time()
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.1)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        world.faults.remove(gone)
        await producer.begin_transaction()
        await producer.send("t", b"b")
        await producer.commit_transaction()
        assert await world.values() == [b"a", b"b"]

    within(main, version)


@both
def test_the_next_transaction_first_repeats_the_failed_abort_of_a_cancelled_block(version):
    async def work(producer):
        async with producer.transaction() as tx:
            await tx.send_and_wait("t", b"lost")
            await asyncio.sleep(100)

    async def main(world):
        producer = await world.producer()
        await write(producer, b"a")
        working = asyncio.create_task(work(producer))
        await asyncio.sleep(1)
        gone = world.faults.blackhole("EndTxn", when="before_write").every_time()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        world.faults.remove(gone)
        await producer.begin_transaction()
        await producer.send("t", b"b")
        await producer.commit_transaction()
        assert await world.values() == [b"a", b"b"]

    within(main, version)
