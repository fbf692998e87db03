"""What a client library costs its user: each program runs one load in a process of its own, the same work for each
library.

Run as `python -m fencepost.bench.bounds.client_loads WORK LIBRARY BOOTSTRAP TOPIC RECORDS SIZE`; prints figures as
JSON: units per second (records, or transactions for `txn`). Every library is used as its documentation shows, with its
defaults except for the settings named here.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ...client.consumer.consumer import Consumer
from ...client.producer.producer import Producer
from .processes import Figures, print_figures

EQUAL_BATCH_BYTES = 1 << 17
LOOP_BATCH = 500  # records in one turn of consume-transform-produce


@dataclass(frozen=True, slots=True)
class Load:
    """The arguments of a load. records: how many are sent or read, or how many transactions of one record each; size:
    bytes of a value.
    """

    bootstrap: str
    topic: str
    records: int
    size: int

    @property
    def value(self) -> bytes:
        """A value of `size` bytes that does not compress to almost nothing."""
        return bytes(i * 131 % 251 for i in range(self.size))


async def produce_fencepost(load: Load) -> float:
    """Send the records with the SDK. Returns records per second."""
    return await _produce_fencepost(load, Producer(load.bootstrap))


async def _produce_fencepost(load: Load, started: Producer) -> float:
    """Send the records, wait for all acknowledgements. Returns records per second. started: a producer that is not
    started yet.
    """
    async with started as producer:
        value = load.value
        await producer.send_and_wait(load.topic, value)
        began = time.perf_counter()
        for _ in range(load.records):
            await producer.send(load.topic, value)
        await producer.flush()
        return load.records / (time.perf_counter() - began)


async def produce_aiokafka(load: Load) -> float:
    """Send the records with aiokafka. Returns records per second."""
    return await _produce_aiokafka(load)


async def _produce_aiokafka(load: Load, **settings: int) -> float:
    """Send the records, wait for all acknowledgements. Returns records per second. settings: of AIOKafkaProducer."""
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=load.bootstrap, enable_idempotence=True, **settings) as producer:
        value = load.value
        await producer.send_and_wait(load.topic, value)
        began = time.perf_counter()
        for _ in range(load.records):
            await producer.send(load.topic, value)
        await producer.flush()
        return load.records / (time.perf_counter() - began)


async def produce_equal_fencepost(load: Load) -> float:
    """Send the records with the SDK, with the same batch size for both libraries. Returns records per second."""
    return await _produce_fencepost(load, Producer(load.bootstrap, max_batch_size=EQUAL_BATCH_BYTES))


async def produce_equal_aiokafka(load: Load) -> float:
    """Send the records with aiokafka, with the same batch size for both libraries. Returns records per second."""
    return await _produce_aiokafka(load, max_batch_size=EQUAL_BATCH_BYTES)


async def getmany_fencepost(load: Load) -> float:
    """Read the records with the SDK's getmany(). Returns records per second."""
    async with Consumer(load.bootstrap, topics=[load.topic], auto_offset_reset="earliest") as consumer:
        return await _getmany(consumer, load.records)


async def getmany_aiokafka(load: Load) -> float:
    """Read the records with aiokafka's getmany(). Returns records per second."""
    from aiokafka import AIOKafkaConsumer

    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with AIOKafkaConsumer(load.topic, bootstrap_servers=load.bootstrap, **settings) as consumer:
        return await _getmany(consumer, load.records)


async def _getmany(consumer: object, records: int) -> float:
    """Read this many records with getmany(), which both libraries have. Returns records per second."""
    seen = 0
    began = time.perf_counter()
    while seen < records:
        found = await consumer.getmany(timeout_ms=1000, max_records=LOOP_BATCH)  # type: ignore[attr-defined]
        seen += sum(map(len, found.values()))
    return seen / (time.perf_counter() - began)


async def iterate_fencepost(load: Load) -> float:
    """Read the records with `async for` over the SDK's consumer. Returns records per second."""
    async with Consumer(load.bootstrap, topics=[load.topic], auto_offset_reset="earliest") as consumer:
        return await _iterate(consumer, load.records)


async def iterate_aiokafka(load: Load) -> float:
    """Read the records with `async for` over aiokafka's consumer. Returns records per second."""
    from aiokafka import AIOKafkaConsumer

    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with AIOKafkaConsumer(load.topic, bootstrap_servers=load.bootstrap, **settings) as consumer:
        return await _iterate(consumer, load.records)


