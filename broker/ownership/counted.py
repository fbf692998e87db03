"""Counts the calls to an object store and how long they take, and knows since when the store has not answered.

The rule: counting does not change any answer. Calls come from several threads, so a lock protects the counters.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from ...effects.clock import Clock
from ...effects.objects import Content, Exists, Found, Missing, Objects, Refused
from ..metrics import Histogram

T = TypeVar("T")
DONE, EXISTS, MISSING, UNCLEAR, REFUSED = "done", "exists", "missing", "unclear", "refused"
"""How a call ended. UNCLEAR and REFUSED: the store did not do what it was asked."""
AWAITED = ("create", "read", "list")  # calls that a broker cannot go on without
# The kind of a call by the folder of the name that it is for.
KINDS = {
    "owners": "claim",
    "journal": "round",
    "parts": "part",
    "points": "point",
    "standbys": "standby",
}


class CountedObjects(Objects):
    """An object store. It counts its calls by (call, kind of object)."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self._lock = threading.Lock()
        self._out = dict.fromkeys(AWAITED, 0)  # calls that have not ended
        self._since_ms: dict[str, int] = {}  # when those began to wait that have no answer yet, by call
        self._took_ns: dict[tuple[str, ...], Histogram] = {}
        self._endings: dict[tuple[str, ...], int] = {}

    @property
    def where(self) -> str:
        return self._objects.where

    def create(self, name: str, content: Content) -> None:
        """Create an object if none has its name. Raises Exists, Unclear, Refused."""
        self._counted("create", name, lambda: self._objects.create(name, content))

    def put(self, name: str, content: bytes) -> None:
        """Create an object, or replace it. Raises Unclear, Refused."""
        self._counted("put", name, lambda: self._objects.put(name, content))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of an object from `start` on (None: all). Raises Missing, Unclear, Refused."""
        return self._counted("read", name, lambda: self._objects.read(name, start, length))

    def list(self, prefix: str, after: str = "") -> list[Found]:
        """Return the objects below a prefix with names after `after`. Raises Unclear, Refused."""
        return self._counted("list", prefix, lambda: self._objects.list(prefix, after))

    def delete(self, name: str) -> None:
        """Remove an object. Raises Unclear, Refused."""
        self._counted("delete", name, lambda: self._objects.delete(name))

    def durations(self) -> dict[tuple[str, ...], Histogram]:
        """Return how long calls took (a histogram of ns), by (call, kind of object)."""
        with self._lock:
            return {labels: taken.copy() for labels, taken in self._took_ns.items()}

    def endings(self) -> dict[tuple[str, ...], int]:
        """Return how many calls have ended, by (call, kind of object, how they ended)."""
        with self._lock:
            return dict(self._endings)

    def silent_ms(self) -> int:
        """Return for how many ms the broker has waited for an answer of the store that it needs; 0 if it waits for
        none.

        It waits while a call of a needed kind is unanswered, or while all calls of that kind have ended with errors.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            return max((now_ms - since_ms for since_ms in self._since_ms.values()), default=0)

    def _counted(self, call: str, name: str, make: Callable[[], T]) -> T:
        """Make a call; count how it ended and how long it took. name: the object's name, or the prefix to list."""
        began_ns = self._clock.work_ns()
        self._begins(call)
        answer = UNCLEAR
        try:
            result = make()
            answer = DONE
            return result
        except Exists:
            answer = EXISTS
            raise
        except Missing:
            answer = MISSING
            raise
        except Refused:
            answer = REFUSED
            raise
        finally:
            self._ended(call, name, answer, self._clock.work_ns() - began_ns)

    def _begins(self, call: str) -> None:
        """Note that a call begins."""
        if call in self._out:
            with self._lock:
                self._out[call] += 1
                self._since_ms.setdefault(call, self._clock.monotonic_ms())

    def _ended(self, call: str, name: str, answer: str, took_ns: int) -> None:
        """Count a call that has ended. If the store has answered it, be it that the object exists or is missing,
        unanswered calls of the same kind count as waiting only from now on. A created object proves that the store
        works: after it, no call counts as waiting unless it is unanswered.
        """
        kind = KINDS.get(name.partition("/")[2].partition("/")[0], "other")
        with self._lock:
            self._took_ns.setdefault((call, kind), Histogram()).add(took_ns)
            self._endings[call, kind, answer] = self._endings.get((call, kind, answer), 0) + 1
            if call not in self._out:
                return
            self._out[call] -= 1
            if answer in (UNCLEAR, REFUSED):
                return
            # An owner does not repeat a failed listing at once, so the kind would count as waiting until the next one.
            answered = AWAITED if call == "create" else (call,)
            for each in answered:
                if not self._out[each]:
                    self._since_ms.pop(each, None)
            if self._out[call]:
                self._since_ms[call] = self._clock.monotonic_ms()
