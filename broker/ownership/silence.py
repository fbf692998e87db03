"""When the owner of a journal counts as gone: if it has written nothing for a lease, measured by the clock of the
broker that watches. Pure.

The rule: this only decides when a take-over is attempted. A take-over that is too early ends the epoch of an owner that
is still alive, but loses nothing, because the fence does not rely on time (storage/objects/fence.py). No clocks are
compared.

An owner that has created only its first round loads what it has read: groups, transactions, the ledger. With much of
that it is silent for longer than a lease. If another took over then, a third would take over from that one, and nobody
would ever serve. So it has more time, and twice as much again after each epoch that was ended in that state.
"""

from collections.abc import Iterable

from ...storage.objects.fence import NOWHERE, Place

LOADING_LEASES, MAX_LOADING_LEASES = 5, 40  # of silence, of an owner that has created only its first round


def ended_while_loading(places: Iterable[Place]) -> int:
    """Return how many epochs, one after the other, directly before the newest one, were ended when they had only their
    first round. places: of all rounds and seals.
    """
    last: dict[int, int] = {}  # by epoch, the highest number
    for place in places:
        last[place.epoch] = max(last.get(place.epoch, 0), place.number)
    count = 0
    for epoch in sorted(last, reverse=True)[1:]:
        if last[epoch] > 1:
            return count
        count += last[epoch]  # 0: it was ended before it began
    return count


class Silence:
    """The newest round (write of the journal) that an owner has written, and how long none has followed it."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self.newest = NOWHERE
        self._leases = 1
        self._since_ms: int | None = None

    def saw(self, newest: Place, now_ms: int, loading: int = 0) -> None:
        """Note the newest round (write of the journal) or seal in the store; NOWHERE if there is none.

        loading: what ended_while_loading() returned.
        """
        if newest > self.newest or self._since_ms is None:
            self.newest = newest
            self._since_ms = now_ms
            is_loading = newest.epoch > 0 and newest.number == 0
            self._leases = min(LOADING_LEASES << loading, MAX_LOADING_LEASES) if is_loading else 1

    def is_over(self, now_ms: int) -> bool:
        """Return whether nothing new was seen for a whole lease, or for more of them from an owner that loads; or
        whether there has never been anything in the store.
        """
        if self._since_ms is None:
            return False
        return self.newest == NOWHERE or now_ms - self._since_ms >= self._lease_ms * self._leases
