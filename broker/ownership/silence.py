"""When the owner of a journal counts as gone: if it has written nothing for a lease, measured by the clock of the
broker that watches. Pure.

The rule: this only decides when a take-over is attempted. A take-over that is too early ends the epoch of an owner that
is still alive, but loses nothing, because the fence does not rely on time (storage/objects/fence.py). No clocks are
compared.
"""

from ...storage.objects.fence import NOWHERE, Place


class Silence:
    """The newest round (write of the journal) that an owner has written, and how long none has followed it."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self.newest = NOWHERE
        self._since_ms: int | None = None

    def saw(self, newest: Place, now_ms: int) -> None:
        """Note the newest round (write of the journal) or seal in the store; NOWHERE if there is none."""
        if newest > self.newest or self._since_ms is None:
            self.newest = newest
            self._since_ms = now_ms

    def is_over(self, now_ms: int) -> bool:
        """Return whether nothing new was seen for a whole lease, or there has never been anything in the store."""
        if self._since_ms is None:
            return False
        return self.newest == NOWHERE or now_ms - self._since_ms >= self._lease_ms
