"""A producer over real sockets, on a bad network: what the simulation cannot show."""

import asyncio
from collections.abc import Iterator

import pytest
from chaos_proxy import PRODUCE, REPLY, REQUEST, ChaosProxy
from fencepost.client.producer.producer import Producer
from fencepost.protocol.batches import walk
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.records import records
from served_broker import ServedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker(num_partitions=2) as served:
        yield served


def values(broker: ServedBroker, topic: str, partition: int) -> list[bytes | None]:
    seen, offset = [], 0
    with broker.connect() as client:
        while True:
            wanted = FetchRequest.Topic.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(topic=topic, partitions=[wanted])]
            )
            (found,) = client.call(request, 11).responses[0].partitions
            batches = list(walk(memoryview(b"".join(found.records or []))))
            if not batches:
                return seen
            for batch in batches:
                seen += [record.value for record in records(batch)]
                offset = batch.next_offset


@pytest.mark.slow
async def test_10_000_records_sent_in_a_loop_are_stored_once_in_order(broker):
    async with Producer(f"127.0.0.1:{broker.port}", max_batch_size=5_000) as producer:
        deliveries = [await producer.send("loop", b"%06d" % n, key=b"%d" % (n % 7)) for n in range(10_000)]
        await producer.flush()
        where = [await delivery for delivery in deliveries]
    for partition in (0, 1):
        expected = [b"%06d" % n for n in range(10_000) if where[n].partition == partition]
        assert values(broker, "loop", partition) == expected
        assert [one.offset for one in where if one.partition == partition] == list(range(len(expected)))


@pytest.mark.slow
@pytest.mark.parametrize("weather", ["requests cut", "replies cut", "late requests"])
async def test_despite_lost_connections_and_late_requests_records_are_stored_once_in_order(broker, weather):
    topic = weather.replace(" ", "-")
    with ChaosProxy(f"127.0.0.1:{broker.port}", seed=7) as proxy:
        settings = {"max_batch_size": 500, "retry_backoff_ms": 5, "retry_backoff_max_ms": 20}
        async with Producer(proxy.bootstrap, **settings) as producer:
            await producer.send_and_wait(topic, b"%06d" % 0, partition=0)
            if weather == "late requests":
                proxy.late(PRODUCE, times=None, share=0.2, after_s=0.05)
            else:
                proxy.cut(PRODUCE, side=REPLY if weather == "replies cut" else REQUEST, times=None, share=0.2)
            for n in range(1, 600):
                await producer.send(topic, b"%06d" % n, partition=0)
                if n % 40 == 0:
                    await asyncio.sleep(0.01)
            await producer.flush()
            proxy.clear()
    assert values(broker, topic, 0) == [b"%06d" % n for n in range(600)]
