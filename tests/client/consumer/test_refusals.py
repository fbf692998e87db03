"""What a consumer is asked for that cannot be: refused at once, by name, instead of waited for or misunderstood."""

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import InvalidConfigurationError, KafkaError
from fencepost.client.producer.producer import Producer
from fencepost.client.values import OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from txn_world import BOOTSTRAP, within

T0 = ("t", 0)


@pytest.mark.parametrize("name", ["a b", "", ".", "..", "ä", "x" * 250, "a/b"])
def test_a_topic_that_there_can_never_be_is_refused_at_once(name):
    with pytest.raises(KafkaError) as refused:
        Consumer(BOOTSTRAP, topics=[name])
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("most", "error"),
    [(0, InvalidConfigurationError), (-1, InvalidConfigurationError), ("x", TypeError), (1.5, TypeError),
     (True, TypeError)],
)  # fmt: skip
def test_a_number_of_records_that_is_none_is_refused(most, error):
    async def main(world):
        async with Consumer(BOOTSTRAP, environment=world.world.environment) as consumer:
            consumer.assign([T0])
            with pytest.raises(error, match="max_records"):
                await consumer.getmany(max_records=most)
            with pytest.raises(error, match="max_records"):
                consumer.batches(most)

    within(main)


@pytest.mark.parametrize(
    ("offset", "error"),
    [(-1, ValueError), (OffsetAndMetadata(-1), ValueError), ("x", TypeError), (None, TypeError), (True, TypeError)],
)
def test_an_offset_that_is_none_is_not_committed(offset, error):
    async def main(world):
        async with Consumer(BOOTSTRAP, environment=world.world.environment, group_id="g") as consumer:
            with pytest.raises(error):
                await consumer.commit({T0: offset})
            assert await consumer.committed(T0) == {T0: None}

    within(main)


def test_offsets_are_asked_for_by_plain_pairs():
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            await producer.send_and_wait("t", b"v", partition=0, timestamp_ms=5)
        async with Consumer(BOOTSTRAP, environment=world.world.environment) as consumer:
            assert await consumer.beginning_offsets([T0]) == {T0: 0}
            assert await consumer.end_offsets([T0]) == {T0: 1}
            (found,) = (await consumer.offsets_for_times({T0: 3})).values()
            assert found is not None
            assert found.offset == 0

    within(main)
