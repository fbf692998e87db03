"""A mirror whose tasks, source and target are killed again and again, and put to sleep: every record once, and groups
go on at exactly the next one.
"""

import asyncio
import os
import random
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from broker_process import BrokerProcess
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.security_values import AclBinding
from fencepost.client.admin.values import NewTopic
from fencepost.client.producer.producer import Producer
from java_clients import JavaClients
from kafka_process import AUTHORIZED, KafkaProcess
from mirror_kills import PARTITIONS, KilledMirror, value_of, write_transactions
from mirrored import Sides, assert_exact
from moved_groups import GROUPS, Source, commit_as, make_compacted, read_as

pytestmark = pytest.mark.long
TOPICS = ["t", "compacted"]
Kind = Literal["fencepost", "Kafka"]


class Case(NamedTuple):
    """Brokers of both sides; how many records, and how often tasks, source and target are killed, each."""

    source: Kind
    target: Kind
    records: int
    kills: int

    def __str__(self) -> str:
        return f"{self.source} to {self.target}"


CASES = [
    Case("fencepost", "fencepost", 100_000, 20),
    Case("fencepost", "Kafka", 20_000, 5),
    Case("Kafka", "fencepost", 20_000, 5),
]


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    with JavaClients(tmp_path_factory.mktemp("java")) as jvm:
        yield jvm


def broker(kind: Kind, directory: Path) -> BrokerProcess | KafkaProcess:
    """Return a broker that compacts soon."""
    if kind == "Kafka":
        return KafkaProcess(directory, **AUTHORIZED, **{"log.cleaner.backoff.ms": "1000"})
    soon = ("-X", "log.cleaner.backoff.ms=1000", "-X", "log.checkpoint.interval.ms=1000")
    return BrokerProcess(str(directory), *soon)


async def make_topics(case: Case, source: BrokerProcess | KafkaProcess) -> None:
    """Make a topic to write transactions to, and one that was compacted and is not any more."""
    async with Admin(source.bootstrap) as admin:
        if case.source == "Kafka":  # the cutover's rule that denies writes closes a topic to all who have none
            await admin.create_acls([AclBinding("User:*", "all", "topic", name) for name in TOPICS])
        await admin.create_topics(NewTopic("t", PARTITIONS))
    await make_compacted(source.bootstrap, "compacted")
    source.stop()  # so that compaction has ended, and no kill takes it back
    source.start()


async def assert_that_groups_go_on(mirror: KilledMirror, java: JavaClients, target: str, chance: random.Random) -> int:
    """Commit offsets for groups of each kind, move them by a cutover, and compare what they read at the target with the
    source's records from there on. Returns how many records they have read.
    """
    source = Source()
    await source.look(mirror.sides.source, TOPICS)
    places = {group: source.places(number) for number, group in enumerate(GROUPS)}
    for group in GROUPS:
        await commit_as(group, java, mirror.sides.source, TOPICS, places[group])
    await mirror.cut_over("moved-.*", kills=2)
    mirror.end()
    await mirror.suffer("target")
    async with Producer(target) as producer:
        for tp in source.committed:
            await producer.send(tp.topic, value_of(tp.topic, tp.partition, "new"), partition=tp.partition)
        await producer.flush()
    count = 0
    for group in GROUPS:
        expected = {name: [*values, f"{name}/new"] for name, values in source.rest(places[group]).items()}
        wanted = sum(map(len, expected.values()))
        assert await read_as(group, java, target, TOPICS, wanted) == expected, group
        count += wanted
    return count


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_after_many_kills_a_mirror_has_each_record_once_and_groups_go_on_exactly(
    case: Case, java: JavaClients, tmp_path: Path
) -> None:
    records = int(os.environ.get("MIRROR_RECORDS", case.records))
    kills = int(os.environ.get("MIRROR_KILLS", case.kills))
    chance = random.Random(7)
    source, target = broker(case.source, tmp_path / "source"), broker(case.target, tmp_path / "target")
    mirror = KilledMirror(source, target, "|".join(TOPICS), tmp_path, chance)
    try:
        source.start()
        target.start()
        await make_topics(case, source)
        mirror.start(3)
        may_end = asyncio.Event()
        writing = asyncio.ensure_future(write_transactions(source.bootstrap, "t", records, may_end))
        faults = ["source", "target", "task"] * kills + ["stop"] * max(1, kills // 4)
        chance.shuffle(faults)
        await mirror.suffer_all(faults)
        may_end.set()
        await writing
        await mirror.drained(*TOPICS)
        sides = Sides(source.bootstrap, target.bootstrap)
        copied = [await assert_exact(sides, topic) for topic in TOPICS]
        assert copied[0] >= records
        read = await assert_that_groups_go_on(mirror, java, target.bootstrap, chance)
        print(f"{copied} records, {kills} kills of tasks, source and target each, {faults.count('stop')} stops; then")
        print(f"{len(GROUPS)} groups moved, which read {read} records at the target")
    finally:
        mirror.end()
        mirror.show_logs()
        for each in (source, target):
            if each.process is not None:
                each.kill()
