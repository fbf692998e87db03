"""A group whose committed offsets an open transaction holds: the consumer waits, and says for what."""

import asyncio
import logging

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import RequestTimedOutError
from fencepost.client.values import TopicPartition
from reading import make, member, write
from txn_world import BOOTSTRAP, within

PLACE = TopicPartition("t", 0)
HINT = "fencepost txn why-blocked --group g"
both = pytest.mark.parametrize("protocol", ["classic", "consumer"])


async def hold(world, protocol="classic", partition=0):
    """Leave a transaction with offsets of the group open. Returns its producer."""
    producer = await world.producer(transaction_timeout_ms=600_000)
    async with member(world, group_protocol=protocol) as consumer:
        batch = await anext(consumer.batches())
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction(batch)
    return producer


def warned(caplog):
    return [said.getMessage() for said in caplog.records if said.levelno >= logging.WARNING]


@pytest.mark.slow
@both
def test_a_consumer_waiting_for_offsets_in_an_open_transaction_logs_and_shows_that(protocol, caplog):
    """The group's offset of the partition is pending: whether it counts is decided by the end of the transaction that
    sent it.
    """

    async def main(world):
        await make(world, 2)
        await write(world, b"a")
        producer = await hold(world, protocol)
        caplog.clear()
        async with member(world, group_protocol=protocol) as consumer:
            reading = asyncio.create_task(consumer.getmany(timeout_ms=200_000))
            await asyncio.sleep(4)
            assert warned(caplog) == [], "most transactions end in the meantime"
            await asyncio.sleep(80)
            first, *again = warned(caplog)
            assert "group g: an open transaction has held the committed offsets of t-0" in first
            assert first.endswith(HINT)
            assert len(again) == 1, "once in a minute"
            seen = consumer.state().partitions
            assert seen[PLACE].position == -1
            assert 60_000 < seen[PLACE].unstable_ms < 85_000
            assert seen[TopicPartition("t", 1)].unstable_ms == 0
            await producer.abort_transaction()
            assert len(await reading) == 1
            assert consumer.state().partitions[PLACE].unstable_ms == 0

    within(main)


def test_a_position_timeout_names_the_open_transaction_as_the_cause():
    async def main(world):
        await write(world, b"a")
        producer = await hold(world)
        async with member(world, default_api_timeout_ms=10_000) as consumer:
            for call in (consumer.assigned(), consumer.position(PLACE)):
                with pytest.raises(RequestTimedOutError, match="has held the committed offsets of t-0") as late:
                    await call
                assert late.value.hint == HINT
            with pytest.raises(RequestTimedOutError, match="UNSTABLE_OFFSET_COMMIT") as late:
                await consumer.committed(PLACE)
            assert HINT in late.value.hint
        await producer.abort_transaction()

    within(main)


def test_seek_ends_a_wait_for_the_partitions_position():
    async def main(world):
        await write(world, b"a")
        producer = await hold(world)
        async with Consumer(BOOTSTRAP, group_id="g", environment=world.world.environment) as consumer:
            consumer.assign([PLACE])
            assert await consumer.getmany(timeout_ms=8_000) == {}
            assert consumer.state().partitions[PLACE].unstable_ms > 0
            consumer.seek(PLACE, 0)
            assert consumer.state().partitions[PLACE].unstable_ms == 0
            assert (await consumer.getone()).value == b"a"
        await producer.abort_transaction()

    within(main)
