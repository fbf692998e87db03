"""Replies that come later, and requests that wait for a log to change or for a deadline.

The rule: a waiting fetch is looked at when one of its logs changes, and once at its deadline; nothing polls. Pure: time
is given as `now_ms` (monotonic), and what an answer does is a callback. Source: Kafka's DelayedFetch and its purgatory,
which do the same.
"""

from collections.abc import Callable, Collection, Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from ...protocol.primitives import Buffer

_STALE_ENTRIES_KEPT = 1024  # answered waiters may stay in the heap of deadlines up to this many, then it is rebuilt


class Expecting(Protocol):
    """The place of a later reply. It is told how large the reply may become."""

    def expect(self, size_bytes: int) -> None:
        """Note how many bytes the reply may have at most."""
        ...


NOT_YET = object()
"""Stands where an answer will be; None is an answer."""


class Parked:
    """An answer that comes later. A handler returns it instead of an answer, and calls answer() when it has the answer.

    `answer` takes anything that a handler may return, or an error that it may raise (requests/dispatch.py). `cancel` is
    called when the client has disconnected. After either call it drops both callbacks and its slot, because these refer
    back to it, and the garbage collector would have thousands of reference cycles a second to collect.
    """

    __slots__ = ("_on_answer", "cancelled", "expected_bytes", "given", "on_cancel", "slot")

    def __init__(self) -> None:
        self.given: object = NOT_YET  # the answer
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None
        self._on_answer: Callable[[object], None] | None = None
        self.expected_bytes = 0
        self.slot: Expecting | None = None  # its place among the replies of its connection, once it has one

    def expect(self, size_bytes: int) -> None:
        """Set how many bytes the answer may have. While a connection's expected answers are large, no more requests are
        read from it.
        """
        self.expected_bytes = size_bytes
        if self.slot is not None:
            self.slot.expect(size_bytes)

    def answer(self, answer: object) -> None:
        """Give the answer. Only the first call has an effect; the answer is dropped if the client has disconnected."""
        if self.given is NOT_YET and not self.cancelled:
            self.given = answer
            on_answer, self._on_answer, self.on_cancel, self.slot = self._on_answer, None, None, None
            if on_answer is not None:
                on_answer(answer)

    def then(self, on_answer: Callable[[object], None]) -> None:
        """Call `on_answer` with the answer when it is given, or at once if it already was."""
        if self.given is NOT_YET:
            self._on_answer = on_answer
        else:
            on_answer(self.given)

    def pass_on_to(self, place: "Parked") -> None:
        """Pass the answer, when it is given, to `place`, another Parked that already has a place among the connection's
        replies.
        """
        if place.cancelled:
            self.cancel()
        place.on_cancel = self.cancel
        place.expect(self.expected_bytes)
        self.slot = place.slot
        self.then(place.answer)

    def divert(self, way: Callable[[Callable[[object], None], object], None]) -> None:
        """When the answer is given, call way(receiver, answer) instead of the receiver. Tests use this to inject
        faults.
        """
        on_answer = self._on_answer
        if on_answer is not None:
            self._on_answer = lambda answer: way(on_answer, answer)

    def cancel(self) -> None:
        """Drop the answer, because its client has disconnected, and call on_cancel. Does nothing after an answer."""
        if self.given is NOT_YET and not self.cancelled:
            self.cancelled = True
            on_cancel, self._on_answer, self.on_cancel, self.slot = self.on_cancel, None, None, None
            if on_cancel is not None:
                on_cancel()


class Replying(Protocol):
    """The methods of a connection that a Slot uses."""

    newest_unit: int

    def count(self, size_bytes: int, /) -> None:
        """Add to the connection's count of bytes in unsent replies; a negative number is subtracted."""
        ...

    def filled(self, size_bytes: int, /) -> None:
        """Count a parked reply that is ready now, and have it sent. size_bytes: by how much it is larger than
        expected.
        """
        ...

    def abort(self) -> None:
        """Close the connection now; no waiting request is answered."""
        ...


