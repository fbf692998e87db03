"""The share consumer against a real broker, in virtual time: what it gets, what becomes of it, what trouble does."""

import asyncio
from typing import Any

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import (
    BrokerUnreachableError,
    ClientError,
    ClosedError,
    ErrorCode,
    IllegalStateError,
    InvalidConfigurationError,
    RecordDeserializationError,
    RecordNotHeldError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from fencepost.client.share.consumer import ShareConsumer
from reading import make, write
from share_members import ACCEPT, REJECT, RELEASE, RENEW, left, seen, sharer
from txn_world import BOOTSTRAP, TxnWorld, within


def test_records_are_accepted_rejected_and_released_one_by_one_in_any_order() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1", b"2", b"3")
        async with sharer(world) as consumer:
            records = await consumer.getmany(timeout_ms=5_000)
            assert seen(records) == [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1)]
            consumer.acknowledge(records[3])
            consumer.acknowledge(records[1], REJECT)
            consumer.acknowledge(records[0], RELEASE)
            await consumer.commit()
            (again,) = await consumer.getmany(timeout_ms=5_000)
            assert seen([again]) == [(b"0", 2)]
            consumer.acknowledge(again)
        assert await left(world) == [(b"2", 2)]

    within(main)


@pytest.mark.parametrize(
    ("protocol", "code"),
    [("classic", ErrorCode.INCONSISTENT_GROUP_PROTOCOL), ("consumer", ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_consumer_that_joins_a_share_group_gets_an_error_with_a_hint(protocol: str, code: ErrorCode) -> None:
    """The hint says that a share group stays one until it is deleted."""

    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        async with sharer(world) as worker:
            assert seen(await worker.getmany(timeout_ms=5_000)) == [(b"0", 1)]
        chosen = {"topics": ["t"], "group_id": "g", "auto_offset_reset": "earliest", "group_protocol": protocol}
        async with Consumer(BOOTSTRAP, environment=world.world.environment, **chosen) as consumer:
            with pytest.raises(ClientError) as refused:
                await consumer.getone(timeout_ms=5_000)
        assert refused.value.code is code
        assert "a share group stays one until it is deleted" in refused.value.hint

    within(main)


def test_a_share_consumer_warns_once_of_each_topic_that_does_not_exist(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        async with sharer(world, topics=["t", "tt"]) as consumer:
            assert seen(await consumer.getmany(timeout_ms=5_000)) == [(b"0", 1)]
            assert await consumer.getmany(timeout_ms=5_000) == []

    within(main)
    assert [each.message for each in caplog.records if "does not exist" in each.message] == [
        "topic 'tt' does not exist: it will be read when it is created"
    ]


def test_iterating_returns_records_as_they_arrive_and_sends_acknowledgements() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        async with sharer(world) as consumer:
            found = []
            async for record in consumer:
                found.append(record.value)
                consumer.acknowledge(record)
                if len(found) == 3:
                    break
                await write(world, b"%d" % len(found))
            assert found == [b"0", b"1", b"2"]
        assert await left(world) == []

    within(main)


def test_share_batches_end_at_a_timeout_without_records_and_can_be_read_on_later() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, *[b"%d" % n for n in range(5)])
        async with sharer(world) as consumer:
            batches = consumer.batches(2, timeout_ms=500)
            assert [len(records) async for records in batches] == [2, 2, 1]
            await write(world, b"5")
            assert [seen(records) async for records in batches] == [[(b"5", 1)]]
            with pytest.raises(RequestTimedOutError, match="no record within 100 ms"):
                await consumer.getone(timeout_ms=100)

    within(main)


def test_share_consumers_of_one_partition_get_different_records() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, *[b"%d" % n for n in range(6)])
        async with (
            sharer(world, max_poll_records=2, strict=True) as one,
            sharer(world, max_poll_records=2, strict=True) as two,
        ):
            first = await one.getmany(timeout_ms=5_000)
            second = await two.getmany(timeout_ms=5_000)
            assert seen(first + second) == [(b"%d" % n, 1) for n in range(4)]
            for consumer, records in ((one, first), (two, second)):
                for record in records:
                    consumer.acknowledge(record)
        assert await left(world) == [(b"4", 1), (b"5", 1)]

    within(main)


@pytest.mark.slow
def test_a_returned_records_lock_is_renewed_so_that_nobody_else_gets_it() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"slow")
        async with sharer(world) as one, sharer(world) as two:
            record = await one.getone()
            assert record.deadline_ms - world.world.environment.clock.now_ms() == pytest.approx(30_000, abs=100)
            assert await two.getmany(timeout_ms=200_000) == []
            one.acknowledge(record)
            await one.commit()
            assert await two.getmany(timeout_ms=1_000) == []

    within(main)


def test_an_unacknowledged_record_is_redelivered_after_max_poll_interval() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"lost")
        async with sharer(world, max_poll_interval_ms=60_000) as one, sharer(world) as two:
            record = await one.getone()
            assert await two.getmany(timeout_ms=60_000) == []
            assert seen(await two.getmany(timeout_ms=60_000)) == [(b"lost", 2)]
            with pytest.raises(RecordNotHeldError):
                one.acknowledge(record)

    within(main)


