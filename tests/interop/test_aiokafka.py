"""aiokafka, unchanged: produce with every codec, plain and idempotent, and read by assignment."""

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_aiokafka_reads_back_its_records_in_every_codec(broker, codec, idempotent):
    """With their offsets, timestamps and headers; also from an offset sought, or found by a time."""
    topic = f"aio-{codec}-{idempotent}"
    place = TopicPartition(topic, 0)
    values = [b"value %d " % n * 50 for n in range(100)]
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=codec, enable_idempotence=idempotent, linger_ms=20
    )
    async with producer:
        stamped = [(value, 1_000 + n, [("n", b"%d" % n)]) for n, value in enumerate(values)]
        sends = [await producer.send(topic, v, b"key", 0, stamp, headers) for v, stamp, headers in stamped]
        assert [(await send).offset for send in sends] == list(range(100))
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    async with consumer:
        consumer.assign([place])
        found = [await consumer.getone() for _ in values]
        assert [record.value for record in found] == values
        assert [record.offset for record in found] == list(range(100))
        assert found[3].headers == (("n", b"3"),)
        assert found[3].timestamp == 1_003
        assert await consumer.end_offsets([place]) == {place: 100}
        assert (await consumer.offsets_for_times({place: 1_050}))[place].offset == 50
        consumer.seek(place, 97)
        assert (await consumer.getone()).value == values[97]


async def test_aiokafka_creates_lists_and_deletes_topics(broker):
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic("aio-admin", 2, 1)])
        assert answer.topic_errors[0][:2] == ("aio-admin", 0)
        assert "aio-admin" in await admin.list_topics()
        described = await admin.describe_topics(["aio-admin"])
        assert len(described[0]["partitions"]) == 2
        await admin.delete_topics(["aio-admin"])
        assert "aio-admin" not in await admin.list_topics()
    finally:
        await admin.close()
