"""A simulated object store in memory, with the faults of real ones, chosen by a seed or set by a test.

The rule: an object is complete or does not exist, and only one create of a name succeeds. Everything else may go wrong
as it does at real servers: a call may fail before or after its effect, or have it later, after other calls; a listing
has any order; a deleted object may still exist; objects may be lost or damaged.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..objects import Content, Exists, Found, Missing, Refused, Unclear

ERRORS = ("the server answered 500", "the server answered 503, SlowDown", "the deadline has passed")


class StoreCut(BaseException):
    """Raised by the call at which a test simulates the end of the client process. No `except Exception` catches it."""


@dataclass
class Faults:
    """How often, from 0 to 1, the store fails in each way.

    before, after: a call raises Unclear before its effect, or after it. late: a create raises Unclear and has its
    effect some calls later. conflicts: a create raises Exists although there is no object, as S3 does by answering 409.
    keeps: a delete does nothing. reads, lists: a read or a listing raises Unclear.
    """

    before: float = 0.0
    after: float = 0.0
    late: float = 0.0
    conflicts: float = 0.0
    keeps: float = 0.0
    reads: float = 0.0
    lists: float = 0.0


class SimulatedObjects:
    """An object store in memory. content: the objects, by name. calls: what was called, in order, as (call, name)."""

    def __init__(self, seed: int = 0, faults: Faults | None = None) -> None:
        self.content: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.faults = faults or Faults()
        self.refuses = ""  # if set, every call is refused for this reason
        self.is_away = False  # if set, every call raises Unclear
        self.before_each: Callable[[str, str], None] = _nothing  # called with (call, name), may raise
        self._rng = random.Random(f"objects {seed}")
        self._late: list[tuple[int, str, bytes]] = []  # late creates: (call at which it takes effect, name, content)
        self._cut_at: tuple[int, bool] | None = None  # (number of the call, whether after its effect): see cut_at()

    @property
    def where(self) -> str:
        return "sim://bucket"

    def client(self) -> "SimulatedObjects":
        """Return the same store for another client, which cut_at() of this one does not affect."""
        other = SimulatedObjects(0, self.faults)
        other.content, other._rng = self.content, self._rng
        return other

    def cut_at(self, call: int, *, after: bool) -> None:
        """Let the client end (StoreCut) at a later call; 0 is the next one. after: after the call's effect, else
        before it.
        """
        self._cut_at = len(self.calls) + call, after

    def create(self, name: str, content: Content) -> None:
        """Create an object if none has its name. Raises Exists, and the faults that were set."""
        content = b"".join(content) if isinstance(content, list) else bytes(content)
        with self._call("create", name):
            if self._happens(self.faults.conflicts):
                raise Exists(name, "409")
            if self._happens(self.faults.late):
                self._late.append((len(self.calls) + self._rng.randint(2, 20), name, content))
                raise Unclear(name, "the deadline has passed")
            if name in self.content:
                raise Exists(name, "412")
            self.content[name] = content

    def put(self, name: str, content: bytes) -> None:
        with self._call("put", name):
            self.content[name] = bytes(content)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of an object from `start` on. Raises Missing, and the faults that were set."""
        with self._call("read", name, self.faults.reads):
            if name not in self.content:
                raise Missing(name, "there is no such object")
            return self.content[name][start : None if length is None else start + length]

    def list(self, prefix: str, after: str = "") -> list[Found]:
        """Return the objects below a prefix with names after `after`, in random order. Raises the faults that were
        set.
        """
        with self._call("list", prefix, self.faults.lists):
            found = [Found(name, len(one)) for name, one in self.content.items() if name.startswith(prefix)]
            found = [each for each in found if each.name > after]
            self._rng.shuffle(found)
            return found

    def delete(self, name: str) -> None:
        """Remove an object. Raises the faults that were set."""
        with self._call("delete", name):
            if not self._happens(self.faults.keeps):
                self.content.pop(name, None)

    # ---- what a test does to it --------------------------------------------------------------------------------

    def rot(self, name: str, position: int = -1) -> None:
        """Flip one bit of the object's byte at `position`."""
        changed = bytearray(self.content[name])
        changed[position] ^= 1
        self.content[name] = bytes(changed)

    @contextmanager
    def _call(self, call: str, name: str, unclear: float | None = None) -> Iterator[None]:
        """Surround a call: record it, and raise the errors chosen for it, before or after its effect.

        unclear: how often it raises Unclear before its effect; None: as faults.before says.
        """
        self.calls.append((call, name))
        self._carry_out_late()
        self.before_each(call, name)
        dies = self._cut_at is not None and len(self.calls) > self._cut_at[0]
        if dies and not (self._cut_at or (0, False))[1]:
            raise StoreCut
        if self.refuses:
            raise Refused(name, self.refuses, "give it the rights")
        if self.is_away or self._happens(self.faults.before if unclear is None else unclear):
            raise Unclear(name, self._rng.choice(ERRORS))
        yield
        if dies:
            raise StoreCut
        if unclear is None and self._happens(self.faults.after):
            raise Unclear(name, self._rng.choice(ERRORS))

    def _carry_out_late(self) -> None:
        """Carry out the late creates that are due, unless their names are taken."""
        due = [each for each in self._late if each[0] <= len(self.calls)]
        self._late = [each for each in self._late if each not in due]
        for _, name, content in due:
            self.content.setdefault(name, content)

    def _happens(self, chance: float) -> bool:
        """Return True with this probability."""
        return chance > 0 and self._rng.random() < chance


def _nothing(call: str, name: str) -> None:
    """Do nothing: the default of before_each."""
