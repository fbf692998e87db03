"""ClusterModel: every caller that waits gets a view, and a topic deleted meanwhile does not stop the reading."""

import asyncio
from typing import Any

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic, TopicDescription
from fencepost.console.metrics import metrics_text
from fencepost.console.model import cluster_model
from fencepost.console.model.cluster_model import LOAD, MAX_PAUSE_AFTER_FAILURE_MS, ClusterModel, pause_ms
from fencepost.console.model.events import Events
from fencepost.effects.clock import SystemClock
from served_broker import ServedBroker

import fencepost as fp


class HandClock(SystemClock):
    """A clock that stands still until the test sets `ms`."""

    ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


async def test_a_view_requested_after_a_failed_reading_waits_for_the_next_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_model, "pause_ms", lambda *_, **__: 50)
    clock = HandClock()
    tries = 0

    async def connect() -> Admin:
        nonlocal tries
        tries += 1
        raise fp.BrokerUnreachableError("nobody is there")

    model = ClusterModel(connect, Events("start"), clock)
    async with asyncio.timeout(30):
        with pytest.raises(fp.BrokerUnreachableError):
            await model.view()
        clock.ms += 5_000  # the model pauses after its failure
        waiting = asyncio.ensure_future(model.view())
        await asyncio.sleep(0)
        clock.ms += 20_000  # the pause is now longer than the time for which the model reads after a request
        with pytest.raises(fp.BrokerUnreachableError):
            await waiting
    assert tries == 2
    await model.close()


def test_the_pause_between_readings_is_load_times_their_time_and_less_after_failure() -> None:
    assert pause_ms(20_000, failed=False) == LOAD * 20_000
    assert pause_ms(20_000, failed=True) == MAX_PAUSE_AFTER_FAILURE_MS
    assert pause_ms(0, failed=True) == pause_ms(0, failed=False) == cluster_model.INTERVAL_MS


async def test_a_topic_deleted_after_the_topics_were_listed_hides_no_other_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither in a view nor in metrics; and no error comes from a search for blockers or open transactions."""
    describe = Admin.describe_topics

    async def describe_and_delete(self: Admin, topics: Any = None) -> dict[str, TopicDescription]:
        found = await describe(self, topics)
        if topics is None and "passing" in found:
            await self.delete_topics("passing")
        return found

    with ServedBroker() as broker:
        async with Admin(f"127.0.0.1:{broker.port}") as admin:

            async def connected() -> Admin:
                return admin

            await admin.create_topics([NewTopic("orders", 2), NewTopic("passing", 2)])
            monkeypatch.setattr(Admin, "describe_topics", describe_and_delete)
            model = ClusterModel(connected, Events("start"), SystemClock())
            view = await model.view()
            assert {at.topic for at in view.offsets} == {"orders"}
            await model.close()

            await admin.create_topics([NewTopic("passing", 2)])
            text = (await metrics_text(admin)).decode()
            assert 'fencepost_scrape_errors{part="topics"} 0.0' in text
            assert 'kafka_topic_partition_current_offset{partition="1",topic="orders"} 0.0' in text

            await admin.create_topics([NewTopic("passing", 2)])
            assert await admin.find_blockers() == []
            await admin.create_topics([NewTopic("passing", 2)])
            assert await admin.open_transactions() == []


async def test_blockers_at_skips_a_deleted_partition_but_open_transactions_raises_for_it() -> None:
    with ServedBroker() as broker:
        at = f"127.0.0.1:{broker.port}"
        async with Admin(at) as admin, fp.Producer(at, transactional_id="payments") as producer:
            await admin.create_topics([NewTopic("orders", 1)])
            async with producer.transaction() as transaction:
                await transaction.send_and_wait("orders", b"v")
                ends = {fp.TopicPartition("orders", 0): (0, 1), fp.TopicPartition("gone", 0): (0, 1)}
                assert [each.open.topic_partition.topic for each in await admin.blockers_at(ends)] == ["orders"]
        with pytest.raises(fp.UnknownTopicError):
            async with Admin(at) as admin:
                await admin.open_transactions([fp.TopicPartition("gone", 0)])
