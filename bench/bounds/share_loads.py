"""Loads of share groups: each runs in a process of its own, with a new group that reads the records already in the
topic.

Run as `python -m fencepost.bench.bounds.share_loads WORK BOOTSTRAP TOPIC RECORDS`; prints figures as JSON.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from ...client.consumer.consumer import Consumer
from ...client.producer.producer import Producer
from ...client.share.consumer import ShareConsumer
from ...client.values import ShareRecord
from .processes import Figures, print_figures

WORKERS = 4
AT_ONCE = 500  # records of one poll, and of one commit
IN_TRANSACTION = 100  # records
WARM_TRANSACTIONS = 20


@dataclass(frozen=True, slots=True)
class Load:
    """The arguments of a load. records: how many records it reads."""

    bootstrap: str
    topic: str
    records: int

    @property
    def group(self) -> str:
        """Return the name of a new group, another one at each call."""
        return f"{self.topic}-{time.time_ns()}"


def _queue(load: Load, group: str) -> ShareConsumer:
    """Return a share consumer of the group, not started, which reads the topic from its beginning."""
    return ShareConsumer(load.bootstrap, topics=[load.topic], group_id=group, auto_offset_reset="earliest")


async def workers(load: Load) -> Figures:
    """Read the topic with WORKERS share consumers on one loop. Each accepts its records, and waits until that is
    committed, before it fetches more.
    """
    group = load.group
    left = load.records
    began = 0.0

    async def work() -> None:
        """Read and accept records with one consumer until all are done."""
        nonlocal left, began
        async with _queue(load, group) as queue:
            while left > 0:
                records = await queue.getmany(timeout_ms=100, max_records=AT_ONCE)
                began = began or (time.perf_counter() if records else 0.0)
                for record in records:
                    queue.acknowledge(record)
                await queue.commit()
                left -= len(records)

    async with asyncio.TaskGroup() as together:
        for _ in range(WORKERS):
            together.create_task(work())
    return {"rate": (load.records - left) / (time.perf_counter() - began)}


async def acknowledged(load: Load) -> Figures:
    """Run transactions that send one record and acknowledge 100 records of a share group. Returns the median time of a
    transaction.
    """
    group = load.group
    took: list[float] = []
    async with (
        Producer(load.bootstrap, transactional_id=group) as producer,
        _queue(load, group) as queue,
    ):
        while len(took) < load.records // IN_TRANSACTION:
            records: list[ShareRecord] = []
            while len(records) < IN_TRANSACTION:
                records += await queue.getmany(timeout_ms=1000, max_records=IN_TRANSACTION - len(records))
            began = time.perf_counter()
            async with producer.transaction() as tx:
                await tx.send(f"{load.topic}-done", b"done")
                await tx.acknowledge(queue, *records)
            took.append(time.perf_counter() - began)
    return {"took_ms": 1e3 * statistics.median(took[WARM_TRANSACTIONS:] or took)}


async def offsets(load: Load) -> Figures:
    """Run transactions that send one record and commit a consumer's offsets for 100 records. Returns the median time
    of a transaction.
    """
    group = load.group
    took: list[float] = []
    async with (
        Producer(load.bootstrap, transactional_id=group) as producer,
        Consumer(
            load.bootstrap,
            topics=[load.topic],
            group_id=group,
            auto_offset_reset="earliest",
            group_protocol="consumer",  # the broker assigns at once, without waiting for other members
        ) as consumer,
    ):
        async for batch in consumer.batches(max_records=IN_TRANSACTION):
            began = time.perf_counter()
            async with producer.transaction(batch) as tx:
                await tx.send(f"{load.topic}-done", b"done")
            took.append(time.perf_counter() - began)
            if len(took) >= load.records // IN_TRANSACTION:
                break
    return {"took_ms": 1e3 * statistics.median(took[WARM_TRANSACTIONS:] or took)}


LOADS: dict[str, Callable[[Load], Coroutine[object, object, Figures]]] = {
    load.__name__: load for load in (workers, acknowledged, offsets)
}


if __name__ == "__main__":
    _, chosen, servers, name, number = sys.argv
    print_figures(LOADS[chosen](Load(servers, name, int(number))))
