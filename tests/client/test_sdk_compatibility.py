"""What docs/sdk-migration.md says (older brokers) of transactions and groups on older brokers, row by row."""

import pytest
from capped_broker import RELEASES
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import AbortableTransactionError, UnsupportedVersionError
from fencepost.client.producer.producer import Producer
from txn_world import BOOTSTRAP, within

every_release = pytest.mark.parametrize("release", RELEASES)


def reader(world, **keywords):
    return Consumer(
        BOOTSTRAP, environment=world.world.environment, group_id="g", auto_offset_reset="earliest", **keywords
    )


async def write(world, value):
    async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
        await producer.send_and_wait("orders", value)


@every_release
def test_transactions_use_version_2_from_kafka_4_0_on_and_version_1_below(release):
    """Version 2: no AddPartitionsToTxn, and a new epoch at each end."""

    async def main(world):
        producer = await world.producer()
        epochs = []
        for value in (b"a", b"b"):
            async with producer.transaction() as tx:
                await tx.send("t", value)
            epochs.append(producer.producer_epoch)
        asked = dict(world.asked)
        if release >= "4.0":
            assert "AddPartitionsToTxn" not in asked
            assert asked["Produce"] >= 12
            assert epochs[0] < epochs[1]
        else:
            assert asked["AddPartitionsToTxn"] == min(RELEASES[release]["AddPartitionsToTxn"], 3)
            assert asked["Produce"] <= 11
            assert epochs == [0, 0]

    within(main, release=release)


@pytest.mark.slow
@every_release
def test_below_kafka_2_5_offsets_in_a_transaction_raise_unsupported_version(release):
    """From 2.5 on, the offsets are committed with the transaction."""

    async def main(world):
        await write(world, b"a")
        producer = await world.producer()
        async with reader(world, topics=["orders"]) as consumer:
            batch = await anext(consumer.batches())
            assert batch.group_metadata.generation >= 1
            if RELEASES[release]["TxnOffsetCommit"] >= 3:
                async with producer.transaction(batch) as tx:
                    await tx.send("t", b"copy")
                assert await consumer.committed() == {("orders", 0): batch.offsets["orders", 0]}
                asked = dict(world.asked)
                assert asked["TxnOffsetCommit"] >= 3
                assert ("AddOffsetsToTxn" in asked) == (release < "4.0")
                return
            with pytest.raises(UnsupportedVersionError, match=r"TxnOffsetCommit.*needs version 3"):
                async with producer.transaction(batch) as tx:
                    await tx.send("t", b"copy")
            assert list((await consumer.committed()).values()) == [None]
            assert await world.values() == []
            assert (await consumer.getone()).value == b"a", "rolled back, and rewound"

    within(main, release=release)


@every_release
def test_after_an_aborted_transaction_the_producer_goes_on_with_a_new_epoch(release):
    async def main(world):
        producer = await world.producer()
        world.faults.error("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER").on_call(2)
        async with producer.transaction() as tx:
            await tx.send_and_wait("t", b"a", partition=0)
        with pytest.raises(AbortableTransactionError):
            async with producer.transaction() as tx:
                await tx.send_and_wait("t", b"b", partition=0)
        async with producer.transaction() as tx:
            await tx.send_and_wait("t", b"c", partition=0)
        asked = [version for name, version in world.asked if name == "InitProducerId"]
        assert asked[0] == RELEASES[release]["InitProducerId"]
        assert producer.producer_epoch >= 1
        assert await world.values() == [b"a", b"c"]

    within(main, release=release)


@pytest.mark.slow
@every_release
def test_below_kafka_2_3_a_static_member_raises_naming_group_instance_id(release):
    async def main(world):
        await write(world, b"a")
        async with reader(world, topics=["orders"], group_instance_id="one") as consumer:
            if RELEASES[release]["JoinGroup"] >= 5:
                assert (await consumer.getone()).value == b"a"
                return
            with pytest.raises(UnsupportedVersionError, match="group_instance_id"):
                await consumer.getone()

    within(main, release=release)
