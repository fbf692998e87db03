"""Creates rounds in an object store, several in parallel, for one loop.

The rule: a create ends with success, or with an error after which the broker halts: another broker has ended the epoch,
or the object in the store is not one that fencepost wrote. After any other answer of the store the create is repeated
without end: nothing is acknowledged meanwhile, and the journal limits the memory.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from ...effects.clock import Clock
from ...effects.disk import AsyncWriter, Buffer, Executor
from ...effects.disk.async_writer import DirectFile, Done
from ...effects.objects import ObjectsError, Refused, Unclear
from .creating import RoundCreation
from .format import LARGEST_ROUND_BYTES, WINDOW
from .journal import ObjectRound

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0

Later = Callable[[float, Callable[[], None]], object]
Trouble = Callable[[ObjectsError | None], None]


def pause_s(attempts: int) -> float:
    """Return how many seconds to wait after this many failed attempts."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempts - 1, 10))


class ObjectWriter(AsyncWriter):
    """Creates the rounds of an ObjectJournal."""

    from_bytes = 0
    largest_bytes = 2 * LARGEST_ROUND_BYTES  # a round's header and units; no round is too large
    at_once = WINDOW

    def __init__(self, executor: Executor, clock: Clock, later: Later, trouble: Trouble = lambda error: None) -> None:
        """executor: has WINDOW threads, and is used for nothing else. later(seconds, function): calls the function
        after so many seconds.

        trouble: called on the loop with the store's error when an attempt has failed and is repeated; with None when
        the attempts at a round have ended.
        """
        self._executor = executor
        self._clock = clock
        self._later = later
        self._trouble = trouble
        self._closed = False

    def begin(self, file: DirectFile, position: int, buffers: Sequence[Buffer], size_bytes: int, done: Done) -> bool:
        """Try in a worker thread to create a round, again and again until it is created or never can be. Returns False
        if the writer is closed. file: the ObjectRound, which has its own bytes; position and buffers are not used.
        """
        if self._closed:
            return False
        _Begun(self, cast(ObjectRound, file).creation, done, self._clock.monotonic_ms()).attempt()
        return True

    def close(self) -> None:
        """Make no further attempts. Whether an unfinished round was created will be found by the next owner."""
        self._closed = True

    def attempt(self, begun: "_Begun") -> None:
        """Try once to create the round, in a worker thread. begun.attempted() is called on the loop with the result."""
        if not self._closed:
            self._executor.submit(begun.creation.attempt, begun.attempted)

    def ended(self, begun: "_Begun", error: OSError | None) -> None:
        """Call the round's `done` with None (it is created) or the error, and with how many nanoseconds that took."""
        if not self._closed:
            self._trouble(None)  # attempts do not fail any more
            begun.done(error, (self._clock.monotonic_ms() - begun.began_ms) * 1_000_000)

    def failed(self, begun: "_Begun", error: ObjectsError) -> None:
        """Try to create the round again after a pause, which grows with its attempts."""
        if not self._closed:
            self._trouble(error)
            self._later(pause_s(begun.attempts), begun.attempt)


class _Begun:
    """A round that is being created, in one or more attempts."""

    def __init__(self, writer: ObjectWriter, creation: RoundCreation, done: Done, began_ms: int) -> None:
        """done: called once with None or the error, and the time it took in ns. began_ms: monotonic time."""
        self.creation = creation
        self.done = done
        self.began_ms = began_ms
        self.attempts = 0
        self._writer = writer

    def attempt(self) -> None:
        """Try once to create the round, in a worker thread of the writer."""
        self._writer.attempt(self)

    def attempted(self, result: Any) -> None:
        """Handle on the loop what an attempt returned or raised: the round is created, or has failed, or is tried
        again.
        """
        self.attempts += 1
        if result is True:
            self._writer.ended(self, None)
        elif result is False:
            self._writer.failed(self, Unclear(self.creation.name, "a create had no effect"))
        elif isinstance(result, Unclear | Refused):
            self._writer.failed(self, result)
        elif isinstance(result, OSError):
            self._writer.ended(self, result)
        else:
            error = OSError(f"{self.creation.name}: {result}")
            error.__cause__ = result
            self._writer.ended(self, error)