class Slot:
    """The place of a later reply among the replies of its connection."""

    __slots__ = ("connection", "expected_bytes", "parked", "reply", "unit")

    def __init__(self, connection: Replying, parked: Parked) -> None:
        self.connection = connection
        self.parked = parked
        self.unit = 0
        self.reply: list[Buffer] | None = None
        self.expected_bytes = 0

    def wait_for(self, parked: Parked) -> None:
        """Let this place get its reply from another parked request from now on."""
        self.parked = parked
        if parked.given is NOT_YET:
            parked.slot = self
            self.expect(parked.expected_bytes)

    def expect(self, size_bytes: int) -> None:
        """Set how many bytes the reply may have, and count the difference for the connection."""
        self.connection.count(size_bytes - self.expected_bytes)
        self.expected_bytes = size_bytes

    def fill(self, reply: list[Buffer], unit: int) -> None:
        """Set the reply. It is sent after all earlier replies of the connection, once this unit of the journal is
        durable.
        """
        self.reply = reply
        self.unit = unit
        self.connection.newest_unit = max(self.connection.newest_unit, unit)
        self.connection.filled(sum(map(len, reply)) - self.expected_bytes)

    def close(self) -> None:
        """Close the connection, since there will be no reply."""
        self.connection.abort()


def _answer(at_deadline: bool) -> bool:
    """Return True, which says that the wait is over. It replaces the `look` of a waiter whose wait has ended."""
    return True


class Waiter:
    """A request that waits until one of some logs changes, or until a deadline (monotonic ms).

    look: called with False when a log has changed, and with True at the deadline. It returns whether the wait is over;
    at the deadline it must return True.
    """

    __slots__ = ("deadline_ms", "logs", "look", "waiting")

    def __init__(self, logs: list[Hashable], deadline_ms: int, look: Callable[[bool], bool]) -> None:
        self.logs = logs
        self.deadline_ms = deadline_ms
        self.look = look
        self.waiting = False


class Waiting:
    """All waiting requests, by log and by deadline."""

    def __init__(self) -> None:
        self._by_log: dict[Hashable, dict[Waiter, None]] = {}
        self._deadlines: list[tuple[int, int, Waiter]] = []
        self._order = count()
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def park(self, waiter: Waiter) -> None:
        """Let the waiter wait for its logs, until its deadline."""
        waiter.waiting = True
        self._live += 1
        for log in waiter.logs:
            self._by_log.setdefault(log, {})[waiter] = None
        heappush(self._deadlines, (waiter.deadline_ms, next(self._order), waiter))

    def watch(self, waiter: Waiter, log: Hashable) -> None:
        """Let a waiter also wait for this log, unless its wait is over."""
        if waiter.waiting:
            waiter.logs.append(log)
            self._by_log.setdefault(log, {})[waiter] = None

    def wake(self, logs: Collection[Hashable]) -> None:
        """Call `look` of each waiter that waits for one of these logs, which have changed; once for each, in the order
        in which they began to wait.
        """
        by_log = self._by_log
        if not by_log:
            return
        due: dict[Waiter, None] = {}
        for log in logs:
            if log in by_log:
                due.update(by_log[log])
        for waiter in due:
            if waiter.waiting and waiter.look(False):
                self.leave(waiter)

    def expire(self, now_ms: int) -> None:
        """End the wait of every waiter whose deadline has passed, and call its look(True)."""
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now_ms or not deadlines[0][2].waiting):
            waiter = heappop(deadlines)[2]
            if waiter.waiting:
                look = waiter.look
                self.leave(waiter)
                look(True)

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline, in monotonic ms; None if nothing waits."""
        deadlines = self._deadlines
        while deadlines and not deadlines[0][2].waiting:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def leave(self, waiter: Waiter) -> None:
        """End a waiter's wait without a call of `look`. Does nothing if it has ended already."""
        if not waiter.waiting:
            return
        waiter.waiting = False
        self._live -= 1
        for log in waiter.logs:
            others = self._by_log.get(log)
            if others is not None:
                others.pop(waiter, None)
                if not others:
                    del self._by_log[log]
        waiter.logs, waiter.look = [], _answer  # it may stay in the heap, without references
        if len(self._deadlines) > 2 * self._live + _STALE_ENTRIES_KEPT:
            self._deadlines = [entry for entry in self._deadlines if entry[2].waiting]
            heapify(self._deadlines)
