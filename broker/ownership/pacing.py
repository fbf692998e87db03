"""How often rounds (writes of the journal) are created in an object store, each of which costs money. Pure.

The rule: a limited number each second on average, and several at once after a pause. A large round is not delayed,
because there are never many of them, and memory is limited.
"""

LARGE_BYTES = 4 << 20


class Pace:
    """A token bucket: each round takes one token."""

    def __init__(self, per_second: float, at_once: int) -> None:
        self._per_ms = per_second / 1000
        self._most = float(at_once)
        self._tokens = float(at_once)
        self._counted_ms: int | None = None

    def wait_ms(self, now_ms: int, open_bytes: int) -> int:
        """Return how many ms the open round (the next write of the journal) is to wait; 0 to write it now, in which
        case one token is taken from the bucket.

        open_bytes: its size so far. A large round need not wait.
        """
        if self._counted_ms is not None:
            self._tokens = min(self._most, self._tokens + (now_ms - self._counted_ms) * self._per_ms)
        self._counted_ms = now_ms
        if self._tokens < 1 and open_bytes < LARGE_BYTES:
            return max(1, round((1 - self._tokens) / self._per_ms))
        self._tokens = max(self._tokens - 1, -self._most)
        return 0
