"""One cycle of a mirror's protocol, as plainly as it can be: for tests of what comes before and after it."""

from fencepost.client.admin.admin import Admin
from fencepost.client.admin.offsets import EARLIEST, LATEST
from fencepost.client.mirror.committed import committed_batches
from fencepost.client.mirror.names import MAP_TOPIC, group_id, transactional_id
from fencepost.client.mirror.offset_map import Entry, EntryKey, Run, add_run, encode_entry, encode_key
from fencepost.client.mirror.positions import Position, decode_position, encode_position
from fencepost.client.mirror.topics import follow_topics
from fencepost.client.producer.producer import Producer
from fencepost.client.values import ConsumerGroupMetadata, TopicPartition
from fencepost.protocol.records import records
from two_clusters import Clusters


async def mirror_all(to: Clusters, *topics: str, mirror: str = "default") -> None:
    """Copy everything that is committed in these topics and not copied yet, in one transaction for each partition."""
    await follow_topics(to.source, to.target, topics)
    described = await to.source.describe_topics(topics)
    copies = await to.target.describe_topics(topics)
    async with Producer(to.target_at, transactional_id=transactional_id(mirror, "plain")) as producer:
        for topic in described.values():
            ids = bytes(topic.topic_id), bytes(copies[topic.name].topic_id)
            for partition in topic.topic_partitions:
                await _copy(to, producer, partition, ids, mirror)


async def _copy(
    to: Clusters, producer: Producer, partition: TopicPartition, ids: tuple[bytes, bytes], mirror: str
) -> None:
    """Copy a partition. ids: of its topic on the source and on the target."""
    group = group_id(mirror)
    committed = (await to.target.list_group_offsets(group, [partition])).get(partition)
    first = decode_position(committed).offset if committed else (await to.source.ends([partition], EARLIEST))[partition]
    end = (await to.source.ends([partition], LATEST, "read_committed"))[partition]
    runs: list[Run] = []
    async with producer.transaction() as transaction:
        async for batch in committed_batches(to.source, partition, first, end):
            for record in records(batch):
                sent = await transaction.send_and_wait(
                    partition.topic, record.value, key=record.key, partition=partition.partition,
                    timestamp_ms=record.timestamp,
                )  # fmt: skip
                add_run(runs, record.offset, sent.offset)
        key = EntryKey(mirror, partition.topic, ids[0], partition.partition, first)
        if runs:
            await transaction.send(
                MAP_TOPIC, encode_entry(first, Entry(end, tuple(runs))), key=encode_key(key), partition=0
            )
        position = encode_position(Position(end, ids[0], None, ids[1]))
        await transaction.send_offsets_to_transaction({partition: position}, ConsumerGroupMetadata(group))


async def values_from(admin: Admin, partition: TopicPartition, offset: int) -> list[bytes]:
    """Return the committed values from this offset on."""
    end = (await admin.ends([partition], LATEST, "read_committed"))[partition]
    return [
        bytes(record.value or b"")
        async for batch in committed_batches(admin, partition, offset, end)
        for record in records(batch)
        if record.offset >= offset
    ]
