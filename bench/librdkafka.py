"""Loads through confluent-kafka (librdkafka): what an application measures, the client included."""

import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "log_level": 0,  # failures are reported as errors, not as log lines
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
}
QUEUE_FULL_MS = 5  # until the next fetch if the queue is full; in 1 s, the default, a fast reader empties it and waits
CONSUMER = {
    "group.id": "fencepost-bench",
    "enable.auto.commit": False,
    "log_level": 0,
}
FAST_CONSUMER = {
    **CONSUMER,
    "fetch.message.max.bytes": 1 << 20,
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": QUEUE_FULL_MS,
}
LOOK_S = 0.1  # the longest wait inside the library, where signals are not noticed
LATENCY_EVERY = 1000  # one record in 1000 gets a callback and is timed: callbacks for all would measure Python


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """How many records of which size to send, and the client's batch size in bytes."""

    topic: str
    records: int
    record_bytes: int = 100
    batch_bytes: int = 1 << 17
    extra: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # properties of librdkafka


@dataclass(slots=True)
class Result:
    """What a load did. bytes: of payload. latencies: seconds from sending a record to its acknowledgement."""

    records: int
    bytes: int
    seconds: float
    latencies: "array[float]"


def produce(bootstrap: str, load: ProduceLoad, progress: Callable[[int], None]) -> Result:
    """Produce as fast as the client can, idempotently, and wait for every acknowledgement.

    progress: called with the number of records sent, at least every 0.1 s; an exception of it ends the load.
    """
    from confluent_kafka import Producer

    progress(0)  # importing the library takes a while: the caller may want to end the load now

    failures: list[str] = []
    latencies: array[float] = array("d")
    producer = Producer(
        {
            **PRODUCER,
            "bootstrap.servers": bootstrap,
            "batch.size": load.batch_bytes,
            "error_cb": lambda error: failures.append(str(error)) if error.fatal() else None,
            **dict(load.extra),
        }
    )
    value = bytes(i * 131 % 251 for i in range(load.record_bytes))
    began = time.perf_counter()
    try:
        for sent in range(load.records):
            while True:
                try:
                    if sent % LATENCY_EVERY:
                        producer.produce(load.topic, value)
                    else:
                        producer.produce(load.topic, value, on_delivery=_timer(latencies, failures))
                        producer.poll(0)
                        progress(sent)
                    break
                except BufferError:
                    producer.poll(0.01)
                    progress(sent)
            if failures:
                raise RuntimeError(f"a record was not acknowledged: {failures[0]}")
        left = _flush(producer, lambda: progress(load.records))
        seconds = time.perf_counter() - began
    finally:
        producer.purge()
        producer.close()  # else it would go on to request metadata of its topic, which creates the topic again
    if left or failures:
        raise RuntimeError(f"{left} records were not acknowledged; {failures[:1]}")
    return Result(load.records, load.records * load.record_bytes, seconds, latencies)


def _flush(producer: Any, look: Callable[[], None]) -> int:
    """Wait for outstanding acknowledgements, two minutes at most. look: called every LOOK_S; may raise to end the
    wait. Returns how many records are still not acknowledged.
    """
    deadline = time.monotonic() + 120
    while (left := int(producer.flush(LOOK_S))) and time.monotonic() < deadline:
        look()
    return left


def _timer(latencies: "array[float]", failures: list[str]) -> Callable[[Any, Any], None]:
    """Return a delivery callback that adds the time from now to its call to the latencies, and an error to the
    failures.
    """
    began = time.perf_counter()

    def delivered(error: Any, _message: Any) -> None:
        """Record the latency, and the error if there is one."""
        if error is not None:
            failures.append(str(error))
        latencies.append(time.perf_counter() - began)

    return delivered


def consume(
    bootstrap: str,
    topic: str,
    records: int,
    progress: Callable[[int], None],
    extra: Mapping[str, str] = MappingProxyType({}),
) -> Result:
    """Read all partitions of a topic from the beginning, without a group, until `records` were read. progress: as in
    produce. extra: properties of librdkafka.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    progress(0)

    consumer = Consumer({**FAST_CONSUMER, "bootstrap.servers": bootstrap, **extra})
    try:
        partitions = _partitions(consumer, topic, lambda: progress(0))
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return _read(consumer, records, progress)
    finally:
        consumer.close()


def _read(consumer: Any, records: int, progress: Callable[[int], None]) -> Result:
    """Read until `records` were read. Raises RuntimeError after 30 s without any."""
    seen = size = 0
    began = time.perf_counter()
    last = began
    while seen < records:
        messages = consumer.consume(10_000, timeout=LOOK_S)
        now = time.perf_counter()
        if messages:
            last = now
        elif now - last > 30:
            raise RuntimeError(f"no record came for 30 s; {seen} of {records} were read")
        for message in messages:
            if message.error() is None:
                seen += 1
                size += len(message)
        progress(seen)
    seconds = time.perf_counter() - began
    return Result(seen, size, seconds, array("d"))


def _partitions(consumer: Any, topic: str, look: Callable[[], None]) -> list[int]:
    """Return the numbers of the topic's partitions; tries for ten seconds. look: called between tries. Raises:
    KafkaException.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + 10
    while True:
        try:
            return list(consumer.list_topics(topic, timeout=LOOK_S).topics[topic].partitions)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        look()
