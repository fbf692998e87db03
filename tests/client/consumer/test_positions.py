"""Where reading begins: a partition whose position cannot be found yet keeps no other one waiting."""

import asyncio

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import RequestTimedOutError
from fencepost.client.net.topology import Metadata
from fencepost.client.values import TopicPartition
from reading import make, member, reader, write
from txn_world import TxnWorld, within

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def two_partitions(world: TxnWorld) -> None:
    await make(world, 2)
    for tp in (T0, T1):
        await write(world, b"a", b"b", partition=tp.partition)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["committed", "not committed"])
@pytest.mark.parametrize("version", [1, 2])
def test_pending_transactional_offsets_of_one_partition_do_not_delay_another(version, other):
    async def main(world: TxnWorld) -> None:
        await two_partitions(world)
        producer = await world.producer()
        async with reader(world, group_id="g") as before, reader(world, group_id="g") as consumer:
            if other == "committed":
                await before.commit({T1: 1})
            before.assign([T0])
            async with producer.transaction() as tx:
                assert (await before.getone()).value == b"a"
                await tx.send_offsets_to_transaction(before)
                consumer.assign([T0, T1])
                found = await consumer.getone(timeout_ms=1_000)
                assert (found.partition, found.value) == (1, b"b" if other == "committed" else b"a")
                with pytest.raises(RequestTimedOutError):
                    await consumer.getone(T0, timeout_ms=5_000)
            found = await consumer.getone(T0, timeout_ms=2_000)
            assert found.value == b"b"

    within(main, version)


def test_a_partition_without_a_leader_does_not_delay_reading_another(monkeypatch):
    async def main(world: TxnWorld) -> None:
        await two_partitions(world)
        monkeypatch.setattr(Metadata, "leader", lambda self, tp: None if tp == T0 else leader(self, tp))
        async with reader(world) as consumer:
            consumer.assign([T0])
            with pytest.raises(RequestTimedOutError):
                await consumer.getone(timeout_ms=500)
            consumer.assign([T0, T1])
            assert (await consumer.getone(timeout_ms=1_000)).partition == 1

    leader = Metadata.leader
    within(main)


def test_seek_to_beginning_works_while_the_group_coordinator_does_not_answer():
    async def main(world: TxnWorld) -> None:
        await two_partitions(world)
        async with reader(world, group_id="g") as consumer:
            world.faults.blackhole("OffsetFetch")
            consumer.assign([T0, T1])
            with pytest.raises(RequestTimedOutError):
                await consumer.getone(timeout_ms=500)
            await consumer.seek_to_beginning(T1)
            assert (await consumer.getone(timeout_ms=1_000)).partition == 1

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize("ask", [Consumer.lag, Consumer.seek_to_end])
def test_a_position_lookup_omits_partitions_revoked_meanwhile_without_an_error(ask):
    async def main(world: TxnWorld) -> None:
        await two_partitions(world)
        async with member(world) as consumer, member(world) as other:
            await consumer.assigned()
            joining = asyncio.create_task(other.assigned())
            await asyncio.sleep(5)  # the heartbeat has heard of it
            await consumer.seek_to_beginning()
            found = await ask(consumer)
            assert len(consumer.assignment()) < 2
            if ask is Consumer.lag:
                assert found.keys() <= {T0, T1}
            joining.cancel()
            await asyncio.wait({joining})

    within(main)


def test_available_records_do_not_end_the_wait_for_another_partitions_position():
    """If they did, the wait would end at once, again and again, and nothing else would run in the loop."""

    async def main(world: TxnWorld) -> None:
        await two_partitions(world)
        async with reader(world, group_id="g") as consumer:
            consumer.assign([T0, T1])
            await consumer.getone(T0)
            await asyncio.sleep(1)  # the next records of T0 are here
            world.faults.blackhole("OffsetFetch")
            await consumer.seek_to_committed(T1)
            with pytest.raises(RequestTimedOutError):
                await consumer.assigned(timeout_ms=500)
            assert (await consumer.getone(T0)).partition == 0

    within(main)
