"""The event stream over a real socket: live, resumed after an event, or begun again with a snapshot."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from confluent_kafka import Producer
from console_client import TOKEN, ConsoleClient, EventStream, console_of
from fencepost.broker.embedded.broker import Broker
from fencepost.console.model.events import KEPT_EVENTS
from fencepost.console.rest import streaming
from served_broker import ServedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        producer = begun(served, "before")  # so that the log of transactions exists
        producer.commit_transaction(10)
        yield served


@pytest_asyncio.fixture
async def console(broker: ServedBroker) -> AsyncIterator[ConsoleClient]:
    async with asyncio.timeout(60), console_of(f"127.0.0.1:{broker.port}") as client:
        yield client


def begun(broker: ServedBroker, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "transactional.id": transactional_id})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"x", partition=0)
    assert producer.flush(10) == 0
    return producer


async def follows(console: ConsoleClient) -> None:
    while (await console.get("/v1/snapshot"))["events_from"] != "log":
        await console.console.parts.model.next_view()


async def kinds(stream: EventStream, name: str, last: str) -> list[str]:
    found: list[str] = []
    while not found or found[-1] != last:
        data = await stream.until("txn")
        if data["transactional_id"] == name:
            found.append(data["type"])
    return found


async def test_the_event_stream_sends_begin_prepare_and_commit_of_a_transaction(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    async with console.events() as stream:
        name, _, data = await stream.next()
        assert (name, data["reachable"]) == ("snapshot", True)
        await follows(console)
        producer = await asyncio.to_thread(begun, broker, "story")
        assert await kinds(stream, "story", "txn.begin") == ["txn.begin"]
        await asyncio.to_thread(producer.commit_transaction, 10)
        assert await kinds(stream, "story", "txn.commit") == ["txn.prepare_commit", "txn.commit"]
        recent = (await console.get("/v1/snapshot"))["recent"]
        assert next(each["type"] for each in recent if each["transactional_id"] == "story") == "txn.commit"


async def test_the_event_stream_sends_changes_of_blockers(console: ConsoleClient, broker: ServedBroker) -> None:
    async with console.events() as stream:
        await stream.until("snapshot")
        producer = await asyncio.to_thread(begun, broker, "changing")
        found = await stream.until("blockers")
        assert found["rows"][0]["transactional_id"] == "changing"
        await asyncio.to_thread(producer.abort_transaction, 10)
        while (await stream.until("blockers"))["rows"]:
            pass


async def test_an_event_stream_resumes_after_the_last_event_seen_or_begins_with_a_snapshot(
    console: ConsoleClient,
) -> None:
    ring = console.console.parts.events
    async with console.events() as stream:
        _, seen, _ = await stream.next()
    ring.publish("counts", {"topics": 77})
    async with console.events(seen) as stream:
        while (await stream.next())[2] != {"topics": 77}:
            pass
    async with console.events("another start-5") as stream:  # the id of an event before a restart of the console
        assert (await stream.next())[0] == "snapshot"


async def test_a_browser_that_missed_more_events_than_are_kept_gets_a_snapshot(console: ConsoleClient) -> None:
    ring = console.console.parts.events
    async with console.events() as stream:
        assert (await stream.next())[0] == "snapshot"
        for number in range(KEPT_EVENTS + 100):
            ring.publish("counts", {"topics": number})
        name, event_id, _ = await stream.next()
        assert (name, ring.number_of(event_id)) == ("snapshot", ring.last)


async def test_events_too_large_for_one_write_are_replaced_by_a_snapshot(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "AT_ONCE_BYTES", 10_000)
    ring = console.console.parts.events
    async with console.events() as stream:
        assert (await stream.next())[0] == "snapshot"
        ring.publish("counts", {"topics": "x" * 10_000})
        name, event_id, _ = await stream.next()
        assert (name, ring.number_of(event_id)) == ("snapshot", ring.last)


async def test_the_console_reads_nothing_from_the_broker_while_no_page_is_open(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.console.model.cluster_model.LOOK_MS", 0)
    async with asyncio.timeout(60), console_of(f"127.0.0.1:{broker.port}") as console:
        model = console.console.parts.model
        assert model._task is None
        async with console.events() as stream:
            await stream.until("snapshot")
            assert model.is_wanted
        await model._task
        assert not model.is_wanted


async def test_an_event_stream_ends_when_the_session_that_opened_it_ends(broker: ServedBroker) -> None:
    async with asyncio.timeout(60), console_of(f"127.0.0.1:{broker.port}", token=TOKEN) as console:
        _, _, body = await console.ask("POST", "/v1/session", json={"token": TOKEN})
        async with console.events() as stream:
            await stream.until("snapshot")
            headers = {"X-CSRF-Token": body["csrf_token"], "Content-Type": "application/json"}
            assert (await console.ask("DELETE", "/v1/session", headers=headers))[0] == 204
            console.console.parts.events.publish("counts", {})
            with pytest.raises(EOFError):
                await stream.until("never")


async def test_an_unreachable_broker_is_reported_to_the_pages(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    try:
        async with (
            asyncio.timeout(60),
            console_of(broker.bootstrap_servers) as console,
            console.events() as stream,
        ):
            assert (await stream.until("snapshot"))["reachable"]
            await asyncio.to_thread(broker.kill)
            assert (await stream.until("problem"))["message"]
            assert not (await console.get("/v1/snapshot"))["reachable"]
            await asyncio.to_thread(broker.restart)
            assert await stream.until("recovered") == {}
    finally:
        broker.stop()
