"""Events for browsers (server-sent events): the newest are in one list for all browsers, and for each browser only the
number of the last event that it saw is known.

The rule: an event is encoded once, however many browsers look. A browser needs no memory here except that number, so a
slow one costs nothing: if events after its number are no longer stored, it gets a snapshot and continues from there.
Source: WHATWG HTML, "Server-sent events".
"""

import asyncio
import json
from collections import deque
from typing import Any, NamedTuple

KEPT_EVENTS = 1_000
KEPT_BYTES = 4 << 20


class Encoded(NamedTuple):
    """One event: its number, and its bytes as they are sent."""

    number: int
    data: bytes


def encode(name: str, event_id: str, data: Any) -> bytes:
    """Return one server-sent event as bytes. Its JSON has no line breaks, so one `data:` line is enough."""
    return f"event: {name}\nid: {event_id}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


class Events:
    """The newest events, numbered from 1. start: identifies this start of the console; ids of events from another
    start are unknown here.
    """

    def __init__(self, start: str) -> None:
        self._start = start
        self._kept: deque[Encoded] = deque()
        self._bytes = 0
        self._last = 0
        self._news = asyncio.Event()
        self.watchers = 0
        self.closed = False

    @property
    def last_id(self) -> str:
        """Return the id of the last event."""
        return self.id_of(self._last)

    @property
    def last(self) -> int:
        """Return the number of the last event; 0 before the first."""
        return self._last

    def id_of(self, number: int) -> str:
        """Return the id of the event with this number, as browsers get it."""
        return f"{self._start}-{number}"

    def number_of(self, event_id: str) -> int | None:
        """Return the number in an event id, with which a browser asks for the events after it. None if the id is
        from another start of the console, or later events are not stored any more: the browser must then begin with
        a snapshot.
        """
        start, _, digits = event_id.rpartition("-")
        if start != self._start or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            return None
        number = int(digits)
        return number if self.has_all_after(number) else None

    def has_all_after(self, number: int) -> bool:
        """Return whether every event after this number is still stored."""
        first = self._kept[0].number if self._kept else self._last + 1
        return first - 1 <= number <= self._last

    def publish(self, name: str, data: Any) -> None:
        """Add an event and wake the event streams. The oldest are removed beyond KEPT_EVENTS or KEPT_BYTES."""
        self._last += 1
        encoded = Encoded(self._last, encode(name, self.last_id, data))
        self._kept.append(encoded)
        self._bytes += len(encoded.data)
        while len(self._kept) > KEPT_EVENTS or (self._bytes > KEPT_BYTES and len(self._kept) > 1):
            self._bytes -= len(self._kept.popleft().data)
        self._wake()

    def after(self, number: int) -> list[Encoded]:
        """Return the events after this number, the oldest first. All of them must still be stored."""
        count = self._last - number
        return [self._kept[i] for i in range(len(self._kept) - count, len(self._kept))] if count else []

    async def news(self, number: int, wait_s: float) -> None:
        """Wait until there is an event after this number, the streams are closed, or wait_s seconds have passed."""
        if self._last > number or self.closed:
            return
        try:
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        """Wake all callers that wait in news()."""
        self._news.set()
        self._news = asyncio.Event()
