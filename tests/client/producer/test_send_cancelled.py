"""A send that is cancelled has taken nothing: who sends that record again writes it once."""

import asyncio

import pytest
from cancelled_everywhere import at_every_turn
from fencepost.client.errors import IllegalStateError
from fencepost.client.producer.producer import Producer
from txn_world import BOOTSTRAP, within

COUNT = 30


async def send_all(producer, sent, count=COUNT):
    """Send the values that are not in `sent` yet, up to `count` in all, and add each to it."""
    while len(sent) < count:
        value = b"%03d" % len(sent)
        await producer.send("t", value * 40)
        sent.append(value * 40)


@pytest.mark.slow
@pytest.mark.sampled
def test_after_a_send_cancelled_at_any_await_the_rest_can_be_sent_without_loss():
    """Batches have room for three records, so sends also wait for a new batch."""

    async def main(world, cancelling):
        async with Producer(BOOTSTRAP, environment=world.world.environment, max_batch_size=500) as producer:
            sent = []
            try:
                await cancelling(send_all(producer, sent))
            except asyncio.CancelledError:
                await send_all(producer, sent)
            await producer.flush()
            assert await world.values() == sent

    assert at_every_turn(main) > COUNT // 4


def test_a_send_still_waiting_when_its_transaction_ended_raises_illegal_state():
    async def main(world):
        producer = await world.producer(max_batch_size=500)
        async with producer.transaction() as tx:
            while not producer._accumulator.filled:
                await tx.send("t", b"a" * 100)
            late = asyncio.ensure_future(tx.send("t", b"late"))
            await asyncio.sleep(0)
        async with producer.transaction() as tx:
            await tx.send("t", b"b")
            with pytest.raises(IllegalStateError):
                await late
        assert b"late" not in await world.values()

    within(main)
