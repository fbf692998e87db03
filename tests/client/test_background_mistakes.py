"""A mistake of ours in what runs in the background of a producer or a consumer fails those that wait, soon, by name."""

import asyncio
import logging

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import FatalError
from fencepost.client.producer.producer import Producer
from txn_world import BOOTSTRAP, within

SOON_S = 20


def _broken(*_, **__):
    raise ZeroDivisionError("a mistake")


async def _broken_soon(*_, **__):
    await asyncio.sleep(0.01)
    raise ZeroDivisionError("a mistake")


def _said(caplog) -> int:
    return len([each for each in caplog.records if each.levelno == logging.ERROR and each.exc_info])


async def _fails(waiting):
    with pytest.raises(FatalError, match="ZeroDivisionError: a mistake") as failed:
        await asyncio.wait_for(waiting, SOON_S)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("what", ["_apply", "_on_lost", "_expire"])
def test_an_unexpected_exception_in_the_sender_fails_its_records_and_is_logged_once(what, monkeypatch, caplog):
    async def main(world):
        keywords = {"delivery_timeout_ms": 15_000, "request_timeout_ms": 5_000, "linger_ms": 0}
        async with Producer(BOOTSTRAP, environment=world.world.environment, **keywords) as producer:
            await producer.send_and_wait("t", b"v")
            monkeypatch.setattr(producer._sender, what, _broken)
            if what == "_on_lost":
                world.faults.disconnect("Produce", when="before_write")
            elif what == "_expire":
                world.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", when="before_write")
            for _ in range(2):
                await _fails(producer.send_and_wait("t", b"v"))

    within(main)
    assert _said(caplog) == 1


def test_a_bug_while_the_sender_connects_fails_its_records(monkeypatch, caplog):
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            await producer.send_and_wait("t", b"v")
            monkeypatch.setattr(producer._cluster, "ready", lambda *_: None)
            monkeypatch.setattr(producer._cluster, "node", _broken_soon)
            await _fails(producer.send_and_wait("t", b"v"))

    within(main)
    assert _said(caplog) == 1


def test_a_bug_while_a_producer_id_is_requested_fails_its_records(monkeypatch):
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            await producer.partitions_for("t")
            monkeypatch.setattr(producer._cluster, "ask_until", _broken_soon)
            for _ in range(2):
                await _fails(producer.send_and_wait("t", b"v"))

    within(main)


def test_a_bug_while_adding_partitions_fails_the_transaction(monkeypatch, caplog):
    async def main(world):
        producer = await world.producer()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a")
        monkeypatch.setattr(producer._driver._requests, "add_partitions", _broken_soon)

        async def work():
            async with producer.transaction() as transaction:
                await transaction.send("t", b"b", partition=0)

        with pytest.raises(FatalError):
            await asyncio.wait_for(work(), SOON_S)
        assert await world.values() == [b"a"]

    within(main, 1)
    assert _said(caplog) == 1


@pytest.mark.parametrize("what", ["_take", "_open"])
def test_a_bug_while_fetching_is_raised_by_the_poll(what, monkeypatch, caplog):
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            await producer.send_and_wait("t", b"a")
            async with Consumer(
                BOOTSTRAP, environment=world.world.environment, auto_offset_reset="earliest"
            ) as consumer:
                consumer.assign([("t", 0)])
                assert (await consumer.getone()).value == b"a"
                reading = asyncio.create_task(consumer.getone())
                await asyncio.sleep(0.1)
                monkeypatch.setattr(consumer._fetcher, what, _broken)
                if what == "_open":
                    consumer._cluster.ready(1, "fetch").close()
                else:
                    await producer.send_and_wait("t", b"b")
                await _fails(reading)
                await _fails(consumer.getmany(timeout_ms=1_000))

    within(main)
    assert _said(caplog) == 1


def test_a_bug_while_a_consumer_connects_is_raised_by_getone(monkeypatch, caplog):
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            await producer.send_and_wait("t", b"a")
        async with Consumer(BOOTSTRAP, environment=world.world.environment, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            await consumer.position(("t", 0))
            await asyncio.sleep(0.5)
            consumer._cluster.ready(1, "fetch").close()
            monkeypatch.setattr(consumer._cluster, "node", _broken_soon)
            consumer.seek(("t", 0), 0)
            await _fails(consumer.getone())

    within(main)
    assert _said(caplog) == 1


def test_a_bug_in_a_members_heartbeat_task_is_raised_to_the_application(monkeypatch, caplog):
    async def main(world):
        keywords = {"topics": ["t"], "group_id": "g", "auto_offset_reset": "earliest"}
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            await producer.send_and_wait("t", b"a")
        async with Consumer(BOOTSTRAP, environment=world.world.environment, **keywords) as consumer:
            await consumer.getone()
            monkeypatch.setattr(consumer._group._membership, "on_heartbeat", _broken)
            for _ in range(2):
                await _fails(consumer.getone())

    within(main)
    assert _said(caplog) == 1
