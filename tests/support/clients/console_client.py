"""A console on a real socket, in the test's own loop, and a client that speaks to it as browsers do."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

import aiohttp
from fencepost.client.admin.admin import Admin
from fencepost.client.consumer.consumer import Consumer
from fencepost.console.serving.server import Console
from fencepost.console.settings import ConsoleSettings
from yarl import URL

TOKEN = "a token that nobody guesses"


class ConsoleClient:
    """A client of the console. base: the console's URL. Answers are (status, headers, body); a JSON body is parsed."""

    def __init__(self, console: Console, cluster: str = "") -> None:
        self.console = console
        self.base = console.url.rstrip("/")
        self.cluster = cluster
        self.session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> "ConsoleClient":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None):
        await self.session.close()

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any, Any]:
        async with self.session.request(method, URL(self.base + path, encoded=True), **more) as response:
            raw = await response.read()
            body = json.loads(raw) if response.content_type == "application/json" and raw else raw
            return response.status, response.headers, body

    async def get(self, path: str, **more: Any) -> Any:
        """Return the body of the answer, which must have status 200. path: relative to the cluster if it has no
        leading slash.
        """
        path = path if path.startswith("/") else f"/v3/clusters/{self.cluster}/{path}"
        status, _, body = await self.ask("GET", path, **more)
        assert status == 200, (path, status, body)
        return body

    async def change(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """Send a POST with the CSRF token, and return (status, body)."""
        csrf = (await self.get("/v1/session"))["csrf_token"]
        given = {"X-CSRF-Token": csrf or "", "Content-Type": "application/json", **headers}
        path = path if path.startswith("/") else f"/v3/clusters/{self.cluster}/{path}"
        status, _, answer = await self.ask("POST", path, data=json.dumps(body), headers=given)
        return status, answer

    async def wait_for_view(self) -> None:
        """Wait until the console has read the whole cluster since this call."""
        await self.console.parts.model.next_view()  # part of it may have been read before the call
        await self.console.parts.model.next_view()

    @asynccontextmanager
    async def events(self, last_id: str | None = None) -> AsyncIterator["EventStream"]:
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        async with self.session.get(self.base + "/v1/events", headers=headers) as response:
            assert response.status == 200
            yield EventStream(response)


class EventStream:
    """Its events in order, as (name, id, data)."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, str, Any]:
        while True:
            block = (await self.response.content.readuntil(b"\n\n")).decode()
            if not block:
                raise EOFError("the stream has ended")
            found = dict(line.split(": ", 1) for line in block.strip().split("\n") if not line.startswith(":"))
            if "event" in found:
                return found["event"], found["id"], json.loads(found["data"])

    async def until(self, name: str) -> Any:
        """Return the data of the next event with this name."""
        while True:
            event, _, data = await self.next()
            if event == name:
                return data


@asynccontextmanager
async def console_of(bootstrap: str, **settings: Any) -> AsyncIterator[ConsoleClient]:
    """Run a console of this broker, and yield a client of it."""
    settings = {"host": "127.0.0.1", "port": 0, "version": "1", "changes_allowed": True, **settings}
    made = ConsoleSettings(bootstrap=bootstrap, **settings)
    console = Console(made, lambda: Admin(bootstrap, default_api_timeout_ms=5_000), lambda: Consumer(bootstrap))
    await console.start()
    try:
        async with ConsoleClient(console) as client:
            yield client
    finally:
        await console.close()
