"""Idempotence, the first part of `fencepost demo`: a bad network, a killed broker, and every line exactly once.

Every line of the project's own documents is produced with confluent-kafka's idempotent producer through a proxy that
loses acknowledgements and cuts connections; the broker is killed with SIGKILL in the middle and restarted; then
aiokafka reads everything back, and lost, duplicate and reordered lines are counted.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..output.interruption import Interruption
from ..output.writing import show
from .flaky_proxy import FlakyProxy
from .stage import PARTITIONS, Broker, progress, say

TOPIC = "documents"


@dataclass(slots=True)
class Sent:
    """Counts of the producer's deliveries; failed: their errors."""

    lines: int = 0
    acknowledged: int = 0
    failed: list[str] = field(default_factory=list)


def produce(text: list[str], proxy: FlakyProxy, broker: Broker, interruption: Interruption) -> Sent:
    """Send every line and kill the broker half-way; return when all are acknowledged or have failed."""
    import confluent_kafka

    say(f"sending   with confluent-kafka {confluent_kafka.__version__}, idempotent, five requests in flight")
    sent = Sent()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "enable.idempotence": True,
            "linger.ms": 2,
            "batch.num.messages": 50,
            "socket.timeout.ms": 1000,  # after this time a lost answer is detected
            "request.timeout.ms": 1000,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )

    def delivered(error: Any, _message: Any) -> None:
        """Count a record as acknowledged, or note the error with which it failed."""
        if error is None:
            sent.acknowledged += 1
        else:
            sent.failed.append(str(error))

    with progress(len(text)) as show:
        for number, line in enumerate(text):
            key = str(number % PARTITIONS)
            producer.produce(TOPIC, line, key, partition=number % PARTITIONS, on_delivery=delivered)
            sent.lines += 1
            if number % 50 == 0:
                interruption.check()
                producer.poll(0.002)
                show(sent.acknowledged)
            if number == len(text) // 2:
                broker.kill()
                proxy.target_port = broker.start()
                say(f"kill -9   at line {number:,}; restarted, recovered and ready in {broker.ready_s:.2f} s")
        while producer.flush(0.1):
            interruption.check()
            show(sent.acknowledged)
    return sent


async def read_back(bootstrap: str, expected: int) -> dict[int, list[str]]:
    """Return every record of the topic, by partition, in offset order."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
        with progress(expected) as show:
            while any([await consumer.position(one) < ends[one] for one in partitions]):
                for one, batch in (await consumer.getmany(timeout_ms=1000)).items():
                    found[one.partition].extend(record.value.decode() for record in batch)
                show(sum(map(len, found.values())))
    finally:
        await consumer.stop()
    return found


def report(text: list[str], sent: Sent, found: dict[int, list[str]], proxy: FlakyProxy, broker: Broker) -> bool:
    """Print the counts. Returns True if every line is there exactly once, in order."""
    counts = Counter(line for lines in found.values() for line in lines)
    lost = sum(1 for line in text if not counts[line])
    twice = sum(count - 1 for count in counts.values() if count > 1)
    foreign = len(set(counts) - set(text))
    ordered = all(
        [int(line.split(":", 1)[0]) for line in lines] == sorted(int(line.split(":", 1)[0]) for line in lines)
        for lines in found.values()
    )
    rows: list[tuple[str, object]] = [
        ("lines sent", f"{sent.lines:,}"),
        ("acknowledged", f"{sent.acknowledged:,}"),
        ("acknowledgements lost by the proxy", proxy.tally.acknowledgements_lost),
        ("connections cut", proxy.tally.connections_cut),
        ("brokers killed", broker.kills),
        ("retries seen", proxy.tally.retries),
        ("duplicates refused", proxy.tally.repeats_recognised),
        ("records lost", lost),
        ("records twice", twice),
        ("order kept", "yes" if ordered else "NO"),
    ]
    show()
    for label, value in rows:
        show(f"  {label:36}{value!s:>10}")
    for failure in sent.failed[:3]:
        show(f"  not acknowledged: {failure}")
    return not (lost or twice or foreign or sent.failed) and ordered and sent.acknowledged == len(text)
