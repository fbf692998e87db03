"""Waiting for what another thread or process does, which no virtual clock moves."""

import time
from collections.abc import Callable

PAUSE_S = 0.005


def wait_until(done: Callable[[], object], within_s: float = 30) -> None:
    """Return as soon as done() is true. Raises AssertionError if it is not within this many seconds."""
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline, f"not so within {within_s} s"
        time.sleep(PAUSE_S)
