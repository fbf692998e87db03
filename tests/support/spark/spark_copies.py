"""Copies of a topic by a Spark stream, and the comparison of a finished copy with its source, by record and by batch.

A source has records whose values differ, of transactions that were committed, of others that were aborted, and of none.
The target has one partition, so that wherever its last stable offset stood, readers saw the whole batches before it.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fencepost.client.admin.values import NewTopic
from fencepost.client.errors import KafkaError
from fencepost.client.values import TopicPartition

from fencepost import sync

SOURCE_PARTITIONS = 2
READ_TIMEOUT_S = 60
SETTLED_S = 120
LOOK_S = 0.02
PROGRAM = Path(__file__)


@dataclass(frozen=True)
class Place:
    """The source, target and checkpoint of one copy."""

    servers: str
    source: str
    target: str
    checkpoint: str
    per_batch: int

    def through(self, servers: str) -> "Place":
        """Return the same place, reached through other servers (a proxy)."""
        return replace(self, servers=servers)

    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers}


def filled(servers: str, name: str, directory: Path, records: int, per_batch: int) -> Place:
    """Create source and target, and write the records to the source. Spark is not involved yet."""
    place = Place(servers, f"{name}-source", f"{name}-target", str(directory / name), per_batch)
    topics(servers, place.source, partitions=SOURCE_PARTITIONS)
    topics(servers, place.target)
    half = records // 2
    with sync.Producer(servers) as plain:
        for i in range(half):
            plain.send(place.source, b"%d" % i, key=b"k%d" % (i % 7), partition=i % SOURCE_PARTITIONS)
        plain.flush()
    with sync.Producer(servers, transactional_id=f"{name}-fill", transaction_timeout_ms=10_000) as producer:
        producer.init_transactions()
        for wanted, numbers in ((False, range(50)), (True, range(half, records)), (False, range(30))):
            producer.begin_transaction()
            for i in numbers:
                value = (b"%d" if wanted else b"aborted %d") % i
                producer.send(place.source, value, key=b"k%d" % (i % 7), partition=i % SOURCE_PARTITIONS)
            if wanted:
                producer.commit_transaction()
            else:
                producer.flush()  # an abort drops records that were not sent yet
                producer.abort_transaction()
    return place


def topics(servers: str, *names: str, partitions: int = 1) -> None:
    """Create these topics."""
    with sync.Admin(servers) as admin:
        admin.create_topics([NewTopic(each, partitions, 1) for each in names])


def put(servers: str, topic: str, values: Iterable[bytes]) -> None:
    """Write records without a transaction."""
    with sync.Producer(servers) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush()


def start(spark: Any, place: Place, **options: str) -> Any:
    """Start the query that copies everything there is, in batches. Options: of the sink."""
    frame = (
        spark.readStream.format("fencepost")
        .options(**place.options())
        .option("subscribe", place.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", place.per_batch)
        .load()
    )
    writer = frame.selectExpr("key", "value").writeStream.format("fencepost")
    writer = writer.options(**place.options()).option("topic", place.target).options(**options)
    return writer.option("checkpointLocation", place.checkpoint).trigger(availableNow=True).start()


def was_too_slow(failure: Exception) -> bool:
    """Return whether the query failed only because Spark waits no longer than 10 s for a Python worker to start."""
    return "failed to connect back" in str(failure)


@dataclass
class Seen:
    """The last stable offsets of the target, sampled while queries ran."""

    offsets: set[int] = field(default_factory=set)


@contextlib.contextmanager
def watched(servers: str, place: Place):
    """Sample the target's last stable offset during the block; while the broker is away, try again."""
    seen, over = Seen(), threading.Event()
    partition = TopicPartition(place.target, 0)

    def look() -> None:
        while not over.is_set():
            with contextlib.suppress(KafkaError, OSError), sync.Consumer(servers) as consumer:
                while not over.wait(LOOK_S):
                    seen.offsets.add(consumer.end_offsets([partition])[partition])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(READ_TIMEOUT_S)


@dataclass
class Outcome:
    """The result of the comparison. The copy is exactly once if all fields but the first three are zero."""

    records: int
    batches: int
    looks: int
    lost: int
    twice: int
    strangers: int
    halves: int  # batches of which a reader could see a part
    waited_s: float  # until no transaction that was left open blocked readers

    @property
    def exact(self) -> bool:
        return self.records > 0 and not (self.lost or self.twice or self.strangers or self.halves)


