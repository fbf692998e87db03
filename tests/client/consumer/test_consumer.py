"""The consumer against a real broker, in virtual time: what is given, where it stands, what it does after trouble."""

import asyncio

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import (
    ClosedError,
    CommitFailedError,
    CommitOutcomeUnknownError,
    IllegalStateError,
    NoOffsetError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from fencepost.client.producer.producer import Producer
from fencepost.client.values import OffsetAndMetadata, TopicPartition
from fencepost.protocol.messages.topics import DeleteRecordsRequest, DeleteTopicsRequest
from reading import all_there, make, member, reader, values, write
from txn_world import BOOTSTRAP, within

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_getmany_getone_and_async_for_read_on_from_one_shared_position():
    async def main(world):
        await write(world, *[b"%d" % n for n in range(9)])
        async with reader(world) as consumer:
            consumer.assign([T0])
            assert values((await consumer.getmany(timeout_ms=5_000, max_records=3))[T0]) == [b"0", b"1", b"2"]
            assert await consumer.position(T0) == 3
            one = await consumer.getone()
            assert (one.topic, one.partition, one.offset, one.value) == ("t", 0, 3, b"3")
            assert await consumer.position(T0) == 4
            seen = []
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 3:
                    break
            assert seen == [b"4", b"5", b"6"]
            assert await consumer.position(T0) == 7
            assert await all_there(consumer, 2) == [b"7", b"8"]
            assert await consumer.getmany(timeout_ms=100) == {}
            assert await consumer.lag() == {T0: 0}

    within(main)


@pytest.mark.requirement("S-100", "S-117")
def test_read_committed_is_the_default_and_skips_aborted_records():
    async def main(world):
        producer = await world.producer()
        async with producer.transaction() as tx:
            await tx.send("t", b"kept", partition=0)
        with pytest.raises(RuntimeError):  # noqa: PT012
            async with producer.transaction() as tx:
                await tx.send_and_wait("t", b"dropped", partition=0)
                raise RuntimeError
        async with reader(world) as committed, reader(world, isolation_level="read_uncommitted") as everything:
            for consumer in (committed, everything):
                consumer.assign([T0])
            assert await all_there(committed, 1) == [b"kept"]
            assert await all_there(everything, 2) == [b"kept", b"dropped"]
            assert await committed.getmany(timeout_ms=1_000) == {}
            assert await committed.position(T0) == 4, "after the markers"

    within(main)


def test_a_record_of_an_open_transaction_is_not_read_and_is_only_uncommitted_lag():
    async def main(world):
        producer = await world.producer()
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("t", b"later", partition=0))
        async with reader(world) as consumer:
            consumer.assign([T0])
            assert await consumer.getmany(timeout_ms=1_000) == {}
            assert await consumer.lag() == {T0: 0}
            assert await consumer.lag(isolation="read_uncommitted") == {T0: 1}
            await producer.commit_transaction()
            assert await all_there(consumer, 1) == [b"later"]

    within(main)


def test_an_aborted_batch_is_returned_again_and_a_committed_one_is_not():
    """A batch knows its first and next offsets, its group's metadata and the assignment."""

    async def main(world):
        await write(world, b"a", b"b", b"c")
        async with reader(world, group_id="g", topics=["t"]) as consumer:
            batches = consumer.batches(max_records=2)
            first = await anext(batches)
            assert (values(first), first.first_offsets) == ([b"a", b"b"], {T0: 0})
            assert first.offsets[T0].offset == 2
            assert first.group_metadata == consumer.group_metadata()
            assert first.assignment == {T0}
            assert consumer.last_batch is first
            first.aborted()
            again = await anext(batches)
            assert values(again) == [b"a", b"b"]
            again.committed()
            assert values(await anext(batches)) == [b"c"]

    within(main)


@pytest.mark.parametrize("committed", [0, 1, 2])
def test_after_an_unknown_commit_outcome_reading_resumes_at_the_committed_offset(committed):
    async def main(world):
        await write(world, b"a", b"b", b"c")
        async with reader(world, group_id="g", topics=["t"], auto_offset_reset="latest") as consumer:
            await consumer.assigned()
            await consumer.seek_to_beginning(T0)
            batch = await anext(consumer.batches(max_records=2))
            if committed:
                await consumer.commit({T0: committed})
            batch.outcome_unknown()
            batches = consumer.batches(max_records=9)
            assert values(await anext(batches)) == [b"a", b"b", b"c"][committed:]

    within(main)


