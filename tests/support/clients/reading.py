"""What tests of the SDK's consumer begin with: a topic "t", records in it, and a consumer that reads from its start."""

from collections.abc import Iterable
from typing import Any

from fencepost.client.consumer.consumer import Consumer
from fencepost.client.producer.producer import Producer
from fencepost.protocol.messages.topics import CreateTopicsRequest
from txn_world import BOOTSTRAP, TxnWorld

EXISTS = 36
PROTOCOL: dict[str, Any] = {}
"""What members choose besides; tests replace it."""


def reader(world: TxnWorld, **keywords: Any) -> Consumer:
    chosen = {"auto_offset_reset": "earliest", **PROTOCOL, **keywords}
    return Consumer(BOOTSTRAP, environment=world.world.environment, **chosen)


def member(world: TxnWorld, **keywords: Any) -> Consumer:
    """Return a consumer in group g that has subscribed to the topic."""
    return reader(world, **{"topics": ["t"], "group_id": "g", **keywords})


async def write(world: TxnWorld, *written: bytes, partition: int = 0) -> None:
    async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
        for value in written:
            await producer.send_and_wait("t", value, partition=partition)


async def make(world: TxnWorld, partitions: int = 1) -> None:
    """Create the topic with this many partitions, unless it exists."""
    topic = CreateTopicsRequest.Topic(name="t", num_partitions=partitions, replication_factor=1)
    cluster = await world.world.cluster()
    response = await cluster.ask("any", CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
    assert response.topics[0].error_code in (0, EXISTS), response


def values(records: Iterable[Any]) -> list[bytes | None]:
    return [record.value for record in records]


async def all_there(consumer: Consumer, count: int) -> list[bytes | None]:
    """Read until there are at least `count` records, and return their values."""
    found: list[bytes | None] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=5_000)).values():
            assert records
            found += values(records)
    return found
