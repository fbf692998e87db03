"""Workers of a share group that reads two partitions and writes to two topics, with faults: each order is billed
exactly once in both. In virtual time, from seeds.
"""

import asyncio
import contextlib
import random

import pytest
from client_world import World, run
from fencepost.client.admin.admin import Admin
from fencepost.client.errors import KafkaError
from fencepost.client.producer.producer import Producer
from reading import make, write
from share_members import sharer
from txn_world import BOOTSTRAP, TxnWorld

ORDERS, WORKERS = 40, 3
FEW = 3
OUTPUTS = ("bills", "receipts")
OFTEN = {"group_share_max_delivery_count_limit": 25}


class Work:
    """Workers that begin again after every error, and a task that makes trouble for a while."""

    def __init__(self, world: TxnWorld, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.done = asyncio.Event()

    async def worker(self, number: int) -> None:
        while not self.done.is_set():
            with contextlib.suppress(KafkaError, TimeoutError, ZeroDivisionError):
                await self.work(number)

    async def work(self, number: int) -> None:
        producer = Producer(
            BOOTSTRAP,
            transactional_id=f"w{number}",
            environment=self.world.world.environment,
            request_timeout_ms=2_000,
            max_block_ms=10_000,
            delivery_timeout_ms=10_000,
            transaction_timeout_ms=20_000,
        )
        strict = self.chance.random() < 0.5
        consumer = sharer(self.world, max_poll_records=FEW, strict=strict, request_timeout_ms=2_000)
        async with producer, consumer:
            while not self.done.is_set():
                records = await consumer.getmany(timeout_ms=1_000)
                async with producer.transaction() as tx:
                    for record in records:
                        for topic in OUTPUTS:
                            await tx.send(topic, record.value, partition=0)
                        await asyncio.sleep(self.chance.choice((0, 0, 0.2, 15)))
                        await tx.acknowledge(consumer, record)
                    if self.chance.random() < 0.1:
                        raise ZeroDivisionError

    async def trouble(self) -> None:
        """Cut connections, lose requests and answers, and restart the broker, twelve times in all."""
        for _ in range(12):
            await asyncio.sleep(self.chance.uniform(0.5, 20))
            kind = self.chance.random()
            if kind < 0.4:
                for connection in self.world.world.net.connections:
                    if self.chance.random() < 0.5:
                        connection.cut()
            elif kind < 0.8:
                api = self.chance.choice(["TxnShareAcknowledge", "EndTxn", "ShareFetch", "Produce"])
                self.world.faults.disconnect(api, when=self.chance.choice(["before_write", "after_write"])).once()
            else:
                await self.world.restart(**OFTEN)

    async def billed(self) -> list[bytes]:
        return await self.world.values("bills")


@pytest.mark.slow
@pytest.mark.requirement("S-121", "S-123", "S-133")
@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 60))])
def test_share_group_workers_write_one_result_per_record_under_random_faults(seed: int) -> None:
    async def main(there: World) -> None:
        world = await TxnWorld(there, None).start(**OFTEN)
        async with Admin(BOOTSTRAP, environment=there.environment) as admin:
            await admin.alter_configs(group="g", set={"share.delivery.count.limit": "25"})
        orders = [b"%d" % number for number in range(ORDERS)]
        await make(world, partitions=2)
        for partition in range(2):
            await write(world, *orders[partition::2], partition=partition)
        work = Work(world, seed)
        workers = [asyncio.create_task(work.worker(number)) for number in range(WORKERS)]
        await work.trouble()
        world.faults.clear()
        for _ in range(720):
            await asyncio.sleep(5)
            if len(set(await work.billed())) == ORDERS:
                break
        work.done.set()
        await asyncio.gather(*workers)
        assert [sorted(await world.values(topic)) for topic in OUTPUTS] == [sorted(orders)] * 2

    run(main, seed=seed + 1)
