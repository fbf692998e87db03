"""What automatic commits contain when a consumer ends: everything that was surely worked on, and nothing else."""

import asyncio
import logging

import pytest
from fencepost.client.errors import RequestTimedOutError
from fencepost.client.values import TopicPartition
from reading import member, reader, write
from txn_world import within

both = pytest.mark.parametrize("protocol", ["classic", "consumer"])
PLACE = TopicPartition("t", 0)


async def _committed(world):
    async with reader(world, group_id="g") as consumer:
        found = (await consumer.committed(PLACE))[PLACE]
    return None if found is None else found.offset


async def _one_by_one(consumer):
    async for record in consumer:
        if record.offset == 3:
            raise ZeroDivisionError
    raise AssertionError


async def _getone(consumer):
    for _ in range(4):
        record = await consumer.getone()
    raise ZeroDivisionError(record)


async def _getmany(consumer):
    for _ in range(4):
        records = await consumer.getmany(timeout_ms=10_000, max_records=1)
    raise ZeroDivisionError(records)


async def _batches(consumer):
    async for batch in consumer.batches(1):
        if batch[0].offset == 3:
            raise ZeroDivisionError


async def _looks_after_reading(consumer):
    await _getone_and(consumer, consumer.position(PLACE))


async def _getone_and(consumer, more):
    for _ in range(4):
        await consumer.getone()
    await more
    raise ZeroDivisionError


@pytest.mark.slow
@both
@pytest.mark.parametrize("work", [_one_by_one, _getone, _getmany, _batches, _looks_after_reading])
def test_auto_commit_leaves_out_the_records_of_a_consumer_block_that_failed(work, protocol, caplog):
    """Auto-commit at the end of `async with consumer` commits what earlier polls returned; what the failed block was
    working on is read again.
    """

    async def main(world):
        await write(world, *(b"%d" % n for n in range(8)))
        with pytest.raises(ZeroDivisionError):
            async with member(world, group_protocol=protocol, enable_auto_commit=True) as consumer:
                await work(consumer)
        assert await _committed(world) == 3

    within(main)
    assert "the work on these records may not be done: t-0 from offset 3" in caplog.text


@pytest.mark.parametrize("work", [_one_by_one, _batches])
def test_auto_commit_commits_partitions_assigned_by_hand_when_a_block_fails(work):
    async def read(world):
        async with reader(world, group_id="g", enable_auto_commit=True) as consumer:
            consumer.assign([PLACE])
            await work(consumer)

    async def main(world):
        await write(world, *(b"%d" % n for n in range(8)))
        with pytest.raises(ZeroDivisionError):
            await read(world)
        assert await _committed(world) == 3

    within(main)


@pytest.mark.parametrize("ends", ["by a timeout", "by a cancellation"])
def test_leaving_a_consumer_block_during_a_wait_commits_every_returned_record(ends, caplog):
    async def read(world):
        async with member(world, enable_auto_commit=True) as consumer:
            for _ in range(4):
                await consumer.getone()
            await consumer.getone(timeout_ms=1_000 if ends == "by a timeout" else None)

    async def main(world):
        await write(world, *(b"%d" % n for n in range(4)))
        reading = asyncio.create_task(read(world))
        await asyncio.sleep(10)
        reading.cancel()
        with pytest.raises(RequestTimedOutError if ends == "by a timeout" else asyncio.CancelledError):
            await reading
        assert await _committed(world) == 4

    within(main)
    assert not [said for said in caplog.records if said.levelno >= logging.WARNING]


def test_a_commit_made_in_a_consumer_block_that_then_fails_stays_committed():
    async def read(world):
        async with member(world, enable_auto_commit=True) as consumer:
            await consumer.getmany(timeout_ms=5_000, max_records=3)
            await consumer.commit({PLACE: 2})
            raise ZeroDivisionError

    async def main(world):
        await write(world, *(b"%d" % n for n in range(4)))
        with pytest.raises(ZeroDivisionError):
            await read(world)
        assert await _committed(world) == 2

    within(main)


def test_closing_a_consumer_commits_the_records_it_returned():
    async def main(world):
        await write(world, b"a", b"b")
        consumer = member(world, enable_auto_commit=True)
        await consumer.start()
        await consumer.getone()
        await consumer.close()
        assert await _committed(world) == 1

    within(main)
