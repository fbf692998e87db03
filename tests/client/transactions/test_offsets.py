"""Offsets that one task still sends while another ends the transaction: they are in it, or nowhere."""

import asyncio
import contextlib

import pytest
from fencepost.client.errors import AbortableTransactionError, IllegalStateError
from fencepost.client.values import ConsumerGroupMetadata, TopicPartition
from reading import make, reader, write
from txn_world import TxnWorld, within

T0 = TopicPartition("t", 0)
GROUP = ConsumerGroupMetadata("g")
both = pytest.mark.parametrize("version", [1, 2])


async def committed(world: TxnWorld) -> int | None:
    async with reader(world, group_id="g") as consumer:
        found = (await consumer.committed(T0))[T0]
        return None if found is None else found.offset


@both
def test_a_commit_waits_for_offsets_that_are_still_being_sent(version):
    async def main(world: TxnWorld) -> None:
        await make(world)
        producer = await world.producer()
        await producer.begin_transaction()
        await producer.send("t", b"a")
        world.faults.error("TxnOffsetCommit", "COORDINATOR_NOT_AVAILABLE").once()
        sending = asyncio.create_task(producer.send_offsets_to_transaction({T0: 7}, GROUP))
        await asyncio.sleep(0.01)
        await producer.commit_transaction()
        await sending
        assert await committed(world) == 7

    within(main, version)


@pytest.mark.slow
@both
@pytest.mark.parametrize("how", ["refused at first", "answered late"])
def test_offsets_of_an_aborted_transaction_do_not_get_into_the_next(version, how):
    async def main(world: TxnWorld) -> None:
        await make(world)
        producer = await world.producer()
        await producer.begin_transaction()
        if how == "refused at first":
            world.faults.error("TxnOffsetCommit", "COORDINATOR_NOT_AVAILABLE").once()
        else:
            world.faults.delay("TxnOffsetCommit", 0.5).once()
        sending = asyncio.create_task(producer.send_offsets_to_transaction({T0: 7}, GROUP))
        await asyncio.sleep(0.01)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"b")
        await asyncio.sleep(2)
        await producer.commit_transaction()
        if how == "refused at first":
            with pytest.raises(IllegalStateError, match="is aborting"):
                await sending
        else:
            await sending
        assert await committed(world) is None

    within(main, version)


@both
def test_a_transaction_whose_send_offsets_was_cancelled_cannot_commit(version):
    async def main(world: TxnWorld) -> None:
        await write(world, b"a", b"b")
        producer = await world.producer()
        async with reader(world, group_id="g", topics=["t"]) as consumer:
            world.faults.delay("TxnOffsetCommit", 0.5).once()
            batch = await anext(consumer.batches(1))

            async def impatient() -> None:
                async with producer.transaction() as tx:
                    await tx.send("u", b"of a")
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await tx.send_offsets_to_transaction(batch)

            with pytest.raises(AbortableTransactionError):
                await impatient()
            assert await committed(world) is None
            assert (await consumer.getone()).value == b"a", "it comes again"

    within(main, version)


@both
def test_committing_a_batch_does_not_lower_later_offsets_sent_in_the_transaction(version):
    async def main(world: TxnWorld) -> None:
        await write(world, b"a", b"b")
        producer = await world.producer()
        async with reader(world, group_id="g", topics=["t"]) as consumer:
            batches = consumer.batches(1)
            first = await anext(batches)
            async with producer.transaction(first) as tx:
                second = await anext(batches)
                world.faults.delay("TxnOffsetCommit", 0.5).once()
                sending = asyncio.create_task(tx.send_offsets_to_transaction(second))
                await asyncio.sleep(0.01)
            await sending
            assert await committed(world) == 2

    within(main, version)


@both
def test_offsets_of_one_transaction_are_committed_in_the_order_they_were_sent(version):
    async def main(world: TxnWorld) -> None:
        await make(world)
        producer = await world.producer()
        await producer.begin_transaction()
        world.faults.error("TxnOffsetCommit", "COORDINATOR_NOT_AVAILABLE").once()
        await asyncio.gather(*(producer.send_offsets_to_transaction({T0: at}, GROUP) for at in (5, 6, 7)))
        await producer.commit_transaction()
        assert await committed(world) == 7

    within(main, version)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offset", "error"), [(-1, ValueError), (None, TypeError), ("7", TypeError), ((7,), TypeError), (True, TypeError)]
)
def test_an_invalid_offset_is_refused_in_a_transaction(offset, error):
    async def main(world: TxnWorld) -> None:
        await make(world)
        producer = await world.producer()
        async with producer.transaction() as tx:
            await tx.send_offsets_to_transaction({T0: 5}, GROUP)
        with pytest.raises(error, match="offset"):
            async with producer.transaction() as tx:
                await tx.send_offsets_to_transaction({T0: offset}, GROUP)
        assert await committed(world) == 5

    within(main)


@pytest.mark.slow
@both
def test_offsets_retried_for_over_5_seconds_are_logged_once_a_minute(version, caplog):
    async def main(world: TxnWorld) -> None:
        await make(world)
        producer = await world.producer(max_block_ms=100_000, transaction_timeout_ms=200_000)
        fault = world.faults.error("TxnOffsetCommit", "COORDINATOR_NOT_AVAILABLE").every_time()
        await producer.begin_transaction()
        await producer.send("t", b"a")
        sending = asyncio.create_task(producer.send_offsets_to_transaction({T0: 7}, GROUP))
        await asyncio.sleep(4)
        assert warnings() == []
        await asyncio.sleep(50)
        (line,) = warnings()
        assert "trying offsets of group 'g' again for 5 s already, of at most 100 s: " in line
        assert "COORDINATOR_NOT_AVAILABLE" in line
        await asyncio.sleep(20)
        assert len(warnings()) == 2
        world.faults.remove(fault)
        await sending
        await producer.commit_transaction()

    def warnings() -> list[str]:
        return [each.getMessage() for each in caplog.records if "again for" in each.getMessage()]

    within(main, version)
