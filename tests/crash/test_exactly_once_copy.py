"""Apache Kafka's own test of exactly-once copying: copiers in a group, hard kills of brokers and copiers, aborts, and
a read_committed reader that looks on; in the end every message is there once, in order, for it and for a late reader.

Real processes. The copiers are librdkafka's, Java's, franz-go's, each with either protocol of groups, and the SDK's
with either protocol of transactions; the SDK's also live with a network that cuts connections, holds requests until
they are late, and delivers answers twice. The suite copies some thousand messages; `make test-long` more, with more
kills; `make eos-copy` 100,000.
Source: tests/kafkatest/tests/core/group_mode_transactions_test.py of Apache Kafka.
"""

import contextlib
import os
import queue
import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import confluent_kafka
import confluent_kafka.admin
import pytest
from broker_process import broker_process
from chaos_proxy import REPLY, REQUEST, TRANSACTIONAL, ChaosProxy
from confluent_kafka import TopicPartition
from copiers import COPIERS, program

SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1 << 31)
PARTITIONS = 3
ABORTED = 0.1
SOURCE, TARGET, GROUP = "messages", "copies", "copiers"
STUCK_S = {"librdkafka": 8.0, "sdk": 8.0}  # without a word: librdkafka may wait for ever after a broker's death
STUCK_OTHERS_S = 20.0  # longer than their own timeouts, and a JVM takes its time to start


@dataclass(frozen=True)
class Work:
    """kills: of brokers, and as many of copiers."""

    messages: int
    kills: int
    copiers: int
    per_transaction: int
    in_all_s: float


def sized(messages: int) -> Work:
    """Return the work of a run. COPIED and KILLS in the environment replace its number of messages and of kills."""
    messages = int(os.environ.get("COPIED", messages))
    kills, copiers, per_transaction, in_all_s = (2, 2, 200, 150.0) if messages <= 10_000 else (12, 3, 750, 900.0)
    return Work(messages, int(os.environ.get("KILLS", kills)), copiers, per_transaction, in_all_s)


SHORT, LONGER = sized(3_000), sized(30_000)
KINDS = ("librdkafka", "sdk", "java, newer groups", "sdk with version 1", "franz-go, newer groups")
RUNS = [
    *(pytest.param(kind, SHORT, id=kind, marks=pytest.mark.long if n else []) for n, kind in enumerate(KINDS)),
    *(pytest.param(kind, LONGER, id=f"{kind}, longer", marks=pytest.mark.long) for kind in COPIERS),
]
OPTIONS = {
    "num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 3000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.assignment.interval.ms": 200,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
}


class Copier:
    """A process and its successors, under one transactional id."""

    def __init__(self, kind: str, program: Sequence[str], bootstrap: str, name: str, per_transaction: int) -> None:
        self.command = [*program, bootstrap, SOURCE, TARGET, GROUP, name, str(per_transaction), str(ABORTED)]
        self.command += COPIERS[kind][1:]
        self.stuck_s = STUCK_S.get(kind.split(",")[0].split(" ")[0], STUCK_OTHERS_S)
        self.output_lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.words: Counter[str] = Counter()
        self.lives = 0
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.last_s = time.monotonic()
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()

    def _listen(self, stream) -> None:
        with stream:
            for line in stream:
                self.output_lines.put(line)

    def progress(self) -> int:
        """Return how many messages were committed since the last call."""
        count = 0
        while not self.output_lines.empty():
            word, *more = self.output_lines.get().split()
            self.words[word] += 1
            self.last_s = time.monotonic()
            count += int(more[0]) if word == "committed" else 0
        return count

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def look_after(self) -> None:
        """Replace the process if it has ended, or has printed nothing for stuck_s."""
        if self.process.poll() is not None or time.monotonic() - self.last_s > self.stuck_s:
            self.kill()
            self.start()


