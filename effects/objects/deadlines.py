"""How long one call to an object store may take.

The rule: a small call has a short deadline, because a connection may be lost without a word: nobody closes it, and
nothing comes any more (a firewall or a load balancer has forgotten it). The next attempt makes a new connection. But a
store, or the way to it, may only be slow. So a call for the same object that has timed out has a longer deadline, up to
the longest. Else it would time out for ever.
"""

import threading

DEADLINES_S = (4.0, 30.0, 120.0)  # the first is shorter than the lease of an owner
SMALL_BYTES = 1 << 20
MAX_NAMES = 1000  # that are remembered


class Deadlines:
    """Knows which calls have timed out. Thread-safe."""

    def __init__(self) -> None:
        self._timed_out: dict[str, int] = {}  # how often in a row, by call
        self._lock = threading.Lock()

    def level(self, call: str, size_bytes: int) -> int:
        """Return the place in DEADLINES_S of the deadline for a call. call: which one, with the object's name.

        size_bytes: how many bytes of an object it transfers, as far as is known.
        """
        longest = len(DEADLINES_S) - 1
        return longest if size_bytes > SMALL_BYTES else min(self._timed_out.get(call, 0), longest)

    def ended(self, call: str, *, timed_out: bool) -> None:
        """Note that a call has ended, and whether that was at its deadline."""
        with self._lock:
            if not timed_out:
                self._timed_out.pop(call, None)
                return
            if len(self._timed_out) >= MAX_NAMES:
                self._timed_out.clear()  # of calls that nobody has repeated
            self._timed_out[call] = self._timed_out.get(call, 0) + 1