@pytest.mark.slow
def test_the_application_can_renew_a_record_itself_for_more_time() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"long")
        async with sharer(world, max_poll_interval_ms=60_000) as one, sharer(world) as two:
            record = await one.getone()
            for _ in range(4):
                assert await two.getmany(timeout_ms=50_000) == []
                one.acknowledge(record, RENEW)
            one.acknowledge(record)
            await one.commit()
        assert await left(world) == []

    within(main)


def test_an_idle_share_consumer_releases_records_it_did_not_return() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1", b"2")
        async with sharer(world, max_poll_interval_ms=40_000) as one, sharer(world) as two:
            one.acknowledge(await one.getone())
            assert seen(await two.getmany(timeout_ms=60_000)) == [(b"1", 2), (b"2", 2)]
            await write(world, b"3")
            assert seen([await one.getone()]) == [(b"3", 1)]

    within(main)


def test_implicit_mode_accepts_returned_records_at_the_next_poll() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1", b"2")
        async with sharer(world, acknowledgement="implicit") as consumer:
            await consumer.getone()
            rejected = await consumer.getone()
            consumer.acknowledge(rejected, RELEASE)
            await consumer.getone()
        assert await left(world) == [(b"1", 2)]

    within(main)


@pytest.mark.requirement("S-119")
def test_implicit_mode_does_not_accept_the_last_record_if_its_async_with_raised() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1")
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with sharer(world, acknowledgement="implicit") as consumer:
                await consumer.getone()
                await consumer.getone()
                raise ZeroDivisionError
        assert await left(world) == [(b"1", 2)]

    within(main)


def test_after_a_cut_connection_held_records_are_redelivered_and_not_acknowledged() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1")
        async with sharer(world) as consumer:
            one, other = await consumer.getmany(timeout_ms=5_000)
            for connection in world.world.net.connections:
                connection.cut()
            await asyncio.sleep(0.1)
            consumer.acknowledge(one)
            with pytest.raises(BrokerUnreachableError, match="1 acknowledgements were not sent"):
                await consumer.commit()
            with pytest.raises(RecordNotHeldError):
                consumer.acknowledge(other)
            assert seen(await consumer.getmany(timeout_ms=5_000)) == [(b"0", 2), (b"1", 2)]

    within(main)


@pytest.mark.slow
def test_after_a_broker_restart_acknowledged_records_are_not_redelivered() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1")
        async with sharer(world) as consumer:
            one, _ = await consumer.getmany(timeout_ms=5_000)
            consumer.acknowledge(one)
            await consumer.commit()
            await world.restart()
            assert seen(await consumer.getmany(timeout_ms=30_000)) == [(b"1", 1)]

    within(main)


def test_after_share_session_not_found_commit_raises_and_records_are_redelivered() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1")
        async with sharer(world) as consumer:
            one, other = await consumer.getmany(timeout_ms=5_000)
            world.faults.error("ShareAcknowledge", "SHARE_SESSION_NOT_FOUND").once()
            consumer.acknowledge(one)
            with pytest.raises(RecordNotHeldError, match="t-0: 1 acknowledgements were not taken"):
                await consumer.commit()
            with pytest.raises(RecordNotHeldError):
                consumer.acknowledge(other)
            await consumer.commit()
            assert seen(await consumer.getmany(timeout_ms=5_000)) == [(b"0", 2), (b"1", 2)]

    within(main)


def test_after_a_lost_share_fetch_answer_the_record_is_still_returned() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        async with sharer(world) as consumer:
            world.faults.disconnect("ShareFetch", when="after_write").once()
            assert (await consumer.getone()).value == b"0"

    within(main)


@pytest.mark.requirement("S-119")
def test_close_sends_acknowledgements_and_releases_unacknowledged_records() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1", b"2")
        consumer = sharer(world)
        await consumer.start()
        consumer.acknowledge(await consumer.getone())
        await consumer.getone()
        await consumer.close()
        await consumer.close()
        assert await left(world) == [(b"1", 2), (b"2", 2)]
        with pytest.raises(ClosedError):
            await consumer.getone()

    within(main)