@pytest.mark.parametrize("lost", ["before_write", "after_write"])
def test_a_first_batch_with_an_unknown_outcome_is_processed_exactly_once(lost):
    """There is no committed offset yet, and auto_offset_reset "latest" would begin after the batch."""

    async def main(world):
        await write(world, b"a")
        producer = await world.producer(transaction_timeout_ms=10_000)
        async with reader(world, group_id="g", topics=["t"], auto_offset_reset="latest") as consumer:
            await consumer.assigned()
            await write(world, b"b", b"c")
            batch = await anext(consumer.batches(max_records=1))
            assert values(batch) == [b"b"]
            silence = world.faults.blackhole("EndTxn", when=lost)
            with pytest.raises(CommitOutcomeUnknownError):
                async with producer.transaction(batch) as tx:
                    await tx.send("copies", b"b", partition=0)
            world.faults.remove(silence)
            following = await asyncio.wait_for(anext(consumer.batches(max_records=1)), 60)
            done = lost == "after_write"
            assert values(following) == [b"c" if done else b"b"]
            assert await world.values("copies") == ([b"b"] if done else [])

    within(main)


def test_an_abort_does_not_rewind_a_partition_that_was_revoked_and_returned():
    async def main(world):
        await write(world, b"a", b"b", b"c")
        async with reader(world) as consumer:
            consumer.assign([T0])
            batch = await anext(consumer.batches(max_records=1))
            consumer.assign([])
            consumer.assign([T0])
            consumer.seek(T0, 2)
            batch.aborted()
            assert (await consumer.getone()).value == b"c"

    within(main)


def test_records_returned_by_getone_form_a_batch_for_a_transaction():
    async def main(world):
        await write(world, b"a", b"b", b"c")
        async with reader(world, group_id="g", topics=["t"]) as consumer:
            assert consumer.last_batch is None
            await consumer.getone()
            await consumer.getone()
            batch = consumer.last_batch
            assert (batch.first_offsets, batch.offsets[T0].offset) == ({T0: 0}, 2)
            batch.aborted()
            assert (await consumer.getone()).value == b"a"

    within(main)


def test_a_topic_created_after_the_consumers_start_is_read_within_5_seconds():
    async def main(world):
        async with Consumer(
            BOOTSTRAP, topics=["late"], auto_offset_reset="earliest", environment=world.world.environment
        ) as it:
            async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
                await producer.send_and_wait("late", b"1")
            async with asyncio.timeout(5):
                assert (await it.getone()).value == b"1"

    within(main)


@pytest.mark.parametrize("topics", ["t", [5], ["t", b"u"]])
def test_subscribing_to_topics_that_are_not_a_list_of_strings_raises_type_error(topics):
    with pytest.raises(TypeError, match="must be a list of"):
        Consumer(BOOTSTRAP, topics=topics)


def test_with_auto_offset_reset_none_a_partition_without_a_committed_offset_raises():
    async def main(world):
        await write(world, b"a")
        async with reader(world, auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            for _ in range(2):
                with pytest.raises(NoOffsetError):
                    await consumer.getone()
            consumer.seek(T0, 5)
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match="offset 5"):
                    await consumer.getone()
            consumer.seek(T0, 0)
            assert (await consumer.getone()).value == b"a"

    within(main)


def test_an_offset_out_of_range_is_reset_by_auto_offset_reset():
    async def main(world):
        await write(world, b"a", b"b")
        cluster = await world.world.cluster()
        Topic = DeleteRecordsRequest.Topic
        part = Topic.Partition(partition_index=0, offset=1)
        await cluster.ask("any", DeleteRecordsRequest(topics=[Topic(name="t", partitions=[part])], timeout_ms=5_000))
        async with reader(world) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            assert (await consumer.getone()).value == b"b"

    within(main)


