"""How many lines of Python a call runs: a measure of work that is the same on every machine and at any load.

The collector waits meanwhile: what it ends, perhaps objects of an earlier test, has lines of its own.
"""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(call: Callable[[], Any]) -> int:
    """Return how many lines of Python `call` runs, with those of all functions that it calls."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count
