"""Named producers of the SDK against a real broker, in virtual time: none twice, none lost, whoever is restarted."""

import asyncio
import random

import pytest
from fencepost.broker.net import turns
from fencepost.client.admin.admin import Admin
from fencepost.client.errors import (
    DeliveryTimeoutError,
    IllegalStateError,
    InvalidConfigurationError,
    ProducerFencedError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from fencepost.client.producer.producer import Producer
from fencepost.protocol.errors import ErrorCode, KafkaError
from txn_world import BOOTSTRAP, TxnWorld, within

BROKEN = {"delivery_timeout_ms": 60_000, "request_timeout_ms": 1_000, "max_block_ms": 60_000}


def named(world: TxnWorld, name: str = "sensor-7", **keywords) -> Producer:
    return Producer(BOOTSTRAP, name=name, environment=world.world.environment, **keywords)


@pytest.mark.requirement("S-120")
def test_a_restarted_named_producer_reads_its_highest_sequence_and_repeats_nothing():
    async def main(world):
        async with named(world) as producer:
            assert await producer.last_sequences("t") == {}
            first = await producer.send_and_wait("t", b"5", key=b"k", sequence=5)
            assert (first.offset, first.duplicate) == (0, False)
            await producer.send_and_wait("t", b"9", key=b"k", sequence=9)
        async with named(world) as again:
            (partition,) = (await again.last_sequences("t")).items()
            assert partition == (first.partition, 9)
            for sequence in (5, 7, 9):
                found = await again.send_and_wait("t", b"again", key=b"k", sequence=sequence)
                assert (found.offset, found.duplicate, found.partition) == (-1, True, first.partition)
            later = await again.send_and_wait("t", b"10", key=b"k", sequence=10)
            assert (later.offset, later.duplicate) == (2, False)
        assert await world.values() == [b"5", b"9", b"10"]

    within(main)


def test_a_sequence_sent_twice_is_written_once_and_the_second_is_a_duplicate():
    async def main(world):
        async with named(world, linger_ms=50) as producer:
            first = await producer.send("t", b"1", partition=0, sequence=1)
            second = await producer.send("t", b"1", partition=0, sequence=1)
            assert not second.done()
            assert [(await each).duplicate for each in (first, second)] == [False, True]
        assert await world.values() == [b"1"]

    within(main)


@pytest.mark.requirement("S-119")
def test_a_lost_produce_answer_causes_no_duplicate_and_no_error():
    async def main(world):
        world.faults.disconnect("Produce", when="after_write").once()
        async with named(world, **BROKEN) as producer:
            found = await producer.send_and_wait("t", b"1", partition=0, sequence=1)
            assert (found.offset, found.duplicate) == (-1, False)  # this send wrote it
        assert await world.values() == [b"1"]

    within(main)


def test_starting_a_producer_name_again_fences_the_producer_started_before():
    async def main(world):
        async with named(world) as old:
            await old.send_and_wait("t", b"1", partition=0, sequence=1)
            async with named(world) as new:
                with pytest.raises(ProducerFencedError, match="was opened again, by client"):
                    await old.send_and_wait("t", b"old", partition=0, sequence=2)
                with pytest.raises(ProducerFencedError):
                    await old.send("t", b"old", partition=0, sequence=3)
                await new.send_and_wait("t", b"2", partition=0, sequence=2)
        assert await world.values() == [b"1", b"2"]

    within(main)


def test_an_admin_describes_and_removes_named_producers():
    async def main(world):
        async with named(world, client_id="station") as producer:
            await producer.send_and_wait("t", b"4", partition=0, sequence=4)
        async with Admin(BOOTSTRAP, environment=world.world.environment) as admin:
            found = (await admin.describe_named_producers())["sensor-7"]
            assert (found.highest, "'station'" in found.owner) == ({("t", 0): 4}, True)
            await admin.remove_named_producers("sensor-7")
            assert await admin.describe_named_producers() == {}
            with pytest.raises(KafkaError) as raised:
                await admin.remove_named_producers("sensor-7")
            assert raised.value.code is ErrorCode.RESOURCE_NOT_FOUND
        async with named(world) as again:
            assert not (await again.send_and_wait("t", b"4", partition=0, sequence=4)).duplicate

    within(main)


def test_admin_describes_more_named_producers_than_one_answer_has_room_for(monkeypatch):
    monkeypatch.setattr(turns, "LEAST_ANSWER_BYTES", 0)
    monkeypatch.setattr(turns, "MAX_ANSWER_BYTES", 1)

    async def main(world):
        for number in range(3):
            async with named(world, name=f"n{number}") as producer:
                await producer.send_and_wait("t", b"x", partition=0, sequence=number)
        async with Admin(BOOTSTRAP, environment=world.world.environment) as admin:
            expected = {f"n{number}": {("t", 0): number} for number in range(3)}
            for names in (None, ["n2", "n0", "n1"]):
                found = await admin.describe_named_producers(names)
                assert {name: each.highest for name, each in found.items()} == expected

    within(main)


def test_after_a_delivery_timeout_a_named_producers_later_sends_raise_it_too():
    async def main(world):
        world.faults.disconnect("Produce", when="before_write").every_time()
        async with named(world, delivery_timeout_ms=2_000, request_timeout_ms=500, max_batch_size=100) as producer:
            sent = [await producer.send("t", bytes(80), partition=0, sequence=n) for n in range(3)]
            repeated = await producer.send("t", bytes(80), partition=0, sequence=2)
            for delivery in (*sent, repeated):
                with pytest.raises(DeliveryTimeoutError):
                    await delivery
            world.faults.clear()
            with pytest.raises(DeliveryTimeoutError):
                await producer.send("t", b"later", partition=0, sequence=9)
        async with named(world) as again:
            assert await again.last_sequences("t") == {}
            assert not (await again.send_and_wait("t", b"0", partition=0, sequence=0)).duplicate
        assert await world.values() == [b"0"]

    within(main)


def test_after_partitions_were_added_a_named_producer_raises_invalid_partitions():
    async def main(world):
        async with named(world) as producer:
            await producer.send_and_wait("t", b"1", key=b"k", sequence=1)
        world.broker.topics.add_partitions(world.broker.topics.by_name["t"], 5)
        async with named(world) as again:
            with pytest.raises(KafkaError, match=r"had .* when this name first wrote to it") as raised:
                await again.send("t", b"2", key=b"k", sequence=2)
            assert raised.value.code is ErrorCode.INVALID_PARTITIONS

    within(main)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_named_producer_raises_unknown_topic_after_its_topic_was_recreated(partitions):
    async def main(world):
        topics = world.broker.topics
        topics.create("t", 1)
        async with named(world, metadata_max_age_ms=1_000) as producer:
            await producer.send_and_wait("t", b"before", partition=0, sequence=5)
            topics.delete(topics.by_name["t"])
            topics.create("t", partitions)
            await asyncio.sleep(5)
            for sequence in (5, 6):  # the new topic has no record yet
                with pytest.raises(UnknownTopicError, match="deleted and created again"):
                    await producer.send("t", b"again", partition=0, sequence=sequence)
            with pytest.raises(UnknownTopicError):
                await producer.last_sequences("t")
        async with named(world) as again:
            assert await again.last_sequences("t") == {}
            await again.send_and_wait("t", b"again", partition=0, sequence=5)
        assert await world.values() == [b"again"]

    within(main)


def test_a_named_producer_writes_to_a_recreated_topic_of_which_it_has_older_metadata():
    async def main(world):
        topics = world.broker.topics
        topics.create("t", 1)
        async with named(world, metadata_max_age_ms=1_000) as producer:
            assert await producer.partitions_for("t") == {0}
            topics.delete(topics.by_name["t"])
            topics.create("t", 1)
            await producer.send_and_wait("t", b"1", partition=0, sequence=1)
            await asyncio.sleep(5)
            await producer.send_and_wait("t", b"2", partition=0, sequence=2)
        assert await world.values() == [b"1", b"2"]

    within(main)


def test_a_batch_above_max_message_bytes_is_split_and_keeps_its_sequences():
    async def main(world):
        topic = world.broker.topics.create("t", 1)
        world.broker.topics.alter_configs(topic, {"max.message.bytes": "300"})
        async with named(world, linger_ms=100) as producer:
            sent = [await producer.send("t", b"%02d" % n + bytes(60), partition=0, sequence=n) for n in range(10)]
            assert all([(await each).offset >= 0 for each in sent])
        async with named(world) as again:
            assert await again.last_sequences("t") == {0: 9}
        assert [value[:2] for value in await world.values()] == [b"%02d" % n for n in range(10)]

    within(main)


def test_no_record_after_a_too_large_one_is_written_so_that_all_can_be_sent_again():
    async def main(world):
        topic = world.broker.topics.create("t", 1)
        world.broker.topics.alter_configs(topic, {"max.message.bytes": "300"})
        values = [b"1", b"2" + bytes(400), b"3", b"4"]
        async with named(world, linger_ms=100) as producer:
            sent = [await producer.send("t", value, partition=0, sequence=n) for n, value in enumerate(values, 1)]
            await producer.flush()
            failed = [each.exception() for each in sent]
            assert [error if error is None else error.code for error in failed] == [
                None,
                *[ErrorCode.MESSAGE_TOO_LARGE] * 3,
            ]
        world.broker.topics.alter_configs(topic, {"max.message.bytes": "600"})
        async with named(world) as again:
            assert await again.last_sequences("t") == {0: 1}
            for n, value in enumerate(values, 1):
                await again.send("t", value, partition=0, sequence=n)
        assert await world.values() == values

    within(main)


def test_a_named_producers_record_needs_a_sequence_and_a_key_or_partition():
    async def main(world):
        async with named(world) as producer:
            for wrong, error in ((None, TypeError), (True, TypeError), (-1, ValueError), (1 << 63, ValueError)):
                with pytest.raises(error):
                    await producer.send("t", b"x", key=b"k", sequence=wrong)
            with pytest.raises(ValueError, match="key or a partition"):
                await producer.send("t", b"x", sequence=1)
        async with Producer(BOOTSTRAP, environment=world.world.environment) as plain:
            with pytest.raises(IllegalStateError, match="named producer"):
                await plain.send("t", b"x", sequence=1)
        assert await world.values() == []

    within(main)


@pytest.mark.parametrize("more", [{"transactional_id": "x"}, {"acks": 1}, {"name": ""}])
def test_an_empty_producer_name_or_one_with_transactional_id_or_acks_1_is_refused(more):
    with pytest.raises(InvalidConfigurationError):
        Producer(BOOTSTRAP, **({"name": "n"} | more))


def test_a_named_producer_on_a_kafka_broker_raises_an_error():
    async def main(world):
        with pytest.raises(UnsupportedVersionError) as raised:
            await named(world).start()
        assert "only fencepost has this API" in raised.value.hint

    within(main, version=1)


CHAOS = [
    ("disconnect", {"when": "before_write"}, 0.1),
    ("disconnect", {"when": "after_write"}, 0.1),
    ("blackhole", {"when": "after_write"}, 0.05),
    ("duplicate", {}, 0.1),
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_clients_that_are_killed_and_replaced_write_each_record_once(seed):
    """Each new client sends its records from the first, or from after the last sequence. The broker restarts in
    between.
    """

    async def main(world):
        chance = random.Random(seed)
        for name, more, probability in CHAOS:
            getattr(world.faults.seed(seed), name)("Produce", **more).with_probability(probability)
        total, seen = 60, {}
        for life in range(6):
            producer = named(world, max_batch_size=150, **BROKEN)
            await producer.start()
            last = (await producer.last_sequences("t")).get(0, -1)
            assert last >= max(seen, default=-1), "what was acknowledged is there"
            deliveries = {}
            until = total if life == 5 else chance.randrange(last + 1, total)
            for sequence in range(0 if chance.random() < 0.5 else last + 1, until):
                deliveries[sequence] = await producer.send("t", b"%d" % sequence, partition=0, sequence=sequence)
            if life < 5:
                await asyncio.sleep(chance.random())
            else:
                await asyncio.gather(*deliveries.values())
            for sequence, delivery in deliveries.items():
                if delivery.done() and delivery.exception() is None:
                    seen[sequence] = delivery.result()
            await producer.close(timeout_ms=0)  # what was under way may arrive, or not
            if life == 2:
                await world.restart()
        assert await world.values() == [b"%d" % n for n in range(total)]

    within(main)