def test_a_recreated_topic_is_reported_and_then_read_by_auto_offset_reset():
    async def main(world):
        await write(world, b"a", b"b")
        async with reader(world) as consumer:
            consumer.assign([T0])
            assert await all_there(consumer, 2) == [b"a", b"b"]
            cluster = await world.world.cluster()
            Delete = DeleteTopicsRequest
            await cluster.ask("any", Delete(topic_names=["t"], timeout_ms=5_000), cap=5)
            await make(world)
            await write(world, b"c", b"d", b"e")
            with pytest.raises(OffsetOutOfRangeError, match="created again"):
                await consumer.getone()
            assert await all_there(consumer, 3) == [b"c", b"d", b"e"]

    within(main)


def test_paused_partitions_return_no_records_until_resumed():
    async def main(world):
        await make(world, 2)
        await write(world, b"a")
        await write(world, b"b", partition=1)
        async with reader(world) as consumer:
            consumer.assign([T0, T1])
            consumer.pause(T0)
            assert consumer.paused() == {T0}
            assert (await consumer.getone()).value == b"b"
            assert await consumer.getmany(timeout_ms=500) == {}
            consumer.resume(T0)
            assert (await consumer.getone()).value == b"a"

    within(main)


def test_a_consumer_looks_up_end_offsets_and_offsets_by_time():
    """Also first offsets, topics and their partitions."""

    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            for time_ms in (1_000, 2_000, 3_000):
                await producer.send_and_wait("t", b"v", partition=0, timestamp_ms=time_ms)
        async with reader(world) as consumer:
            assert await consumer.beginning_offsets([T0]) == {T0: 0}
            assert await consumer.end_offsets([T0]) == {T0: 3}
            found = await consumer.offsets_for_times({T0: 1_500})
            assert found[T0][:2] == (1, 2_000)
            assert await consumer.offsets_for_times({T0: 9_000}) == {T0: None}
            assert "t" in await consumer.topics()
            assert await consumer.partitions_for_topic("t") == {0}

    within(main)


@pytest.mark.parametrize("fault", ["disconnect", "delay", "error"])
def test_after_a_failed_fetch_every_record_is_still_read_exactly_once(fault):
    async def main(world):
        await write(world, *[b"%d" % n for n in range(20)])
        async with reader(world, request_timeout_ms=1_000, max_partition_fetch_bytes=200) as consumer:
            consumer.assign([T0])
            if fault == "disconnect":
                world.faults.disconnect("Fetch").on_call(2)
            elif fault == "delay":
                world.faults.delay("Fetch", 5).on_call(2)
            else:
                world.faults.error("Fetch", "FETCH_SESSION_ID_NOT_FOUND").on_call(2)
            assert await all_there(consumer, 20) == [b"%d" % n for n in range(20)]

    within(main)


@pytest.mark.slow
def test_aiokafka_reading_continues_after_a_long_silence_and_a_broker_restart():
    """aiokafka's consumer hung at its start, or later, when its idle connections had been closed."""

    async def main(world):
        await write(world, b"a")
        async with reader(world, group_id="g", topics=["t"]) as consumer:
            assert (await consumer.getone()).value == b"a"
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(1_200)
            await write(world, b"b")
            assert (await asyncio.wait_for(waiting, 60)).value == b"b"
            async with reader(world, topics=["t"]) as late:
                assert await asyncio.wait_for(all_there(late, 2), 60) == [b"a", b"b"]
            await world.restart()
            await write(world, b"c")
            assert (await asyncio.wait_for(consumer.getone(), 120)).value == b"c"

    within(main)


def test_a_commit_covers_exactly_the_returned_records():
    async def main(world):
        await write(world, b"a", b"b", b"c")
        async with reader(world, group_id="g", topics=["t"]) as consumer:
            await consumer.getone()
            await consumer.getone()
            await consumer.commit()
            assert (await consumer.committed(T0))[T0].offset == 2
            await consumer.commit({T0: OffsetAndMetadata(1, "note")})
            assert (await consumer.committed())[T0][:2] == (1, "note")
            await consumer.seek_to_committed()
            assert (await consumer.getone()).value == b"b"
        async with reader(world, group_id="g", topics=["t"]) as consumer:
            assert (await consumer.getone()).value == b"b"

    within(main)


