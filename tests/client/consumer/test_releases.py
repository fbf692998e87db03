"""The consumer against brokers that list what Kafka's releases listed, in virtual time."""

import pytest
from capped_broker import RELEASES
from fencepost.client.errors import OffsetOutOfRangeError
from fencepost.client.values import OffsetAndMetadata, TopicPartition
from fencepost.protocol.apis import APIS
from fencepost.protocol.headers import read_request_header
from reading import reader, values, write
from txn_world import within

T0 = TopicPartition("t", 0)
CUTS_TOLD_FROM = 12  # of Fetch


async def read(consumer, count):
    return [(await consumer.getone()).value for _ in range(count)]


def noting_fetches(world):
    """Return a list to which the version of each Fetch that the broker gets is added."""
    versions = []

    def between(serve):
        def served(connection, frame):
            header = read_request_header(frame)
            if header.api_key == 1:
                versions.append(header.api_version)
            serve(connection, frame)

        return served

    world.intercept(between)
    return versions


async def epoch_now(world):
    cluster = await world.world.cluster()
    await cluster.partitions_of("t", timeout_ms=1_000)
    return cluster.metadata.leader_epoch(T0)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_a_group_consumer_works_on_every_kafka_release(release):
    async def main(world):
        versions = noting_fetches(world)
        await write(world, b"a", b"b", b"c")
        async with reader(world, group_id="g", topics=["t"]) as consumer:
            assert await read(consumer, 2) == [b"a", b"b"]
            await consumer.commit()
            batch = await anext(consumer.batches())
            assert values(batch) == [b"c"]
            batch.outcome_unknown()
            assert values(await anext(consumer.batches())) == [b"c"]
        async with reader(world, group_id="g", topics=["t"]) as consumer:
            assert await read(consumer, 1) == [b"c"]
            assert await consumer.lag() == {T0: 0}
        assert max(versions) == min(RELEASES[release]["Fetch"], APIS[1].max)

    within(main, release=release)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_read_committed_works_on_every_kafka_release(release):
    async def main(world):
        producer = await world.producer()
        for value, ok in ((b"a", True), (b"x", False), (b"b", True)):
            await producer.begin_transaction()
            await producer.send_and_wait("t", value, partition=0)
            await (producer.commit_transaction() if ok else producer.abort_transaction())
        async with (
            reader(world, topics=["t"]) as committed,
            reader(world, topics=["t"], isolation_level="read_uncommitted") as everything,
        ):
            assert await read(committed, 2) == [b"a", b"b"]
            assert await read(everything, 3) == [b"a", b"x", b"b"]
            assert await committed.end_offsets([T0]) == {T0: 6}
            assert (await committed.offsets_for_times({T0: 1}))[T0].offset == 0

    within(main, release=release)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_a_truncated_log_is_reported_on_releases_that_detect_it(release):
    """KIP-320: the position has the epoch of the record before it, and in that epoch the broker's log ends below the
    position.
    """

    async def main(world):
        await write(world, b"a", b"b")
        async with reader(world, topics=["t"]) as consumer:
            await consumer.assigned()
            consumer.seek(T0, OffsetAndMetadata(5, "", await epoch_now(world)))
            if RELEASES[release]["Fetch"] < CUTS_TOLD_FROM:  # then it is out of range, and the policy decides
                assert await read(consumer, 2) == [b"a", b"b"]
                return
            with pytest.raises(
                OffsetOutOfRangeError, match="was truncated: the records read from offset 2 up to 5"
            ) as reported:
                await consumer.getone()
            assert reported.value.hint.startswith("seek to 2")
            await write(world, b"c")
            assert await read(consumer, 1) == [b"c"]

    within(main, release=release)


def test_with_auto_offset_reset_none_a_truncated_log_is_raised_until_a_seek():
    async def main(world):
        await write(world, b"a", b"b")
        async with reader(world, auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, OffsetAndMetadata(5, "", await epoch_now(world)))
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match="was truncated"):
                    await consumer.getone()
            consumer.seek(T0, 1)
            assert await read(consumer, 1) == [b"b"]

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"max_partition_fetch_bytes": 100}, {"fetch_max_bytes": 100}])
@pytest.mark.parametrize("release", RELEASES)
def test_a_record_above_the_fetch_limits_is_returned(release, limit):
    """KIP-74: a broker returns the first batch whole, whatever its size."""

    async def main(world):
        written = [bytes([64 + n]) * 5_000 for n in range(6)]
        await write(world, *written)
        async with reader(world, topics=["t"], **limit) as consumer:
            assert await read(consumer, 6) == written

    within(main, release=release)
