"""What a consumer takes for committed, where commits, seeks, hidden records and rolled back batches come together."""

import asyncio

import pytest
from fencepost.client.values import TopicPartition
from reading import make, member, reader, values, write
from txn_world import within

PLACE = TopicPartition("t", 0)


async def _committed(world):
    async with reader(world, group_id="g") as consumer:
        return (await consumer.committed(PLACE))[PLACE].offset


async def _roll_back(producer, batch):
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction(batch)
    await producer.abort_transaction()


async def _next(consumer, count):
    found = await consumer.getmany(timeout_ms=10_000, max_records=count)
    return values(record for records in found.values() for record in records)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_a_retried_commit_does_not_overwrite_the_offset_of_a_later_commit(protocol, when):
    async def main(world):
        await write(world, b"a", b"b", b"c")
        async with member(world, group_protocol=protocol) as consumer:
            await consumer.getmany(timeout_ms=10_000)
            world.faults.error("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", when=when).once()
            await asyncio.gather(consumer.commit({PLACE: 1}), consumer.commit({PLACE: 3}))
            assert await _committed(world) == 3

    within(main)


@pytest.mark.parametrize("how", ["seek", "seek_to_beginning"])
def test_a_commit_answered_after_a_seek_back_does_not_cover_records_read_again(how):
    async def main(world):
        await write(world, *(b"%d" % n for n in range(6)))
        producer = await world.producer()
        async with member(world) as consumer:
            assert len(await _next(consumer, 5)) == 5
            world.faults.delay("OffsetCommit", 1).once()
            committing = asyncio.create_task(consumer.commit())
            await asyncio.sleep(0.5)
            if how == "seek":
                consumer.seek(PLACE, 0)
            else:
                await consumer.seek_to_beginning(PLACE)
            await committing
            assert await _next(consumer, 2) == [b"0", b"1"]
            await _roll_back(producer, await anext(consumer.batches(1)))
            assert await _next(consumer, 6) == [b"%d" % n for n in range(6)]

    within(main)


def test_an_abort_returns_uncommitted_records_before_an_aborted_record_again():
    async def main(world):
        await make(world)
        await write(world, b"0", b"1")
        producer, other = await world.producer(), await world.producer("other")
        async with member(world) as consumer:
            assert await _next(consumer, 2) == [b"0", b"1"]
            await other.begin_transaction()
            await other.send_and_wait("t", b"nobody sees this")
            await other.abort_transaction()
            assert await consumer.getmany(timeout_ms=2_000) == {}
            assert await consumer.position(PLACE) == 4
            await write(world, b"2", b"3")
            await _roll_back(producer, await anext(consumer.batches(1)))
            assert await _next(consumer, 2) == [b"0", b"1"]

    within(main)
