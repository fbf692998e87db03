"""A copier that goes on by itself: a member of a group of its own and a transactional producer, on one thread.

    python lone_copier.py KIND BOOTSTRAP SOURCE TARGET NAME

KIND: classic or consumer (librdkafka, with either protocol of groups), or aiokafka. NAME: of the group, and the
transactional id. It says a line for each commit, with the number of records copied so far, and for what was raised;
then it begins again with new clients. On stderr it has the library's own log, and all stacks at SIGUSR1.
"""

import asyncio
import contextlib
import faulthandler
import logging
import signal
import sys
import time
from typing import Any

import aiokafka
import confluent_kafka

AT_ONCE, TIMEOUT_S, TRANSACTION_MS = 20, 60, 20_000
LIBRARY_LOG = "cgrp,topic,eos,broker,metadata,protocol"  # of librdkafka; `fetch` has a line for each record


class Said:
    """What the copier says."""

    def __init__(self) -> None:
        self._copied = 0

    def committed(self, count: int) -> None:
        self._copied += count
        print("committed", self._copied, f"{time.time():.3f}", flush=True)

    def raised(self, error: Exception) -> None:
        print("raised", f"{time.time():.3f}", repr(error)[:300], flush=True)


def with_confluent(said: Said, protocol: str, bootstrap: str, source: str, target: str, name: str) -> None:
    """Copy with librdkafka until something is raised."""
    shared = {"bootstrap.servers": bootstrap, "debug": LIBRARY_LOG, "log_level": 7}
    group = {"group.id": name, "group.protocol": protocol, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    sessions = {"session.timeout.ms": 10_000} if protocol == "classic" else {}
    consumer = confluent_kafka.Consumer({**shared, **group, **sessions})
    with contextlib.closing(consumer):
        consumer.subscribe([source])
        settings = {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_MS}
        producer = confluent_kafka.Producer({**shared, **settings})
        producer.init_transactions(TIMEOUT_S)
        while True:
            messages = [one for one in consumer.consume(AT_ONCE, 0.3) if one.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition())
            places = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
            said.committed(len(messages))


async def with_aiokafka(said: Said, bootstrap: str, source: str, target: str, name: str) -> None:
    """Copy with aiokafka until something is raised."""
    servers = bootstrap.split(",")
    reading = {"group_id": name, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    consumer = aiokafka.AIOKafkaConsumer(source, bootstrap_servers=servers, isolation_level="read_committed", **reading)
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=TRANSACTION_MS
    )
    try:
        await asyncio.wait_for(producer.start(), TIMEOUT_S)
        await asyncio.wait_for(consumer.start(), TIMEOUT_S)
        while True:
            found = await consumer.getmany(timeout_ms=300, max_records=AT_ONCE)
            if not found:
                continue
            async with producer.transaction():
                for place, records in found.items():
                    for record in records:
                        await producer.send(target, record.value, partition=place.partition)
                ends = {place: records[-1].offset + 1 for place, records in found.items()}
                await producer.send_offsets_to_transaction(ends, name)
            said.committed(sum(map(len, found.values())))
    finally:
        for each in (consumer, producer):
            with contextlib.suppress(Exception):
                await asyncio.wait_for(each.stop(), TIMEOUT_S)


def copy(said: Said, kind: str, *rest: Any) -> None:
    """Copy until something is raised."""
    if kind == "aiokafka":
        asyncio.run(with_aiokafka(said, *rest))
    else:
        with_confluent(said, kind, *rest)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(stream=sys.stderr, level=logging.DEBUG, format="%(asctime)s %(name)s %(message)s")
    telling = Said()
    while True:
        try:
            copy(telling, *sys.argv[1:])
        except Exception as error:
            telling.raised(error)
            time.sleep(0.2)
