"""A mistake of ours inside a task that others wait for is an error of theirs, with its cause, and never a silence."""

import asyncio
import logging

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import FatalError
from fencepost.client.producer.producer import Producer
from txn_world import BOOTSTRAP, within


def _broken(*_, **__):
    raise ZeroDivisionError("a mistake")


def _said(caplog) -> list:
    return [each for each in caplog.records if each.levelno == logging.ERROR and each.exc_info]


def test_a_bug_during_a_metadata_lookup_is_raised_to_those_waiting_for_it(monkeypatch, caplog):
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            monkeypatch.setattr(producer._cluster, "refresh", _broken)
            for _ in range(2):
                with pytest.raises(FatalError, match="ZeroDivisionError: a mistake") as failed:
                    await asyncio.wait_for(producer.send("new", b"v"), 5)
                assert isinstance(failed.value.__cause__, ZeroDivisionError)

    within(main)
    assert len(_said(caplog)) == 1


def test_a_bug_during_a_consumers_metadata_lookup_is_raised_by_the_poll(monkeypatch, caplog):
    async def main(world):
        async with Consumer(BOOTSTRAP, environment=world.world.environment, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            reading = asyncio.create_task(consumer.getone())
            await asyncio.sleep(1)
            monkeypatch.setattr(consumer._cluster, "refresh", _broken)
            consumer._cluster.request_refresh()
            with pytest.raises(FatalError, match="ZeroDivisionError: a mistake"):
                await asyncio.wait_for(reading, 5)

    within(main)
    assert len(_said(caplog)) == 1


def test_a_bug_while_sending_batches_fails_every_record(monkeypatch, caplog):
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            await producer.send_and_wait("t", b"v")
            monkeypatch.setattr(producer._sender, "_consider", _broken)
            for _ in range(2):
                with pytest.raises(FatalError, match="ZeroDivisionError: a mistake"):
                    await asyncio.wait_for(producer.send_and_wait("t", b"v"), 5)

    within(main)
    assert len(_said(caplog)) == 1


def test_a_transaction_whose_records_failed_by_a_bug_is_never_committed(monkeypatch):
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment, transactional_id="x") as producer:
            with pytest.raises(FatalError):
                await asyncio.wait_for(_transaction_that_breaks(producer, monkeypatch), 30)
        assert await world.values() == []

    within(main)


async def _transaction_that_breaks(producer, monkeypatch):
    async with producer.transaction() as transaction:
        await transaction.send("t", b"v")
        monkeypatch.setattr(producer._sender, "_consider", _broken)
