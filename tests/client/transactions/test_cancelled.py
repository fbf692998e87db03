"""Transactions that are cancelled, and producers that are closed: what is committed, what is aborted, what is said."""

import asyncio

import pytest
from fencepost.client.errors import CommitOutcomeUnknownError
from fencepost.client.transactions.table import State
from txn_world import TxnWorld, within, write

both = pytest.mark.parametrize("version", [1, 2])


async def cancelled_after(seconds, work):
    task = asyncio.get_running_loop().create_task(work)
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@both
def test_a_transaction_cancelled_in_its_body_is_aborted(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()

        async def work() -> None:
            async with producer.transaction() as tx:
                await tx.send_and_wait("t", b"a")
                await asyncio.sleep(100)

        await cancelled_after(1, work())
        assert world.names()[-1] == "EndTxn"
        await write(producer, b"b")
        assert await world.values() == [b"b"]

    within(main, version)


@both
def test_cancelling_a_commit_that_waits_for_deliveries_aborts_the_transaction(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer(delivery_timeout_ms=60_000)
        await write(producer, b"a")
        refusal = world.faults.error("Produce", "NOT_ENOUGH_REPLICAS")
        asyncio.get_running_loop().call_later(2, world.faults.remove, refusal)
        await cancelled_after(1, write(producer, b"b"))
        assert producer._driver.state is State.READY
        await write(producer, b"c")
        assert await world.values() == [b"a", b"c"]

    within(main, version)


@both
def test_a_commit_cancelled_after_end_txn_was_sent_commits_then_raises_cancelled(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer(request_timeout_ms=5_000)
        world.faults.delay("EndTxn", 2.0, when="after_write").once()
        await cancelled_after(1, write(producer, b"a"))
        assert await world.values() == [b"a"]
        await write(producer, b"b")

    within(main, version)


@both
def test_after_an_unanswered_cancelled_commit_the_next_use_raises_outcome_unknown(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer(request_timeout_ms=2_000)
        silence = world.faults.blackhole("EndTxn")
        await cancelled_after(1, write(producer, b"a"))
        with pytest.raises(CommitOutcomeUnknownError) as unknown:
            await write(producer, b"b")
        world.faults.remove(silence)
        assert await unknown.value.resolve() == "committed"

    within(main, version)


@both
def test_close_aborts_an_open_transaction_and_returns_if_the_broker_has_stopped(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await producer.begin_transaction()
        await (await producer.send("t", b"a"))
        await producer.close()
        assert world.names()[-1] == "EndTxn"
        other = await world.producer("y")
        await other.begin_transaction()
        await (await other.send("t", b"b"))
        await world.world.stop_broker()
        async with asyncio.timeout(20):
            await other.close()
        await world.start()
        assert await world.values() == []

    within(main, version)


@both
def test_a_cancelled_commit_without_an_answer_ends_within_3_seconds(version):
    """It waits for one request (request_timeout_ms is 1 s) and not for max_block_ms, a minute."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer(request_timeout_ms=1_000, max_block_ms=60_000)
        await write(producer, b"a")
        silence = world.faults.blackhole("EndTxn", when="after_write")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await cancelled_after(0.5, write(producer, b"b"))
        assert loop.time() - begun < 3
        world.faults.remove(silence)

    within(main, version)
