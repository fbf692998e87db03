"""How much memory a call takes at its peak: of what Python allocates, the same on every machine."""

import tracemalloc
from collections.abc import Callable
from typing import Any


def peak_bytes(call: Callable[[], Any]) -> int:
    """Return how many bytes `call` allocates at its peak, beyond what was allocated before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
