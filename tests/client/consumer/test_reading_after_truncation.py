"""After it was told that a log is shorter than what its group has read, a consumer reads on, however it reads."""

import asyncio

import pytest
from fencepost.client.errors import OffsetOutOfRangeError

from fencepost import Admin, Broker, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition

PARTITION = TopicPartition("t", 0)


async def by_batches(consumer):
    return [record.value for record in await anext(consumer.batches())]


async def by_getone(consumer):
    return [(await consumer.getone()).value]


async def by_iterating(consumer):
    return [(await anext(aiter(consumer))).value]


@pytest.mark.parametrize("read", [by_batches, by_getone, by_iterating])
async def test_after_a_truncation_error_a_consumer_reads_the_records_written_since(tmp_path, read):
    """The group's offset is that of a topic which was deleted and made again with fewer records, for example."""
    async with (
        Broker(data_dir=tmp_path) as broker,
        Admin(broker.bootstrap_servers) as admin,
        Producer(broker.bootstrap_servers) as producer,
        Consumer(broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        await admin.create_topics([NewTopic("t", 1)])
        await producer.send_and_wait("t", b"old")
        await consumer.commit({PARTITION: OffsetAndMetadata(14, "", 0)})
        consumer.assign([PARTITION])
        with pytest.raises(OffsetOutOfRangeError, match="truncated"):
            await read(consumer)
        await producer.send_and_wait("t", b"new")
        async with asyncio.timeout(30):
            assert await read(consumer) == [b"new"]
