"""A producer against a real broker, in virtual time: what is taken is written once and in order, whatever breaks."""

import asyncio

import confluent_kafka
import pytest
from fencepost.client.errors import (
    BufferFullError,
    ClosedError,
    DeliveryTimeoutError,
    IllegalStateError,
    InvalidConfigurationError,
    RecordTooLargeError,
    UnknownTopicError,
)
from fencepost.client.producer.producer import Producer
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.records import records
from txn_world import BOOTSTRAP, TxnWorld, within

BROKEN = {"delivery_timeout_ms": 20_000, "request_timeout_ms": 1_000, "max_block_ms": 5_000}


def plain(world: TxnWorld, **keywords) -> Producer:
    return Producer(BOOTSTRAP, environment=world.world.environment, **keywords)


async def log_of(world: TxnWorld, partition: int = 0) -> list[bytes | None]:
    """Return all values of a partition, from as many fetches as that takes."""
    cluster, seen, offset = await world.world.cluster(), [], 0
    while True:
        wanted = FetchRequest.Topic.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(topic="t", partitions=[wanted])])
        (found,) = (await cluster.ask("any", request, cap=11)).responses[0].partitions
        batches = list(walk(memoryview(b"".join(found.records or []))))
        if not batches:
            return seen
        for batch in batches:
            seen += [record.value for record in records(batch)]
            offset = batch.next_offset


# ---- what goes in --------------------------------------------------------------------------------------------------


def test_deliveries_give_the_partition_and_offset_of_written_records():
    """They may be awaited as often as one likes."""

    async def main(world):
        async with plain(world) as producer:
            first = await producer.send("t", b"1", key=b"k", timestamp_ms=1_000)
            second = await producer.send("t", b"2", headers={"h": b"x", "null": None})
            assert not first.done()
            assert await first == ("t", 0, 0, 1_000)
            assert (await second).offset == 1
            assert await first == ("t", 0, 0, 1_000), "as often as one likes"
            assert (await producer.send_and_wait("t", None, b"tombstone")).offset == 2
            assert (producer.producer_id, producer.producer_epoch) == (0, 0)
        assert await log_of(world) == [b"1", b"2", None]

    within(main)


def test_mutable_buffers_are_copied_when_they_are_sent():
    async def main(world):
        value = bytearray(b"before")
        async with plain(world, linger_ms=50) as producer:
            await producer.send("t", value)
            await producer.send("t", memoryview(value))
            value[:] = b"after!"
        assert await world.values() == [b"before", b"before"]

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "hint"),
    [
        ({"value": "text"}, r"pass value\.encode\(\), or set value_serializer"),
        ({"key": "text"}, r"pass key\.encode\(\)"),
        ({"value": 5}, "not int: set value_serializer"),
        ({"headers": {"h": "text"}}, "header value must be bytes or None, not str: encode it first"),
        ({"timestamp_ms": "1"}, "timestamp_ms must be an int, not str"),
        ({"timestamp_ms": 1.5}, "timestamp_ms must be an int, not float"),
        ({"headers": [(b"h", b"v")]}, "header name must be a str, not bytes"),
    ],
)
def test_an_argument_of_send_of_a_wrong_type_is_a_type_error_with_a_hint(what, hint):
    async def main(world):
        async with plain(world) as producer:
            with pytest.raises(TypeError, match=hint):
                await producer.send("t", **what)

    within(main)


def test_send_refuses_invalid_timestamps_headers_and_topics_and_writes_the_next():
    async def main(world):
        async with plain(world) as producer:
            for timestamp_ms in (-1, 1 << 63):
                with pytest.raises(KafkaError) as caught:
                    await producer.send("t", b"", timestamp_ms=timestamp_ms)
                assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
            with pytest.raises(UnicodeEncodeError):
                await producer.send("t", b"", headers={"\ud800": b""})
            for topic in (None, 5, b"t"):
                with pytest.raises(TypeError, match="topic must be a str"):
                    await producer.send(topic, b"")
            for topic in ("\ud800", "é", "t" * 40_000, "a b", "a/b", "", ".", "..", "t" * 250):
                with pytest.raises(KafkaError, match="a name has 1 to 249 of") as caught:
                    await producer.send(topic, b"")
                assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
            await producer.send_and_wait("t", b"1")
            await producer.send_and_wait("new", b"2")
        assert await log_of(world) == [b"1"]

    within(main)