def outcome(servers: str, place: Place, seen: Seen | None = None) -> Outcome:
    """Compare source and target at read_committed, and the sampled offsets with the planned batches."""
    waited_s = settled(servers, place.target)
    source = {value: (partition, offset) for partition, offset, value in read(servers, place.source)}
    target = [(offset, value) for _, offset, value in read(servers, place.target)]
    copies = Counter(value for _, value in target)
    plan = planned(place)
    batch_of = {value: _batch_of(plan, *at) for value, at in source.items()}
    sizes = Counter(batch_of.values())
    looks = {0, *(seen.offsets if seen else ())}
    halves = 0
    for end in looks:
        visible = Counter(batch_of.get(value, -1) for offset, value in target if offset < end)
        halves += sum(count != sizes[batch] for batch, count in visible.items())
    twice = sum(count - 1 for value, count in copies.items() if value in source)
    return Outcome(
        records=len(source),
        batches=len(sizes),
        looks=len(looks),
        lost=len(source.keys() - copies.keys()),
        twice=twice,
        strangers=sum(copies[value] for value in copies.keys() - source.keys()),
        halves=halves,
        waited_s=round(waited_s, 1),
    )


def read(servers: str, topic: str) -> list[tuple[int, int, str]]:
    """Return (partition, offset, value) of everything that a read_committed reader sees now."""
    found = []
    with sync.Consumer(servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, each) for each in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + READ_TIMEOUT_S
        while any(consumer.position(each) < ends[each] for each in partitions):
            assert time.monotonic() < deadline, f"{topic} could not be read to {ends}"
            for records in consumer.getmany(timeout_ms=200).values():
                found += [(each.partition, each.offset, (each.value or b"").decode()) for each in records]
    return found


def settled(servers: str, topic: str) -> float:
    """Wait until no transaction is open: a batch or its abort ends what killed workers left open, before its timeout.

    Returns the seconds it took. Fails after SETTLED_S, which is shorter than all these timeouts.
    """
    began = time.monotonic()
    partition = TopicPartition(topic, 0)
    with sync.Consumer(servers) as consumer:
        while True:
            stable, high = (
                consumer.end_offsets([partition], isolation=each)[partition]
                for each in ("read_committed", "read_uncommitted")
            )
            waited_s = time.monotonic() - began
            if stable == high:
                return waited_s
            assert waited_s < SETTLED_S, f"{topic} is stable to {stable} of {high}"
            time.sleep(0.2)


def planned(place: Place) -> list[dict[str, int]]:
    """Return the end of each batch in the source, from Spark's offset log: {partition: next offset}."""
    folder = Path(place.checkpoint) / "offsets"
    files = sorted((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    return [json.loads(each.read_text().splitlines()[-1])[place.source] for each in files]


def _batch_of(plan: list[dict[str, int]], partition: int, offset: int) -> int:
    return next((i for i, ends in enumerate(plan) if offset < ends.get(str(partition), 0)), -1)


class Driver:
    """A process with a Spark session and the query, which may be killed together with its JVM."""

    def __init__(self, place: Place, master: str = "local[2,4]") -> None:
        words = [place.servers, place.source, place.target, place.checkpoint, str(place.per_batch), master]
        self._log = Path(f"{place.checkpoint}.log")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def output(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """Send SIGKILL to Python and its JVM at once; workers find out by themselves, as after a real crash."""
        from spark_kills import kill_driver

        kill_driver(self.process.pid)
        self.process.wait()

    def wait(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)


def main() -> None:
    from fencepost.spark import session
    from pyspark.sql import SparkSession

    *place, per_batch, master = sys.argv[1:]
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "1g")
    spark = session(builder.config("spark.ui.showConsoleProgress", "false"))
    spark.sparkContext.setLogLevel("ERROR")
    while True:
        query = start(spark, Place(*place, int(per_batch)))
        try:
            query.awaitTermination()
            return
        except Exception as failure:
            if not was_too_slow(failure):
                raise


if __name__ == "__main__":
    main()
