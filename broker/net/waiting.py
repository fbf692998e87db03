"""Replies that are not ready yet, and fetches that wait for records to be released.

The rule: a parked fetch is looked at once when any of its logs moves, and once at its deadline; nothing else polls.
Pure: time comes in as `now_ms` (monotonic), and what an answer does is a callback. Source: Kafka's DelayedFetch and
its purgatory, whose job this is.
"""

from collections.abc import Callable, Collection, Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from ...protocol.primitives import Buffer

_STALE_ENTRIES_KEPT = 1024  # answered waiters may stay in the heap of deadlines up to this many, then it is rebuilt


class Expecting(Protocol):
    """The place of a reply that has not come yet, and that needs to know how large it may be."""

    def expect(self, size_bytes: int) -> None:
        """Note how many bytes the reply may have at most."""
        ...


NOT_YET = object()
"""Stands where an answer will be; None is an answer."""


class Parked:
    """A reply that comes later. The handler returns it at once and calls answer() when it knows.

    `answer` takes what a handler may return, or the error that it may raise (requests/dispatch.py). `cancel` is called
    when the client has gone; then nobody wants the answer any more. Once it is over it lets go of both callbacks and of
    its slot, which refer back to it: thousands of circles a second would be left to the garbage collector.
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
        """Say how large the answer may be. A connection whose expected answers are large begins no more requests."""
        self.expected_bytes = size_bytes
        if self.slot is not None:
            self.slot.expect(size_bytes)

    def answer(self, answer: object) -> None:
        """Give the answer. Only the first one counts; it is dropped if the client has gone."""
        if self.given is NOT_YET and not self.cancelled:
            self.given = answer
            on_answer, self._on_answer, self.on_cancel, self.slot = self._on_answer, None, None, None
            if on_answer is not None:
                on_answer(answer)

    def then(self, on_answer: Callable[[object], None]) -> None:
        """Call `on_answer` with the answer: now if it is there already."""
        if self.given is NOT_YET:
            self._on_answer = on_answer
        else:
            on_answer(self.given)

    def pass_on_to(self, place: "Parked") -> None:
        """Answer `place`, which has its place among the replies already, as soon as the answer is there."""
        if place.cancelled:
            self.cancel()
        place.on_cancel = self.cancel
        place.expect(self.expected_bytes)
        self.slot = place.slot
        self.then(place.answer)

    def divert(self, way: Callable[[Callable[[object], None], object], None]) -> None:
        """Pass the answer to `way`, with its receiver: for faults in tests."""
        on_answer = self._on_answer
        if on_answer is not None:
            self._on_answer = lambda answer: way(on_answer, answer)

    def cancel(self) -> None:
        """Drop the answer, since its connection has ended, and call on_cancel."""
        if self.given is NOT_YET and not self.cancelled:
            self.cancelled = True
            on_cancel, self._on_answer, self.on_cancel, self.slot = self.on_cancel, None, None, None
            if on_cancel is not None:
                on_cancel()


class Replying(Protocol):
    """The connection that the place belongs to."""

    newest_unit: int

    def count(self, size_bytes: int, /) -> None:
        """Add to the expected bytes of the connection's replies; negative to subtract."""
        ...

    def filled(self, size_bytes: int, /) -> None:
        """Count a parked reply that is ready. size_bytes: by how much it is larger than expected."""
        ...

    def abort(self) -> None:
        """Close the connection now; no waiting request is answered."""
        ...


class Slot:
    """The place of a parked reply among the replies of its connection."""

    __slots__ = ("connection", "expected_bytes", "parked", "reply", "unit")

    def __init__(self, connection: Replying, parked: Parked) -> None:
        self.connection = connection
        self.parked = parked
        self.unit = 0
        self.reply: list[Buffer] | None = None
        self.expected_bytes = 0

    def wait_for(self, parked: Parked) -> None:
        """Take the reply from this parked request from now on, instead of the former one."""
        self.parked = parked
        if parked.given is NOT_YET:
            parked.slot = self
            self.expect(parked.expected_bytes)

    def expect(self, size_bytes: int) -> None:
        """Say how large the reply may be, and count the difference for the connection."""
        self.connection.count(size_bytes - self.expected_bytes)
        self.expected_bytes = size_bytes

    def fill(self, reply: list[Buffer], unit: int) -> None:
        """Set the reply; it is sent in its turn, when `unit` is released."""
        self.reply = reply
        self.unit = unit
        self.connection.newest_unit = max(self.connection.newest_unit, unit)
        self.connection.filled(sum(map(len, reply)) - self.expected_bytes)

    def close(self) -> None:
        """Close the connection, since there will be no reply."""
        self.connection.abort()


def _answer(at_deadline: bool) -> bool:
    return True


class Waiter:
    """Something that waits for any of some logs to move, or for a deadline.

    look: called with True at the deadline, with False when a log moved; returns whether it is done waiting. At the
        deadline it must be.
    """

    __slots__ = ("deadline_ms", "logs", "look", "waiting")

    def __init__(self, logs: list[Hashable], deadline_ms: int, look: Callable[[bool], bool]) -> None:
        self.logs = logs
        self.deadline_ms = deadline_ms
        self.look = look
        self.waiting = False


class Waiting:
    """All waiters, by log and by deadline."""

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
        """Let a waiter that still waits wait for this log too."""
        if waiter.waiting:
            waiter.logs.append(log)
            self._by_log.setdefault(log, {})[waiter] = None

    def wake(self, logs: Collection[Hashable]) -> None:
        """Check the waiters of these logs, which have changed: each once, in the order of parking."""
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
        """Answer every waiter whose deadline has passed."""
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now_ms or not deadlines[0][2].waiting):
            waiter = heappop(deadlines)[2]
            if waiter.waiting:
                look = waiter.look
                self.leave(waiter)
                look(True)

    def next_deadline_ms(self) -> int | None:
        """The deadline of the first waiter; None if nothing waits."""
        deadlines = self._deadlines
        while deadlines and not deadlines[0][2].waiting:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def leave(self, waiter: Waiter) -> None:
        """Remove the waiter, answered or not. Harmless if it was removed already."""
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
        waiter.logs, waiter.look = [], _answer  # it may stay in the heap: it holds nothing
        if len(self._deadlines) > 2 * self._live + _STALE_ENTRIES_KEPT:
            self._deadlines = [entry for entry in self._deadlines if entry[2].waiting]
            heapify(self._deadlines)