def test_serializers_are_called_for_keys_and_values_but_not_for_none():
    async def main(world):
        async with plain(world, value_serializer=str.encode, key_serializer=lambda n: b"%d" % n) as producer:
            await producer.send("t", "text", 5)
            await producer.send("t", None)
        assert await log_of(world) == [b"text", None]

    within(main)


def test_send_uses_the_partition_argument_else_the_partitioner_else_the_keys_hash():
    async def main(world):
        async with plain(world) as producer:
            assert (await producer.send_and_wait("t", b"v", partition=3)).partition == 3
            assert (await producer.send_and_wait("t", b"v", key=b"abc")).partition == 479470107 % 5  # murmur2
            assert await producer.partitions_for("t") == {0, 1, 2, 3, 4}
            for wrong in (5, -1, "0"):
                with pytest.raises(UnknownTopicError, match="5 partitions: there is no partition"):
                    await producer.send("t", b"v", partition=wrong)
        async with plain(world, partitioner=lambda key, every, available: every[-1]) as producer:
            assert (await producer.send_and_wait("t", b"v", key=b"abc")).partition == 4

    within(main, num_partitions=5)


def test_a_topic_that_never_appears_is_an_error_after_max_block_ms():
    async def main(world):
        async with plain(world, max_block_ms=500) as producer:
            with pytest.raises(UnknownTopicError, match="did not appear within 500 ms"):
                await producer.send("never", b"v")

    within(main, auto_create_topics_enable=False)


def test_send_raises_record_too_large_for_a_record_above_max_request_size():
    async def main(world):
        async with plain(world, max_request_size=1_000) as producer:
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", bytes(1_000))

    within(main)


