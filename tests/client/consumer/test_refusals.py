"""What a consumer is asked for that cannot be: refused at once, by name, instead of waited for or misunderstood."""

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import IllegalStateError, InvalidConfigurationError, KafkaError
from fencepost.client.producer.producer import Producer
from fencepost.client.values import OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from reading import make, member, reader
from txn_world import BOOTSTRAP, within

T0 = ("t", 0)


@pytest.mark.parametrize("name", ["a b", "", ".", "..", "ä", "x" * 250, "a/b"])
def test_an_invalid_topic_name_is_refused_at_once(name):
    with pytest.raises(KafkaError) as refused:
        Consumer(BOOTSTRAP, topics=[name])
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "error"),
    [(0, InvalidConfigurationError), (-1, InvalidConfigurationError), ("x", TypeError), (1.5, TypeError),
     (True, TypeError)],
)  # fmt: skip
def test_an_invalid_max_records_raises_an_error_naming_it(most, error):
    async def main(world):
        async with Consumer(BOOTSTRAP, environment=world.world.environment) as consumer:
            consumer.assign([T0])
            with pytest.raises(error, match="max_records"):
                await consumer.getmany(max_records=most)
            with pytest.raises(error, match="max_records"):
                consumer.batches(most)

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offset", "error"),
    [(-1, ValueError), (OffsetAndMetadata(-1), ValueError), ("x", TypeError), (None, TypeError), (True, TypeError)],
)
def test_an_invalid_offset_is_refused_and_not_committed(offset, error):
    async def main(world):
        async with Consumer(BOOTSTRAP, environment=world.world.environment, group_id="g") as consumer:
            with pytest.raises(error):
                await consumer.commit({T0: offset})
            assert await consumer.committed(T0) == {T0: None}

    within(main)


def test_offset_methods_accept_plain_pairs_as_partitions():
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


def test_group_metadata_before_joining_the_group_is_an_illegal_state():
    async def main(world):
        await make(world)
        async with member(world) as consumer:
            with pytest.raises(IllegalStateError, match="not joined group g yet"):
                consumer.group_metadata()
            await consumer.assigned()
            assert consumer.group_metadata().generation == 1
        async with reader(world, group_id="g") as consumer:
            consumer.assign([T0])
            assert consumer.group_metadata().generation == -1, "with assign() it joins no group"

    within(main)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_consumer_without_partitions_logs_that_once(group_id, caplog):
    async def main(world):
        await make(world)
        async with reader(world, group_id=group_id) as consumer:
            for _ in range(3):
                assert await consumer.getmany(timeout_ms=100) == {}
            consumer.assign([T0])
            assert await consumer.getmany(timeout_ms=100) == {}
            await consumer.unsubscribe()
            assert await consumer.getmany(timeout_ms=100) == {}

    within(main)
    assert sum("no topics and no partitions" in one.getMessage() for one in caplog.records) == 2