async def _iterate(consumer: object, records: int) -> float:
    """Read this many records with `async for`. Returns records per second."""
    seen = 0
    began = time.perf_counter()
    async for _ in consumer:  # type: ignore[attr-defined]
        seen += 1
        if seen == records:
            break
    return seen / (time.perf_counter() - began)


async def loop_fencepost(load: Load) -> float:
    """Copy the records with the loop of the README: consume, transform, produce, one transaction for each batch.
    Returns records per second.
    """
    name = f"{load.topic}-copy-{time.time_ns()}"
    seen = 0
    async with (
        Producer(load.bootstrap, transactional_id=name) as producer,
        Consumer(load.bootstrap, topics=[load.topic], group_id=name, auto_offset_reset="earliest") as consumer,
    ):
        await consumer.assigned()
        began = time.perf_counter()
        async for batch in consumer.batches(max_records=LOOP_BATCH):
            async with producer.transaction(batch) as tx:
                for record in batch:
                    await tx.send(f"{load.topic}-copy", record.value, key=record.key)
            seen += len(batch)
            if seen >= load.records:
                break
        return seen / (time.perf_counter() - began)


async def loop_aiokafka(load: Load) -> float:
    """Copy the records with aiokafka's loop of consume, transform, produce, as its documentation has it. Returns
    records per second.
    """
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    name = f"{load.topic}-copy-{time.time_ns()}"
    seen = 0
    reading = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "enable_auto_commit": False}
    async with (
        AIOKafkaProducer(bootstrap_servers=load.bootstrap, transactional_id=name) as producer,
        AIOKafkaConsumer(load.topic, bootstrap_servers=load.bootstrap, group_id=name, **reading) as consumer,
    ):
        while not consumer.assignment():  # noqa: ASYNC110 (the library offers nothing to wait for)
            await asyncio.sleep(0.01)
        began = time.perf_counter()
        while seen < load.records:
            found = await consumer.getmany(timeout_ms=1000, max_records=LOOP_BATCH)
            if not found:
                continue
            async with producer.transaction():
                for records in found.values():
                    for record in records:
                        await producer.send(f"{load.topic}-copy", record.value, key=record.key)
                offsets = {partition: records[-1].offset + 1 for partition, records in found.items()}
                await producer.send_offsets_to_transaction(offsets, name)
            seen += sum(map(len, found.values()))
        return seen / (time.perf_counter() - began)


async def txn_fencepost(load: Load) -> float:
    """Commit transactions of one record with the SDK. Returns transactions per second."""
    name = f"{load.topic}-{time.time_ns()}"
    value = load.value
    async with Producer(load.bootstrap, transactional_id=name) as producer:
        async with producer.transaction() as tx:
            await tx.send(load.topic, value)
        began = time.perf_counter()
        for _ in range(load.records):
            async with producer.transaction() as tx:
                await tx.send(load.topic, value)
        return load.records / (time.perf_counter() - began)


async def txn_confluent(load: Load) -> float:
    """Commit transactions of one record with confluent-kafka. Returns transactions per second, without the first."""
    from confluent_kafka import Producer as Confluent

    name = f"{load.topic}-{time.time_ns()}"
    value = load.value
    producer = Confluent(
        {"bootstrap.servers": load.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions()
    began = 0.0
    for turn in range(load.records + 1):
        producer.begin_transaction()
        producer.produce(load.topic, value)
        producer.commit_transaction()
        if turn == 0:
            began = time.perf_counter()
    return load.records / (time.perf_counter() - began)


LOADS: dict[str, Callable[[Load], Awaitable[float]]] = {
    load.__name__: load
    for load in (
        *(produce_fencepost, produce_aiokafka, produce_equal_fencepost, produce_equal_aiokafka),
        *(getmany_fencepost, getmany_aiokafka, iterate_fencepost, iterate_aiokafka),
        *(loop_fencepost, loop_aiokafka, txn_fencepost, txn_confluent),
    )
}
"""By the name of the work and of the library."""


async def measure(work: str, library: str, load: Load) -> Figures:
    """Run a load. Returns records or transactions a second, as "rate"."""
    return {"rate": await LOADS[f"{work}_{library}"](load)}


if __name__ == "__main__":
    _, chosen, name, servers, written, number, record_bytes = sys.argv
    print_figures(measure(chosen, name, Load(servers, written, int(number), int(record_bytes))))
