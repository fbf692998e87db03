"""Connections over real sockets: how many there may be, and how long one may be idle or read nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio
from console_client import ConsoleClient, console_of
from fencepost.console.http.limits import MAX_CONNECTIONS, ConnectionLimits, StreamLimits
from fencepost.console.rest import streaming
from fencepost.console.serving import connections
from served_broker import ServedBroker

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
EVENTS = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
opened: list[asyncio.StreamWriter] = []


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        yield served


@pytest_asyncio.fixture
async def console(broker: ServedBroker) -> AsyncIterator[ConsoleClient]:
    async with asyncio.timeout(60), console_of(f"127.0.0.1:{broker.port}") as client:
        try:
            yield client
        finally:
            while opened:
                opened.pop().close()


async def connect(console: ConsoleClient, asks: bytes = b"", address: str = "127.0.0.1") -> Streams:
    """Connect from this local address, and send these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", console.console.port, local_addr=(address, 0))
    opened.append(writer)
    writer.write(asks)
    return reader, writer


async def status_of(streams: Streams) -> int:
    """Return the status code of the next answer."""
    head = await streams[0].readuntil(b"\r\n\r\n")
    return int(head.split()[1])


async def become(holds: Callable[[], bool]) -> None:
    """Wait until holds() is true. Raises TimeoutError after a minute, because the test's own limit does not end this
    task.
    """
    async with asyncio.timeout(60):
        for _ in iter(holds, True):
            await asyncio.sleep(0.01)


async def test_a_new_connection_at_the_limit_closes_the_one_idle_for_longest(console: ConsoleClient) -> None:
    console.console.parts.connections = ConnectionLimits(most=4, most_of_address=3)
    silent = [await connect(console, b"GET / HTTP/1.1\r\n", f"127.0.0.{each}") for each in (2, 2, 2, 3)]
    asking = await connect(console, HEALTH, "127.0.0.4")
    assert await status_of(asking) == 200
    assert await silent[0][0].read() == b""  # the first one gave way
    more = await connect(console, HEALTH, "127.0.0.2")
    assert await status_of(more) == 200
    assert await silent[1][0].read() == b""
    assert len(console.console.parts.connections) == 4


async def test_a_connection_above_the_limit_gets_503_if_all_others_are_in_a_request(console: ConsoleClient) -> None:
    console.console.parts.connections = ConnectionLimits(most=2, most_of_address=2)
    watching = [await connect(console, EVENTS) for _ in range(2)]
    assert [await status_of(each) for each in watching] == [200, 200]
    refused = await connect(console)
    answer = await refused[0].read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"nosniff" in answer
    assert b'"error_code": 50302' in answer
    for _, writer in (*watching, refused):
        writer.close()
    await become(lambda: not console.console.parts.connections)
    assert await status_of(await connect(console, HEALTH)) == 200


async def test_an_event_stream_above_the_limit_of_an_address_gets_429(console: ConsoleClient) -> None:
    console.console.parts.streams = StreamLimits(most=10, most_of_address=2)
    watching = [await connect(console, EVENTS, "127.0.0.2") for _ in range(2)]
    assert [await status_of(each) for each in watching] == [200, 200]
    assert await status_of(await connect(console, EVENTS, "127.0.0.2")) == 429
    assert await status_of(await connect(console, EVENTS, "127.0.0.3")) == 200
    watching[0][1].close()
    await become(lambda: len(console.console.parts.streams) == 2)
    assert await status_of(await connect(console, EVENTS, "127.0.0.2")) == 200


async def test_a_connection_whose_browser_reads_no_response_is_closed(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STUCK_S", 0.1)
    _, writer = await connect(console)
    writer.transport.pause_reading()
    try:
        while True:  # more answers than the kernel keeps for a browser that reads none
            writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
            await writer.drain()
            if not console.console.parts.connections:
                break
            await asyncio.sleep(0.01)
    except ConnectionError:
        pass
    writer.close()
    assert await status_of(await connect(console, HEALTH)) == 200


async def test_the_connection_limit_allows_a_hundred_browsers() -> None:
    assert MAX_CONNECTIONS > 100 * 6  # a browser opens six to one host


async def test_a_request_is_dropped_when_its_browser_disconnects(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event stream ends at once, and not with the next event, which may never come."""
    monkeypatch.setattr(streaming, "COMMENT_S", 1e6)
    parts = console.console.parts
    reader, writer = await connect(console, EVENTS)
    await reader.readuntil(b"event: snapshot")
    assert len(parts.streams) == 1
    writer.close()
    await become(lambda: not len(parts.streams))
    assert parts.events.watchers == 0