def test_unread_fetched_bytes_of_a_partition_stay_below_twice_its_fetch_limit():
    async def main(world):
        await write(world, *[b"x" * 1000 for _ in range(60)])
        async with reader(world, max_partition_fetch_bytes=5_000) as consumer:
            consumer.assign([T0])
            await consumer.getone()
            await asyncio.sleep(5)
            assert consumer._subscription.state(T0).fetched_bytes < 10_000
            assert len(await all_there(consumer, 59)) == 59

    within(main)


@pytest.mark.slow
def test_a_large_compressed_batch_is_read_up_to_max_decompressed_bytes():
    async def main(world):
        value = bytes(20 << 20)
        large = {"compression_type": "zstd", "max_request_size": 32 << 20}
        async with Producer(BOOTSTRAP, environment=world.world.environment, **large) as producer:
            await producer.send_and_wait("t", value, partition=0)
        async with reader(world, topics=["t"]) as consumer:
            assert (await consumer.getone()).value == value
        async with reader(world, topics=["t"], max_decompressed_bytes=1 << 20) as consumer:
            with pytest.raises(RecordTooLargeError, match="t-0: at offset 0"):
                await consumer.getone()

    within(main)


def test_a_consumer_refuses_calls_before_start_after_close_or_with_wrong_types():
    async def main(world):
        consumer = reader(world)
        consumer.assign([T0])
        with pytest.raises(IllegalStateError, match="not started"):
            await consumer.getone()
        async with consumer:
            with pytest.raises(IllegalStateError, match="not assigned"):
                consumer.seek(T1, 0)
            with pytest.raises(IllegalStateError, match="without a group_id"):
                await consumer.commit()
        with pytest.raises(ClosedError):
            await consumer.getone()
        with pytest.raises(TypeError, match="list"):
            reader(world, group_id="g", topics="t")

    within(main)


def test_close_ends_waiting_polls_and_does_not_hang_without_a_broker():
    async def main(world):
        consumer = reader(world, group_id="g", topics=["t"])
        await consumer.start()
        waiting = asyncio.ensure_future(consumer.getone())
        await asyncio.sleep(5)
        await world.world.stop_broker()
        await asyncio.wait_for(consumer.close(), 10)
        with pytest.raises(ClosedError):
            await waiting

    within(main)


def test_getone_checks_all_partitions_only_once_per_loop_turn(monkeypatch):
    async def main(world):
        await make(world, partitions=20)
        for partition in range(20):
            await write(world, b"v", partition=partition)
        async with reader(world) as consumer:
            consumer.assign([("t", partition) for partition in range(20)])
            for partition in range(20):
                await consumer.position(("t", partition))
            await asyncio.sleep(1)
            looks = []
            leader = type(consumer._cluster.metadata).leader
            monkeypatch.setattr(
                type(consumer._cluster.metadata), "leader", lambda self, tp: looks.append(tp) or leader(self, tp)
            )
            found = [await consumer.getone() for _ in range(20)]
            await asyncio.sleep(0)
            assert {record.partition for record in found} == set(range(20))
            assert len(looks) <= 2 * 20  # once for the first record, and once in the turn after; not for each of 20

    within(main)


def test_getmany_without_a_timeout_waits_until_there_are_records():
    async def main(world):
        await make(world)
        async with member(world) as consumer:
            getting = asyncio.ensure_future(consumer.getmany(timeout_ms=None))
            await asyncio.sleep(10)
            assert not getting.done()
            await write(world, b"0")
            assert [each.value for records in (await getting).values() for each in records] == [b"0"]

    within(main)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_before_the_first_join_commit_does_nothing_and_with_given_offsets_it_raises(protocol):
    async def main(world):
        await make(world)
        async with Consumer(
            BOOTSTRAP, topics=["t"], group_id="g", group_protocol=protocol, environment=world.world.environment
        ) as consumer:
            await consumer.commit()
            with pytest.raises(CommitFailedError):
                await consumer.commit({TopicPartition("t", 0): 1})

    within(main)
