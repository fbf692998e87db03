"""From fencepost to Apache Kafka and back, with the commands that people type: groups go on at exactly the next record.

KAFKA=HOST:PORT names the broker, for example one that has an authorizer and lets everybody do what no rule denies.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid

import pytest
from eventually import wait_until
from fencepost.broker.embedded.broker import Broker
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.security_values import AclBinding
from fencepost.client.admin.values import NewTopic
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import KafkaError
from fencepost.client.producer.producer import Producer
from fencepost.protocol.errors import ErrorCode
from java_clients import JavaClients
from mirrored import group_protocols_of

KAFKA = os.environ.get("KAFKA", "")
pytestmark = [pytest.mark.long, pytest.mark.skipif(not KAFKA, reason="no Apache Kafka is given: KAFKA=HOST:PORT")]
PARTITIONS, RECORDS = 3, 3_000
CLIENTS = ("sdk", "java")


@pytest.fixture
def ours():
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    with JavaClients(tmp_path_factory.mktemp("java")) as jvm:
        yield jvm


def fencepost(*words, check=True):
    """Run a command of fencepost. Returns what it printed: the output, then the errors."""
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", *words], capture_output=True, text=True, timeout=180, check=False
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextlib.contextmanager
def mirroring(source, target, topic, name):
    """Run two mirror tasks for as long as the block takes."""
    line = [
        sys.executable,
        "-m",
        "fencepost",
        "mirror",
        "--from",
        source,
        "--to",
        target,
        "--name",
        name,
        "--topics",
        topic,
    ]
    tasks = [subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        yield
    finally:
        for task in tasks:
            task.send_signal(signal.SIGINT)
        for task in tasks:
            task.wait(60)


async def fill(at, topic, numbers):
    """Write these numbers, twenty in a transaction, with an aborted one between each two."""
    async with Producer(at, transactional_id=f"writer-{topic}") as producer:
        for index in range(0, len(numbers), 20):
            async with producer.transaction() as transaction:
                for number in numbers[index : index + 20]:
                    await transaction.send(topic, b"%d" % number, partition=number % PARTITIONS)
            await producer.begin_transaction()
            await producer.send(topic, b"aborted", partition=index % PARTITIONS)
            await producer.abort_transaction()


def numbers(polled):
    return [int(each.value) for records in polled.values() for each in records]


async def read(at, group, topic, protocol, count):
    """Read at least `count` records as a member of the group, commit, and return their numbers."""
    found = []
    async with Consumer(
        at, group_id=group, topics=[topic], group_protocol=protocol, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed", max_poll_records=100,
    ) as consumer:  # fmt: skip
        while len(found) < count:
            found += numbers(await consumer.getmany(timeout_ms=20_000))
        await consumer.commit()
    return found


async def rest(at, group, topic, protocol, count):
    """Return the numbers of the records that the group has not read: at least `count`. Reads for 1.5 s longer, so that
    a record that came twice would be among them.
    """
    found = []
    async with Consumer(
        at,
        group_id=group,
        topics=[topic],
        group_protocol=protocol,
        auto_offset_reset="none",
        isolation_level="read_committed",
    ) as consumer:
        while len(found) < count:
            found += numbers(await consumer.getmany(timeout_ms=20_000))
        found += numbers(await consumer.getmany(timeout_ms=1_500))
    return found


def rest_in_java(java, at, group, topic, protocol, count):
    """Return the same as rest(), but read with Kafka's own Java client."""
    consumer = java.consumer(at, group, group_protocol=protocol, auto_offset_reset="none")
    consumer.do("subscribe", topic=topic)
    found = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += map(int, consumer.poll())
    found += map(int, consumer.poll(1_500))
    consumer.do("close")
    return found


async def refused(at, topic):
    """Try to write as a producer without transactions, and with the transactional id of fill(). Returns the codes of
    the errors.
    """
    codes = []
    for name in (None, f"writer-{topic}"):
        async with Producer(at, transactional_id=name) as producer:
            if name is not None:
                await producer.begin_transaction()
            try:
                await producer.send_and_wait(topic, b"0", partition=0)
            except KafkaError as error:
                codes.append(error.code)
    return codes


async def prepare(source, topic):
    """Fill a new topic, and have groups read a part of it: one for each protocol that both brokers have and each client
    that is to read the rest. Returns what each group has read.
    """
    protocols = await group_protocols_of(KAFKA)
    async with Admin(source) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])
        if source == KAFKA:
            with contextlib.suppress(KafkaError):  # without an authorizer
                await admin.create_acls(AclBinding("User:*", "all", "topic", topic))
    await fill(source, topic, range(RECORDS))
    return {
        (one, by): await read(source, f"{topic}-{one}-{by}", topic, one, 1_000) for one in protocols for by in CLIENTS
    }


@pytest.mark.parametrize("to_kafka", [True, False])
def test_cutover_moves_groups_between_fencepost_and_kafka_each_record_read_once(ours, java, to_kafka):
    source, target = (ours, KAFKA) if to_kafka else (KAFKA, ours)
    topic = name = f"moved-{uuid.uuid4().hex[:8]}"
    before = asyncio.run(prepare(source, topic))
    sides = ("--from", source, "--to", target, "--name", name)
    with mirroring(source, target, topic, name):
        wait_until(lambda: '"copied"' in fencepost("mirror", "status", *sides, "-o", "json", check=False), within_s=60)
        groups = (*sides, "--groups", f"{topic}-.*")
        stops = () if "cannot refuse" not in fencepost("mirror", "cutover", *groups, "--dry-run", check=False) else (
            "--producers-stopped",
        )  # fmt: skip
        printed = fencepost("mirror", "cutover", *groups, "--timeout", "60s", *stops)
        moved = {line.split()[0] for line in printed.splitlines() if line.startswith(f"{topic}-")}
        assert moved == {f"{topic}-{protocol}-{by}" for protocol, by in before}
        status = fencepost("mirror", "status", *sides)
        assert [topic, "copied"] in [line.split()[:2] for line in status.splitlines()]
    for (protocol, by), seen in before.items():
        asked = target, f"{topic}-{protocol}-{by}", topic, protocol, RECORDS - len(seen)
        after = rest_in_java(java, *asked) if by == "java" else asyncio.run(rest(*asked))
        assert sorted(seen + after) == list(range(RECORDS)), (protocol, by)
    if not stops:
        codes = asyncio.run(refused(source, topic))
        assert codes == [ErrorCode.POLICY_VIOLATION if to_kafka else ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
