"""The snapshot with which a page begins, and the stream of events that keeps it current.

The rule: a stream stores nothing except the number of the last event it has sent. If later events are no longer stored,
it gets a snapshot; if the browser takes no bytes for WRITE_S, it ends; and no stream outlives its login.
"""

import asyncio
import contextlib
from typing import Any

from aiohttp import web

from ...client.errors import KafkaError
from ..asked import Asked
from ..http.guard import HEADERS
from ..http.problems import Problem
from ..model.events import encode
from ..routes import Route

COMMENT_S = 15.0
WRITE_S = 30.0
COALESCE_S = 0.1
AT_ONCE_BYTES = 1 << 20  # events in one write; a browser that is further behind gets a snapshot


async def snapshot(asked: Asked) -> dict[str, Any]:
    """Handle GET /v1/snapshot: what a page shows when it is opened. If the broker does not answer, it contains the
    error.
    """
    try:
        view = await asked.parts.model.view()
    except KafkaError:  # the snapshot has its text
        view = None
    return asked.parts.snapshot(view)


async def events(asked: Asked) -> web.StreamResponse:
    """Handle GET /v1/events: an event stream. Raises Problem if too many are open."""
    parts = asked.parts
    parts.streams.add(asked.address)
    try:
        return await _watch(asked)
    finally:
        parts.streams.remove(asked.address)


async def _watch(asked: Asked) -> web.StreamResponse:
    """Answer with an event stream that continues after the event in the Last-Event-ID header, or begins with a
    snapshot.
    """
    parts = asked.parts
    seen = parts.events.number_of(asked.request.headers.get("Last-Event-ID", ""))
    response = web.StreamResponse(headers=HEADERS | {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
    response.content_type = "text/event-stream"
    parts.events.watchers += 1
    parts.look()
    try:
        await response.prepare(asked.request)
        await response.write(b"retry: 2000\n\n")
        if seen is None:
            with contextlib.suppress(KafkaError):  # the snapshot has its text
                await parts.model.view()  # so that the snapshot is a recent one
        await _stream(asked, response, seen)
    except (ConnectionError, TimeoutError, Problem):
        pass  # the browser left, took nothing, or was logged out
    finally:
        parts.events.watchers -= 1
    return response


async def _stream(asked: Asked, response: web.StreamResponse, seen: int | None) -> None:
    """Send events to the browser until the streams are closed, its session ends (Problem), or it takes no bytes for
    WRITE_S (TimeoutError). seen: the number of the last event it has; None: it gets a snapshot first.
    """
    parts, session = asked.parts, asked.session
    ring = parts.events
    while not ring.closed:
        parts.guard.check_login(asked.request.headers, session, asked.address, asked.now_ms)
        if seen is None or not ring.has_all_after(seen):
            seen = ring.last
            data = encode("snapshot", ring.id_of(seen), parts.snapshot(None))
        else:
            found = ring.after(seen)
            data = b"".join(each.data for each in found) or b": \n\n"
            seen = ring.last
            if len(data) > AT_ONCE_BYTES:
                data = encode("snapshot", ring.id_of(seen), parts.snapshot(None))
        async with asyncio.timeout(WRITE_S):
            await response.write(data)
        await asyncio.sleep(COALESCE_S)
        await ring.news(seen, COMMENT_S)


ROUTES = (
    Route("GET", "/v1/snapshot", snapshot, "The overview, with the oldest open transactions", "Snapshot"),
    Route("GET", "/v1/events", events, "What changes, as server-sent events", "text/event-stream"),
)
