"""How many connections and event streams there may be, in all and for one address. Pure.

The rule: a client that opens many connections blocks nobody else. If there is no room, the connection that has waited
longest for its next request is closed: one of the same address if there is one, else one of any address. A connection
whose request is being answered is never closed; if all are being answered, the new connection is refused. Addresses are
counted as in tries.py.
"""

from collections import Counter, OrderedDict
from typing import Generic, TypeVar

from .problems import TOO_MANY, Problem
from .tries import counted_as

MAX_CONNECTIONS = 800  # below the 1,024 open files that a process usually may have
MAX_CONNECTIONS_OF_ADDRESS = 600
MAX_STREAMS = 500
MAX_STREAMS_OF_ADDRESS = 400  # of those who come through one proxy, too

K = TypeVar("K")


class ConnectionLimits(Generic[K]):
    """Counts open connections, each by a key, and notes the state of each: new, in a request, or waiting for the
    next.
    """

    def __init__(self, most: int = MAX_CONNECTIONS, most_of_address: int = MAX_CONNECTIONS_OF_ADDRESS) -> None:
        self._most, self._most_of_address = most, most_of_address
        self._addresses: dict[K, str] = {}
        self._counts: Counter[str] = Counter()
        self._waiting: OrderedDict[K, None] = OrderedDict()  # not in a request; the one idle for longest first
        self._new: set[K] = set()  # no request came yet

    def __len__(self) -> int:
        return len(self._addresses)

    def open(self) -> list[K]:
        """Return the keys of all open connections."""
        return list(self._addresses)

    def admit(self, key: K, address: str) -> list[K] | None:
        """Count a new connection. Returns the connections to close for it: at a limit, the one that has waited longest
        for its next request. Returns None, and does not count it, if no connection can be closed: then it is refused.
        """
        counted = counted_as(address)
        closed: list[K] = []
        if self._counts[counted] >= self._most_of_address:
            victim = next((each for each in self._waiting if self._addresses[each] == counted), None)
            if victim is None:
                return None
            closed.append(victim)
        elif len(self) >= self._most:
            if not self._waiting:
                return None
            closed.append(next(iter(self._waiting)))
        for each in closed:
            self.remove(each)
        self._addresses[key] = counted
        self._counts[counted] += 1
        self._waiting[key] = None
        self._new.add(key)
        return closed

    def begin(self, key: K) -> None:
        """Note that a request has arrived on the connection."""
        self._waiting.pop(key, None)
        self._new.discard(key)

    def wait(self, key: K) -> None:
        """Note that the request is answered and the connection waits for the next. The answer may still be on
        its way.
        """
        if key in self._addresses:
            self._waiting[key] = None

    def is_new(self, key: K) -> bool:
        """Return whether no request has arrived on the connection yet."""
        return key in self._new

    def remove(self, key: K) -> None:
        """Note that the connection is closed."""
        counted = self._addresses.pop(key, None)
        if counted is not None:
            _less(self._counts, counted)
        self._waiting.pop(key, None)
        self._new.discard(key)


class StreamLimits:
    """Counts the open event streams, in all and by client address."""

    def __init__(self, most: int = MAX_STREAMS, most_of_address: int = MAX_STREAMS_OF_ADDRESS) -> None:
        self._most, self._most_of_address = most, most_of_address
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._counts.total()

    def add(self, address: str) -> None:
        """Count one more event stream of this address. Raises Problem, and does not count it, if there are too many."""
        counted = counted_as(address)
        if len(self) >= self._most:
            raise Problem(TOO_MANY, f"{self._most} event streams are open", "close a tab")
        if self._counts[counted] >= self._most_of_address:
            hint = "close a tab; clients behind one proxy are one address"
            raise Problem(TOO_MANY, f"{self._most_of_address} event streams of this address are open", hint)
        self._counts[counted] += 1

    def remove(self, address: str) -> None:
        """Note that an event stream of this address has ended."""
        _less(self._counts, counted_as(address))


def _less(counts: Counter[str], counted: str) -> None:
    """Subtract one from the count of an address. A count of 0 is removed."""
    counts[counted] -= 1
    if not counts[counted]:
        del counts[counted]  # else each address that ever connected would stay here