class Reader(threading.Thread):
    """A read_committed consumer of all copies, from the first on."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(daemon=True)
        self.found: dict[int, list[int]] = defaultdict(list)
        self.count = 0
        self.over = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "group.id": name, "isolation.level": "read_committed"}
        quiet = {"enable.auto.commit": False, "log_level": 0, "reconnect.backoff.max.ms": 200}
        self.consumer = confluent_kafka.Consumer({**settings, **quiet})
        self.consumer.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])

    def run(self) -> None:
        while not self.over.is_set():
            for message in self.consumer.consume(2000, 0.2):
                if message.error() is None:
                    self.found[message.partition()].append(int(message.value()))
                    self.count += 1
        self.consumer.close()

    def end(self) -> None:
        self.over.set()
        self.join(20)


class Source:
    """Writes the messages in portions, so that no copier can be done before the last kill."""

    def __init__(self, bootstrap: str, messages: int) -> None:
        self.bootstrap = bootstrap
        self.messages = messages
        self.written = 0

    def fill(self, count: int) -> None:
        """Write messages until the source holds `count` of them, or all that it is to hold."""
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0}
        producer = confluent_kafka.Producer(settings)
        for number in range(self.written, min(count, self.messages)):
            while True:
                try:
                    producer.produce(SOURCE, str(number).encode(), partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
        self.written = max(self.written, min(count, self.messages))


def make_topics(bootstrap: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [confluent_kafka.admin.NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]
    for future in admin.create_topics(topics).values():
        future.result(20)


def copy_under_kills(
    broker, work: Work, source: Source, copiers: list[Copier], reader: Reader, chance: random.Random
) -> dict[str, int]:
    """Let the copiers copy all messages, and kill copiers and the broker meanwhile. Return how many were killed.

    Each kill comes in the middle of a portion, and the portion after the next is written only when it is over: however
    fast the copiers are, every kill of the plan is made, and they are at work at each.
    """
    portion = work.messages // (2 * work.kills + 1)
    plan = [(portion * number + portion // 2, number % 2) for number in range(2 * work.kills)]
    killed = {"brokers": 0, "copiers": 0}
    done, began = 0, time.monotonic()
    source.fill(2 * portion)
    while reader.count < work.messages:
        in_time = time.monotonic() - began < work.in_all_s
        assert in_time, f"{reader.count} of {work.messages} after {work.in_all_s} s, {killed}"
        done = max(reader.count, done + sum(copier.progress() for copier in copiers))
        if plan and done >= plan[0][0]:
            time.sleep(chance.uniform(0, 0.1))
            if plan.pop(0)[1] and broker is not None:
                broker.kill()
                broker.start()
                killed["brokers"] += 1
            else:
                chance.choice(copiers).kill()
                killed["copiers"] += 1
            source.fill(source.written + portion if plan else work.messages)
        for copier in copiers:
            copier.look_after()
        time.sleep(0.02)
    return killed


def check(found: dict[int, list[int]], messages: int) -> None:
    """Assert that each partition has all its messages, each once and in order."""
    for partition in range(PARTITIONS):
        expected = list(range(partition, messages, PARTITIONS))
        if found[partition] != expected:
            twice = len(found[partition]) - len(set(found[partition]))
            lost = set(expected) - set(found[partition])
            raise AssertionError(f"partition {partition}: {len(lost)} lost, {twice} twice, or out of order")


def bad_network(proxy: ChaosProxy) -> None:
    proxy.cut(side=REPLY, times=None, share=0.004)
    proxy.cut(side=REQUEST, times=None, share=0.002)
    proxy.late(*TRANSACTIONAL, times=None, share=0.004, after_s=1.5)
    proxy.delay(*TRANSACTIONAL, side=REPLY, up_to_s=0.4, share=0.01)
    proxy.twice(*TRANSACTIONAL, share=0.003)


@pytest.mark.requirement("S-67", "S-89")
@pytest.mark.parametrize(("kind", "work"), RUNS)
def test_every_message_is_copied_once_in_order_when_copiers_or_broker_are_killed(tmp_path, kind, work):
    print(f"seed {SEED}, {work.messages} messages, {kind}")
    command = program(kind, tmp_path / "classes")
    chance = random.Random(SEED)
    options = [word for name, value in OPTIONS.items() for word in ("-X", f"{name}={value}")]
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(broker_process(str(tmp_path / "data"), *options))
        copiers_reach = broker.bootstrap
        if kind.startswith("sdk"):
            proxy = stack.enter_context(ChaosProxy(broker.bootstrap, seed=SEED))
            bad_network(proxy)
            copiers_reach = proxy.bootstrap
        make_topics(broker.bootstrap)
        reader = Reader(broker.bootstrap, "onlooker")
        reader.start()
        names = (f"copier-{number}" for number in range(work.copiers))
        copiers = [Copier(kind, command, copiers_reach, name, work.per_transaction) for name in names]
        try:
            source = Source(broker.bootstrap, work.messages)
            killed = copy_under_kills(broker, work, source, copiers, reader, chance)
            time.sleep(0.5)  # what would be there twice comes now
        finally:
            for copier in copiers:
                copier.kill()
        reader.end()
        words = sum((copier.words for copier in copiers), Counter())
        print(f"{killed}, {sum(copier.lives for copier in copiers)} copiers in all, {dict(words)}")
        assert killed == {"brokers": work.kills, "copiers": work.kills}
        check(reader.found, work.messages)
        late = Reader(broker.bootstrap, "late")
        late.start()
        until = time.monotonic() + 30
        while late.count < work.messages and time.monotonic() < until:
            time.sleep(0.05)
        late.end()
        check(late.found, work.messages)


@pytest.mark.skipif("KAFKA" not in os.environ, reason="no Apache Kafka to copy in: KAFKA=HOST:PORT")
@pytest.mark.parametrize("kind", [kind for kind in COPIERS if kind.startswith("sdk")])
def test_the_sdk_copies_exactly_once_in_apache_kafka_too(kind, tmp_path, monkeypatch):
    chance, name = random.Random(SEED), f"copy-{os.urandom(4).hex()}"
    for place in ("SOURCE", "TARGET", "GROUP"):
        monkeypatch.setitem(globals(), place, f"{name}-{place.lower()}")
    monkeypatch.setenv("SESSION_MS", "6000")  # it takes no shorter ones
    kafka, command = os.environ["KAFKA"], program(kind, tmp_path)
    make_topics(kafka)
    with ChaosProxy(kafka, seed=SEED) as proxy:
        bad_network(proxy)
        names = (f"{name}-{number}" for number in range(SHORT.copiers))
        copiers = [Copier(kind, command, proxy.bootstrap, each, SHORT.per_transaction) for each in names]
        reader = Reader(kafka, f"{name}-onlooker")
        reader.start()
        try:
            killed = copy_under_kills(None, SHORT, Source(kafka, SHORT.messages), copiers, reader, chance)
            time.sleep(0.5)
        finally:
            for copier in copiers:
                copier.kill()
            reader.end()
    assert killed == {"brokers": 0, "copiers": 2 * SHORT.kills}
    check(reader.found, SHORT.messages)
