"""All ways to read and to commit, mixed by chance: each record is copied once, whatever is rolled back in between."""

import random

import pytest
import reading
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.producer.producer import Producer
from mixed_work import OUT, MixedWork
from reading import make
from txn_world import BOOTSTRAP, within

PARTITIONS, RECORDS = 2, 12


async def copied_once(world, rng):
    await make(world, PARTITIONS)
    async with Admin(BOOTSTRAP, environment=world.world.environment) as admin:
        await admin.create_topics([NewTopic(OUT, 1)])
    expected = []
    async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
        marked = await world.producer("marked")
        for number in range(RECORDS * PARTITIONS):
            partition = number % PARTITIONS
            if rng.random() < 0.7:
                found = await producer.send_and_wait("t", b"", partition=partition)
            else:  # a marker follows it
                async with marked.transaction() as tx:
                    delivery = await tx.send("t", b"", partition=partition)
                found = await delivery
            expected.append(b"%d@%d" % (found.offset, partition))
    await MixedWork(world, rng).run(steps=rng.choice((10, 40)))
    assert sorted(await world.values(OUT)) == sorted(expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 24))])
def test_mixed_reads_commits_and_rollbacks_copy_each_record_once_in_a_classic_group(seed, monkeypatch):
    async def main(world):
        monkeypatch.setattr(world.faults, "verify", lambda: None)  # some are removed before they happen
        await copied_once(world, random.Random(seed))

    within(main, 1 + seed % 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 15))])
def test_mixed_reads_commits_and_rollbacks_copy_each_record_once_in_a_consumer_group(seed, monkeypatch):
    async def main(world):
        monkeypatch.setattr(world.faults, "verify", lambda: None)  # some are removed before they happen
        await copied_once(world, random.Random(seed))

    monkeypatch.setattr(reading, "PROTOCOL", {"group_protocol": "consumer"})
    within(main)