@pytest.mark.parametrize(("codec", "number"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_records_are_written_with_every_compression_codec(codec, number):
    async def main(world):
        async with plain(world, compression_type=codec, linger_ms=50) as producer:
            for n in range(100):
                await producer.send("t", b"%d" % n)
        assert await world.values() == [b"%d" % n for n in range(100)]
        found = await world._fetched(await world.world.cluster(), "t", 0, 0)
        assert {batch.codec for batch in walk(memoryview(b"".join(found.records)))} == {number}

    within(main)


def test_a_higher_compression_level_makes_smaller_batches():
    async def main(world):
        sizes = []
        for level, topic in ((1, "quick"), (22, "small")):
            async with plain(world, compression_type="zstd", compression_level=level, linger_ms=50) as producer:
                for n in range(3_000):
                    await producer.send(topic, b"order %d of %d, again" % (n * n % 977, n))
            found = await world._fetched(await world.world.cluster(), topic, 0, 0)
            sizes.append(sum(len(part) for part in found.records))
        assert sizes[1] < sizes[0] * 0.95

    within(main)


@pytest.mark.parametrize("release", ["2.1", "2.8", "3.5", None])
def test_a_producer_writes_to_every_kafka_release(release):
    async def main(world):
        async with plain(world) as producer:
            assert (await producer.send_and_wait("t", b"v")).offset == 0
        assert await world.values() == [b"v"]

    within(main, release=release)


# ---- its life ------------------------------------------------------------------------------------------------------


def test_producer_calls_raise_before_start_and_after_close():
    async def main(world):
        producer = plain(world)
        with pytest.raises(IllegalStateError, match="not started"):
            await producer.send("t", b"v")
        await producer.start()
        delivery = await producer.send("t", b"v")
        await producer.close()
        assert (await delivery).offset == 0, "close sends what is left"
        await producer.close()
        for call in (producer.send("t", b"v"), producer.flush(), producer.start()):
            with pytest.raises(ClosedError):
                await call
        with pytest.raises(IllegalStateError, match="not transactional"):
            producer.transaction()

    within(main)


def test_a_producers_close_ends_at_its_timeout_and_fails_deliveries_not_answered():
    async def main(world):
        producer = plain(world, **BROKEN)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        world.faults.blackhole("Produce").every_time()
        delivery = await producer.send("t", b"lost")
        await asyncio.sleep(0.1)
        began = world.world.loop.time()
        await producer.close(timeout_ms=300)
        assert world.world.loop.time() - began < 1
        with pytest.raises(ClosedError):
            await delivery

    within(main)


def test_a_producer_never_closed_warns_when_garbage_collected():
    async def main(world):
        producer = plain(world)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        producers = [producer]
        del producer
        with pytest.warns(ResourceWarning, match="never closed"):
            producers.clear()
        await asyncio.sleep(0.1)

    within(main)


def test_a_producer_accepts_java_setting_names():
    async def main(world):
        config = {"bootstrap.servers": BOOTSTRAP, "linger.ms": "5", "batch.size": 1000, "acks": "all"}
        async with Producer.from_config(config, environment=world.world.environment) as producer:
            assert (producer.settings.linger_ms, producer.settings.max_batch_size) == (5, 1000)
            await producer.send_and_wait("t", b"v")
        with pytest.raises(InvalidConfigurationError):
            Producer.from_config({"bootstrap.servers": BOOTSTRAP, "enable.idempotense": True})

    within(main)


def test_the_partitioner_named_consistent_chooses_librdkafkas_partitions():
    async def main(world):
        async with plain(world, partitioner="consistent") as producer:
            keys = [b"key %d" % n for n in range(8)]
            placed = [(await producer.send_and_wait("four", b"v", key=key)).partition for key in keys]
            assert placed == [confluent_kafka.consistent(key, 4) for key in keys]

    within(main, num_partitions=4)


# ---- room ----------------------------------------------------------------------------------------------------------


def test_send_with_a_full_buffer_raises_buffer_full_after_max_block_ms():
    async def main(world):
        world.faults.delay("Produce", 2.0).once()
        async with plain(world, buffer_memory=1_000, max_block_ms=500, max_request_size=1_000) as producer:
            first = await producer.send("t", bytes(900))
            with pytest.raises(BufferFullError, match="916 of 1,000 bytes"):
                await producer.send("t", bytes(900))
            await first
            await producer.send_and_wait("t", bytes(900))

    within(main)


def test_sends_waiting_for_buffer_memory_continue_in_order_or_can_be_cancelled():
    async def main(world):
        async with plain(world, buffer_memory=1_000, max_request_size=1_000) as producer:
            await producer.send("t", b"0".ljust(900))
            waiting = [asyncio.create_task(producer.send_and_wait("t", b"%d" % n + bytes(900))) for n in range(1, 6)]
            await asyncio.sleep(0)
            waiting[1].cancel()
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            assert [isinstance(each, asyncio.CancelledError) for each in ended] == [False, True, False, False, False]
        assert [value[:1] for value in await world.values()] == [b"0", b"1", b"3", b"4", b"5"]

    within(main)


def test_2000_records_are_written_through_a_buffer_too_small_for_all_at_once():
    async def main(world):
        async with plain(world, buffer_memory=20_000, max_batch_size=1_000) as producer:
            for n in range(2_000):
                await producer.send("t", b"%050d" % n, partition=0)
        assert len(await world.values()) == 2_000

    within(main)


def test_a_cancelled_send_and_wait_leaves_the_record_to_be_sent():
    async def main(world):
        world.faults.delay("Produce", 1.0).once()
        async with plain(world) as producer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send_and_wait("t", b"v"), 0.1)
        assert await world.values() == [b"v"]

    within(main)


# ---- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S-47")
def test_a_retry_is_written_once_but_sending_the_value_again_writes_it_again():
    async def main(world):
        world.faults.disconnect("Produce", when="after_write").once()
        async with plain(world, **BROKEN) as producer:
            assert (await producer.send_and_wait("t", b"v")).offset == 0
            assert (await producer.send_and_wait("t", b"v")).offset == 1
        assert await world.values() == [b"v", b"v"]

    within(main)


@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_a_connection_cut_under_five_requests_loses_and_repeats_nothing(when):
    async def main(world):
        world.faults.disconnect("Produce", when=when).on_call(3)
        async with plain(world, max_batch_size=200, **BROKEN) as producer:
            deliveries = [await producer.send("t", b"%03d" % n + bytes(100)) for n in range(20)]
            offsets = [(await delivery).offset for delivery in deliveries]
        values = [value[:3] for value in await world.values()]
        assert values == [b"%03d" % n for n in range(20)]
        assert [offset for offset in offsets if offset >= 0] == [n for n in range(20) if offsets[n] >= 0]

    within(main)


def test_a_record_that_times_out_unanswered_is_reported_as_maybe_written():
    async def main(world):
        world.faults.blackhole("Produce", when="after_write").times(3)
        async with plain(world, delivery_timeout_ms=1_500, request_timeout_ms=500) as producer:
            with pytest.raises(DeliveryTimeoutError) as failed:
                await producer.send_and_wait("t", b"written, and never said")
            assert failed.value.maybe_written
            world.faults.clear()
            await producer.send_and_wait("t", b"next")
            assert producer.producer_epoch == 1
        assert await world.values() == [b"written, and never said", b"next"]

    within(main)


CHAOS = [
    ("disconnect", {"when": "before_write"}, 0.1),
    ("disconnect", {"when": "after_write"}, 0.1),
    ("blackhole", {"when": "after_write"}, 0.02),
    ("duplicate", {}, 0.1),
]


def chaos(seed, count=300):
    """Send `count` records while requests fail in every way, then check that the log has each once and in order."""

    async def main(world):
        world.faults.seed(seed)
        for name, how, share in CHAOS:
            getattr(world.faults, name)("Produce", **how).with_probability(share)
        for code in ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR"):
            world.faults.error("Produce", code).with_probability(0.05)
        producer = plain(world, **{**BROKEN, "delivery_timeout_ms": 100_000}, max_batch_size=400)
        async with producer:
            deliveries = []
            for n in range(count):
                deliveries.append(await producer.send("t", b"%05d" % n + bytes(50), partition=n % 3))
                if n % 17 == seed % 17:
                    await asyncio.sleep(0.05)
            await producer.flush()
            world.faults.clear()
            for delivery in deliveries:
                await delivery
        for partition in range(3):
            values = [value[:5] for value in await log_of(world, partition)]
            assert values == [b"%05d" % n for n in range(count) if n % 3 == partition], f"seed {seed}"

    within(main, num_partitions=3)


def chaos_with_deadlines(seed, count=200):
    """Send records while requests fail and batches time out, then compare the log with what each delivery reported: its
    offset, that it was not written, or that it may have been.
    """

    async def main(world):
        world.faults.seed(seed)
        world.faults.blackhole("Produce", when="after_write").with_probability(0.1)
        world.faults.blackhole("Produce", when="before_write").with_probability(0.1)
        world.faults.disconnect("Produce", when="after_write").with_probability(0.1)
        world.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER").with_probability(0.2)
        world.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED").with_probability(0.03)
        reported = {}
        async with plain(world, delivery_timeout_ms=900, request_timeout_ms=400, max_batch_size=300) as producer:
            deliveries = {}
            for n in range(count):
                deliveries[n] = await producer.send("t", b"%05d" % n + bytes(50))
                if n % 7 == seed % 7:
                    await asyncio.sleep(0.03)
            await producer.flush()
            world.faults.clear()
            for n, delivery in deliveries.items():
                try:
                    reported[n] = (await delivery).offset
                except KafkaError as error:
                    is_noted = any("may have been written" in note for note in getattr(error, "__notes__", []))
                    reported[n] = "maybe" if is_noted or getattr(error, "maybe_written", False) else "no"
            last = await producer.send_and_wait("t", b"99999")
        values = [int(value[:5]) for value in await log_of(world)]
        assert values[-1] == 99999
        assert len(values) == len(set(values)) == last.offset + 1, f"seed {seed}: twice"
        written = [n for n in values if reported.get(n) not in ("maybe", None)]
        assert written == [n for n, at in reported.items() if at not in ("maybe", "no")], f"seed {seed}: lost, or moved"
        assert all(at < 0 or values[at] == n for n, at in reported.items() if isinstance(at, int))

    within(main)


@pytest.mark.slow
@pytest.mark.requirement("S-41")
@pytest.mark.parametrize("seed", range(6))
def test_under_faults_and_delivery_timeouts_deliveries_tell_what_was_written(seed):
    chaos_with_deadlines(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6, 200))
def test_with_many_seeds_deliveries_under_deadlines_report_what_was_written(seed):
    chaos_with_deadlines(seed)


@pytest.mark.slow
def test_over_a_broker_restart_every_record_is_written_once():
    async def main(world):
        async with plain(world, **{**BROKEN, "delivery_timeout_ms": 60_000}) as producer:
            deliveries = []
            for n in range(300):
                deliveries.append(await producer.send("t", b"%03d" % n))
                await asyncio.sleep(0.01)
                if n in (100, 200):
                    await world.restart()
            for delivery in deliveries:
                await delivery
        assert await log_of(world) == [b"%03d" % n for n in range(300)]

    within(main)


@pytest.mark.slow
@pytest.mark.requirement("S-43", "S-44")
@pytest.mark.parametrize("seed", range(8))
def test_through_network_faults_every_record_is_written_once_and_in_order(seed):
    chaos(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 300))
def test_through_network_faults_with_many_seeds_records_are_written_once(seed):
    chaos(seed)
