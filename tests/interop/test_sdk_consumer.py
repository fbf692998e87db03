"""The SDK's consumer and a whole broker: sessions over many partitions, topics made again, logs that were cut.

With KAFKA=HOST:PORT the broker is that one.
"""

import asyncio
from collections import Counter

import pytest
from fencepost.client.net.connection import Connection
from fencepost.protocol.messages.fetch import FetchRequest

import fencepost as fp

PARTITIONS = 12
READING = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500}


async def make(bootstrap, name, partitions=1):
    async with fp.Admin(bootstrap) as admin:
        await admin.create_topics([fp.NewTopic(name, partitions)])


async def write(bootstrap, name, values, partitions=1):
    async with fp.Producer(bootstrap) as producer:
        for n, value in enumerate(values):
            await producer.send(name, value, partition=n % partitions)


async def read(consumer, count):
    async with asyncio.timeout(30):
        return [(await consumer.getone()).value for _ in range(count)]


def noted(monkeypatch):
    """Return a list to which each fetch that is sent is added, with its version."""
    fetches = []
    send = Connection.send

    def noting(self, request, version, **more):
        if isinstance(request, FetchRequest):
            fetches.append((version, request))
        return send(self, request, version, **more)

    monkeypatch.setattr(Connection, "send", noting)
    return fetches


def test_the_sdks_fetch_session_requests_only_changed_partitions(broker, name, monkeypatch):
    async def main():
        await make(broker.bootstrap, name, PARTITIONS)
        await write(broker.bootstrap, name, [b"%d" % n for n in range(120)], PARTITIONS)
        fetches = noted(monkeypatch)
        async with fp.Consumer(broker.bootstrap, topics=[name], **READING) as consumer:
            assert Counter(await read(consumer, 120)) == Counter(b"%d" % n for n in range(120))
            fetches.clear()
            for n in range(20):
                await write(broker.bootstrap, name, [b"x%d" % n])
                assert await read(consumer, 1) == [b"x%d" % n]
        assert all(version >= 13 and request.session_id for version, request in fetches)
        named = [sum(len(topic.partitions) for topic in request.topics) for _, request in fetches]
        assert max(named) <= 1  # only the partition whose position has changed
        assert {request.session_epoch for _, request in fetches} >= {fetches[0][1].session_epoch + n for n in range(19)}

    asyncio.run(main())


@pytest.mark.parametrize("limit", [{"max_partition_fetch_bytes": 100}, {"fetch_max_bytes": 1_000}])
def test_the_sdk_reads_records_larger_than_its_fetch_limits_from_all_partitions(broker, name, limit):
    async def main():
        values = [b"%d " % n + bytes(50_000) for n in range(60)]
        await make(broker.bootstrap, name, PARTITIONS)
        await write(broker.bootstrap, name, values, PARTITIONS)
        async with fp.Consumer(broker.bootstrap, topics=[name], **READING, **limit) as consumer:
            assert Counter(await read(consumer, 60)) == Counter(values)

    asyncio.run(main())


def test_the_sdk_raises_an_error_when_the_log_was_truncated_before_its_position(broker, name):
    async def main():
        tp = fp.TopicPartition(name, 0)
        await make(broker.bootstrap, name)
        await write(broker.bootstrap, name, [b"a", b"b"])
        async with fp.Consumer(broker.bootstrap, topics=[name], group_id=name, **READING) as consumer:
            await read(consumer, 2)
            await consumer.commit()
            epoch = (await consumer.committed(tp))[tp].leader_epoch
            assert epoch >= 0
            consumer.seek(tp, fp.OffsetAndMetadata(5, "", epoch))
            with pytest.raises(fp.OffsetOutOfRangeError, match="was truncated: the records read from offset 2 up to 5"):
                await read(consumer, 1)
            await write(broker.bootstrap, name, [b"c"])
            assert await read(consumer, 1) == [b"c"]

    asyncio.run(main())


def test_the_sdk_raises_an_error_when_its_topic_was_deleted_and_created_again(broker, name):
    async def main():
        await make(broker.bootstrap, name)
        await write(broker.bootstrap, name, [b"a", b"b"])
        async with fp.Consumer(broker.bootstrap, topics=[name], **READING) as consumer:
            await read(consumer, 2)
            async with fp.Admin(broker.bootstrap) as admin:
                await admin.delete_topics(name)
            await asyncio.sleep(0.5)
            await make(broker.bootstrap, name)
            await write(broker.bootstrap, name, [b"c", b"d", b"e"])
            with pytest.raises(fp.OffsetOutOfRangeError, match="created again"):
                await read(consumer, 1)
            assert await read(consumer, 3) == [b"c", b"d", b"e"]

    asyncio.run(main())


def test_the_sdk_reads_partitions_that_are_added_to_its_topic(broker, name):
    async def main():
        await make(broker.bootstrap, name)
        async with fp.Consumer(broker.bootstrap, topics=[name], **READING) as consumer:
            await consumer.assigned()
            async with fp.Admin(broker.bootstrap) as admin:
                await admin.create_partitions({name: 3})
            async with fp.Producer(broker.bootstrap) as producer:
                for partition in range(3):
                    await producer.send_and_wait(name, b"%d" % partition, partition=partition)
            assert Counter(await read(consumer, 3)) == Counter([b"0", b"1", b"2"])

    asyncio.run(main())
