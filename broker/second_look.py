"""Whether a round waits until the loop has read its sockets once more, for clients that may write again at once. Pure.

The reason. A round (write of the journal) that is to be synced begins when the requests that the loop has found are
handled. Clients that wait for each answer then form two groups. While the round of the first group is synced, the
requests of the second arrive. When the answers to the first group have left, the round of the second begins, a moment
before the first group sends its next requests. So each client waits for two syncs, and each sync serves half of the
clients. If the loop reads its sockets once more before it begins the round, both groups are in it
(docs/decisions/0027).

The rule: a look costs some microseconds, and the requests that it finds delay those that are already here. So there is
at most one look for each round, and only if there are connections that took part in the last round and have not sent
anything since. If the look finds none of them, their clients do something else between two requests, and the next
rounds do without a look.
"""

from collections.abc import Set as AbstractSet
from typing import TypeAlias

PAUSE_ROUNDS = 32  # after a look that found nothing, this number of rounds begins without one

Connections: TypeAlias = AbstractSet[object]


class SecondLook:
    """Decides whether the loop reads its sockets once more before a round is written. `here`: the connections that wait
    for the open round, or had a request in this turn.
    """

    __slots__ = ("_is_taken", "_last", "_missing", "_pause")

    def __init__(self) -> None:
        self._last: set[object] = set()  # the connections of the last round
        self._missing: set[object] = set()  # the connections for which the loop looks again
        self._is_taken = False
        self._pause = 0

    def is_wanted(self, here: Connections) -> bool:
        """Return whether the loop should read its sockets once more before it writes to the journal, at most once for
        each write.

        It should if a connection that waited for the last write has not sent anything since. After True the caller
        reads the sockets and calls this again, which then returns False.
        """
        if self._is_taken or self._pause:
            return False
        self._missing = self._last - here
        self._is_taken = bool(self._missing)
        return self._is_taken

    def round_begins(self, here: Connections) -> None:
        """Note that a round (write of the journal) begins with these connections.

        If a second look has brought none of the connections that it was for, there is no second look for the next
        PAUSE_ROUNDS rounds.
        """
        if self._is_taken:
            if self._missing.isdisjoint(here):
                self._pause = PAUSE_ROUNDS
        elif self._pause:
            self._pause -= 1
        self._last, self._missing, self._is_taken = set(here), set(), False

    def forget(self, connection: object) -> None:
        """Forget a connection that has ended."""
        self._last.discard(connection)
        self._missing.discard(connection)
