"""The loops that tests run on: asyncio's own and, where it can be imported, uvloop's."""

import asyncio
from collections.abc import Callable

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop


def new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of the kind that `serve` uses here: uvloop's where it is installed."""
    return list(LOOPS.values())[-1]()
