"""Programs that are killed, stopped or left without an answer at one of their calls to a database and a broker."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fencepost.client.errors import BrokerUnreachableError


class Killed(BaseException):
    """The program's process is gone."""


class Fate:
    """What happens to a program at one of its calls, the first being 0. how: it is killed before it, stopped before it
    while `meanwhile` happens, or gets an error instead of the answer. names: of the calls so far. error: the kind of
    that error.
    """

    error: type[Exception] = sqlite3.OperationalError

    def __init__(self, at: int = -1, how: str = "", meanwhile: Callable[[], Awaitable[Any]] | None = None) -> None:
        self.at, self.how, self.meanwhile = at, how, meanwhile
        self.names: list[str] = []
        self.dead = False

    def watch(self, part: Any, names: list[str]) -> None:
        """Let each of these methods of the part count as a call."""
        for name in names:
            setattr(part, name, partial(self.call, name, getattr(part, name)))

    def watch_sending(self, part: Any, name: str) -> None:
        """Let this method of the part count as a call. It sends a request at once, and returns a future of the answer,
        or None if it sends nothing.
        """
        setattr(part, name, partial(self.send, name, getattr(part, name)))

    def send(
        self, name: str, inner: Callable[..., asyncio.Future[Any] | None], *arguments: Any
    ) -> asyncio.Future[Any] | None:
        """Make a call that sends a request at once and does not wait, if the program is alive. "killed" and
        "unanswered": nothing is sent, and the program goes on; only its next awaited call raises Killed, if it is dead.
        "stopped": the request is sent after `meanwhile`.
        """
        if self.dead:
            return None
        self.names.append(name)
        is_it = len(self.names) == self.at + 1
        self.dead = is_it and self.how == "killed"
        if is_it and self.how == "stopped" and self.meanwhile is not None:
            return asyncio.ensure_future(self._send_later(self.meanwhile(), inner, *arguments))
        return None if is_it and self.how else inner(*arguments)

    async def _send_later(
        self, meanwhile: Awaitable[Any], inner: Callable[..., asyncio.Future[Any] | None], *arguments: Any
    ) -> Any:
        await meanwhile
        sent = inner(*arguments)
        if sent is None:
            raise BrokerUnreachableError("not sent", sent=False)
        return await sent

    async def call(self, name: str, inner: Callable[..., Awaitable[Any]], *arguments: Any, **keywords: Any) -> Any:
        """Make the call, if the program is alive."""
        if self.dead:
            raise Killed
        self.names.append(name)
        is_it = len(self.names) == self.at + 1
        if is_it and self.how == "killed":
            self.dead = True
            raise Killed
        if is_it and self.how == "stopped" and self.meanwhile is not None:
            await self.meanwhile()
        found = await inner(*arguments, **keywords)
        if is_it and self.how == "unanswered":
            raise self.error("the connection is gone")
        return found
