"""Loads of a mirror between two brokers: each runs in a process of its own.

Run as `python -m fencepost.bench.bounds.mirror_loads WORK SOURCE TARGET TOPIC RECORDS`; prints figures as JSON.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass

from ...client.consumer.consumer import Consumer
from ...client.mirror.task import MirrorTask
from ...client.producer.producer import Producer
from ...client.values import TopicPartition
from .processes import Figures, print_figures

PARTITIONS = 4
AT_ONCE = 5_000  # records of one transaction
LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Load:
    """The arguments of a load. source, target: addresses. records: how many records the topic has at the source."""

    source: str
    target: str
    topic: str
    records: int


async def mirrored(load: Load) -> Figures:
    """Copy the topic with one task of a mirror. Returns the records per second after the first copied records, so that
    the start of the task does not count.
    """
    task = MirrorTask(
        {"bootstrap.servers": load.source},
        {"bootstrap.servers": load.target},
        mirror=load.topic,
        topics=load.topic,
        task="bench",
    )
    running = asyncio.ensure_future(task.run())
    first, began = 0, 0.0
    while task.counts.records < load.records and not running.done():
        if not first and task.counts.records:
            first, began = task.counts.records, time.perf_counter()
        await asyncio.sleep(LOOK_S)
    took_s = time.perf_counter() - began
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return {"rate": (load.records - first) / took_s}


async def copied(load: Load) -> Figures:
    """Copy the topic with a consumer and a transactional producer of the SDK alone, without positions and without a map
    of offsets. Returns the records per second after the first transaction.
    """
    name = f"{load.topic}-copied"
    partitions = [TopicPartition(load.topic, number) for number in range(PARTITIONS)]
    done, first, began = 0, 0, 0.0
    async with (
        Consumer(load.source, isolation_level="read_committed", auto_offset_reset="earliest") as consumer,
        Producer(load.target, transactional_id=name) as producer,
    ):
        consumer.assign(partitions)
        while done < load.records:
            found = await consumer.getmany(timeout_ms=1_000, max_records=AT_ONCE)
            records = [each for batch in found.values() for each in batch]
            async with producer.transaction() as tx:
                for each in records:
                    await tx.send(name, each.value, each.key, each.partition, each.timestamp_ms, each.headers or None)
            done += len(records)
            if not first:
                first, began = done, time.perf_counter()
    return {"rate": (done - first) / (time.perf_counter() - began)}


LOADS: dict[str, Callable[[Load], Coroutine[object, object, Figures]]] = {"mirrored": mirrored, "copied": copied}


if __name__ == "__main__":
    _, chosen, from_, to, name, number = sys.argv
    print_figures(LOADS[chosen](Load(from_, to, name, int(number))))
