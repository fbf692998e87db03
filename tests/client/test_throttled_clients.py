"""The SDK's clients over their quotas: everything arrives at the rate that is allowed, over their connections."""

from typing import Any

import pytest
from client_world import BOOTSTRAP, World, run
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import QuotaEntity
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.producer.producer import Producer

RECORDS, RECORD_BYTES = 60, 1_000


async def limited(world: World, **quotas: float) -> None:
    await world.start_broker()
    async with Admin(BOOTSTRAP, environment=world.environment) as admin:
        await admin.alter_client_quotas(QuotaEntity(client_id="slow"), set=quotas)


async def produced(world: World, **keywords: Any) -> None:
    async with Producer(BOOTSTRAP, environment=world.environment, **keywords) as producer:
        for number in range(RECORDS):
            await producer.send("t", bytes([number]) * RECORD_BYTES)
        await producer.flush()


async def read(world: World, **keywords: Any) -> list[int]:
    consumer = Consumer(
        BOOTSTRAP, topics=["t"], environment=world.environment, auto_offset_reset="earliest", **keywords
    )
    values: list[int] = []
    async with consumer:
        for _ in range(200):
            if len(values) >= RECORDS:
                break
            for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                values += [record.value[0] for record in batch]
    return values


def seconds(world: World) -> float:
    return world.environment.clock.monotonic_ms() / 1000


@pytest.mark.parametrize("request_timeout_ms", [2_000, 30_000])
def test_a_producer_over_its_quota_sends_everything_once_at_its_rate(request_timeout_ms: int) -> None:
    async def main(world: World) -> None:
        await limited(world, producer_byte_rate=1_000)
        begun = seconds(world)
        await produced(world, client_id="slow", request_timeout_ms=request_timeout_ms, max_batch_size=5_000)
        # 60 s for all bytes, less 11 s, which are free while no window is full, and 5 s, for which the last batch of
        # 5,000 bytes makes nobody wait
        assert 40 < seconds(world) - begun < 75
        assert await read(world) == list(range(RECORDS))
        assert world.broker is not None
        if request_timeout_ms == 30_000:  # with 2 s, requests that are held back time out and are sent again
            assert world.broker.metrics.duplicates_refused == 0

    run(main)


@pytest.mark.parametrize("request_timeout_ms", [2_000, 30_000])
def test_a_consumer_over_its_quota_gets_everything_at_its_rate(request_timeout_ms: int) -> None:
    async def main(world: World) -> None:
        await limited(world, consumer_byte_rate=1_000)
        await produced(world, max_batch_size=3_000)
        assert world.broker is not None
        begun, before = seconds(world), world.broker.metrics.accepted_connections
        read_ = await read(
            world, client_id="slow", request_timeout_ms=request_timeout_ms, max_partition_fetch_bytes=9_000
        )
        assert read_ == list(range(RECORDS))
        # an answer has three batches of 3,000 bytes; two such answers do not fit into the same 11 s, so one comes every
        # 13 s
        assert 40 < seconds(world) - begun < 90
        assert world.broker.metrics.accepted_connections - before <= 2, "no connection was given up while it waited"
        assert world.broker.metrics.throttles["consumer_byte_rate"] > 3

    run(main)


def test_long_throttling_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        await limited(world, producer_byte_rate=1_000)
        begun = seconds(world)
        await produced(world, client_id="slow", max_batch_size=5_000)
        assert 40 < seconds(world) - begun < 75
        told = [each.getMessage() for each in caplog.records if "a quota of broker" in each.getMessage()]
        assert len(told) <= 2, "it was told several times of one wait"
        assert told[0].startswith("a quota of broker 1 holds 'slow' back for ")
        assert told[0].endswith("; fencepost quota list shows all quotas")

    run(main)