def test_a_record_that_cannot_be_deserialized_can_be_rejected() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"1", b"x", b"3")
        async with sharer(world, value_deserializer=int) as consumer:
            (one,) = await consumer.getmany(timeout_ms=5_000)
            assert one.value == 1
            with pytest.raises(RecordDeserializationError) as raised:
                await consumer.getone()
            assert (raised.value.record.value, raised.value.record.offset) == (b"x", 1)
            consumer.acknowledge(raised.value.record, REJECT)  # type: ignore[arg-type]
            assert (await consumer.getone()).value == 3
        assert await left(world) == [(b"1", 2), (b"3", 2)]

    within(main)


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_a_record_that_cannot_be_deserialized_is_released_until_it_is_archived(mode: Any) -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"x")
        async with sharer(world, value_deserializer=int, acknowledgement=mode) as consumer:
            for _ in range(5):
                with pytest.raises(RecordDeserializationError):
                    await consumer.getone()
            assert await consumer.getmany(timeout_ms=1_000) == []  # archived, as the group allows five deliveries

    within(main)


def test_start_refuses_an_auto_offset_reset_that_differs_from_the_share_groups() -> None:
    async def main(world: TxnWorld) -> None:
        await make(world)
        await write(world, b"before")
        async with sharer(world, auto_offset_reset="latest") as consumer:
            assert await consumer.getmany(timeout_ms=1_000) == []
            await write(world, b"after")
            assert (await consumer.getone()).value == b"after"
        async with sharer(world, auto_offset_reset=None):
            pass
        with pytest.raises(InvalidConfigurationError, match=r"has share\.auto\.offset\.reset=latest, not auto_offset"):
            async with sharer(world):
                pass

    within(main)


def test_of_two_first_share_consumers_with_different_offset_resets_one_is_refused() -> None:
    """Both find that the group has no share.auto.offset.reset yet, and set their own."""

    async def main(world: TxnWorld) -> None:
        await make(world)
        consumers = [sharer(world, auto_offset_reset=each) for each in ("latest", "earliest")]
        world.faults.delay("IncrementalAlterConfigs", 0.1).every_time()
        found = await asyncio.gather(*(each.start() for each in consumers), return_exceptions=True)
        for each in consumers:
            await each.close()
        (refused,) = [each for each in found if each is not None]
        assert isinstance(refused, InvalidConfigurationError)
        assert "has share.auto.offset.reset=" in str(refused)

    within(main)


@pytest.mark.parametrize("at_once", [True, False])
def test_getmany_without_a_timeout_waits_until_there_are_records(at_once: bool) -> None:
    async def main(world: TxnWorld) -> None:
        await make(world)
        async with sharer(world) as consumer:
            getting = asyncio.ensure_future(consumer.getmany(timeout_ms=None))
            await asyncio.sleep(0 if at_once else 10)
            assert not getting.done()
            await write(world, b"0")
            assert seen(await getting) == [(b"0", 1)]

    within(main)


def test_start_raises_unsupported_version_if_the_broker_has_no_share_groups() -> None:
    async def main(world: TxnWorld) -> None:
        consumer = sharer(world)
        with pytest.raises(UnsupportedVersionError, match=r"has no share groups \(KIP-932\)$"):
            await consumer.start()
        await consumer.close()

    within(main, release="3.5")


def test_a_share_consumer_refuses_bad_settings_and_reads_unstarted_or_without_topics() -> None:
    async def main(world: TxnWorld) -> None:
        consumer = sharer(world)
        with pytest.raises(IllegalStateError, match="not started"):
            await consumer.getone()
        with pytest.raises(TypeError, match="list of names"):
            consumer.subscribe("t")
        for wrong in ({"acknowledgement": "later"}, {"group_id": ""}, {"auto_offset_reset": "none"}):
            with pytest.raises(InvalidConfigurationError):
                sharer(world, **wrong)
        async with ShareConsumer(BOOTSTRAP, group_id="g", environment=world.world.environment) as without:
            with pytest.raises(IllegalStateError, match="has no topics"):
                await without.getone()

    within(main)


def test_records_can_be_acknowledged_after_their_topic_was_unsubscribed() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1")
        async with sharer(world) as consumer:
            one, other = await consumer.getmany(timeout_ms=5_000)
            consumer.subscribe(["another"])
            assert await consumer.getmany(timeout_ms=20_000) == []
            consumer.acknowledge(one)
            consumer.acknowledge(other, ACCEPT)
            await consumer.commit()
        assert await left(world) == []

    within(main)


def test_a_share_consumer_waits_for_a_coordinator_that_is_loading() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        world.faults.error("FindCoordinator", "COORDINATOR_NOT_AVAILABLE").times(3)
        world.faults.error("ShareGroupHeartbeat", "COORDINATOR_LOAD_IN_PROGRESS").times(2)
        async with sharer(world) as consumer:
            assert (await consumer.getone(timeout_ms=10_000)).value == b"0"

    within(main)
