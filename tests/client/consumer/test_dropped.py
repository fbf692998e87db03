"""A consumer that nobody holds any more and nobody closed."""

import asyncio
import gc

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.producer.producer import Producer
from txn_world import BOOTSTRAP, within

pytestmark = pytest.mark.slow


def _drop(consumers):
    consumers.clear()
    gc.collect()


@pytest.mark.parametrize("group", [None, "g"])
def test_a_garbage_collected_unclosed_consumer_raises_a_resource_warning(group):
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            await producer.send_and_wait("t", b"v")
        environment = world.world.environment
        consumers = [
            Consumer(BOOTSTRAP, topics=["t"], environment=environment, group_id=group, auto_offset_reset="earliest")
        ]
        await consumers[0].start()
        assert (await consumers[0].getone()).value == b"v"
        with pytest.warns(ResourceWarning, match="never closed"):
            _drop(consumers)
        await asyncio.sleep(1)

    within(main)


def test_a_consumer_never_started_or_already_closed_is_collected_silently(recwarn):
    async def main(world):
        Consumer(BOOTSTRAP, environment=world.world.environment)
        async with Consumer(BOOTSTRAP, environment=world.world.environment):
            pass
        gc.collect()

    within(main)
    assert not [each for each in recwarn if issubclass(each.category, ResourceWarning)]
