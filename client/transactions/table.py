"""The one table of a client's transactions: in which state does what event lead where.

The rule: nothing else changes the state. A cell is the next state, or why not. What a user asks for in the wrong state
is refused and changes nothing; an answer that no state can expect is a bug, and fatal, because going on would be a
guess (KAFKA-14831). Sources: Kafka's TransactionManager; KIP-98, KIP-360, KIP-890, KIP-1050.
"""

from enum import Enum, IntEnum
from typing import TypeAlias


class State(IntEnum):
    """The columns."""

    UNINITIALIZED = 0
    INITIALIZING = 1
    READY = 2
    STALE = 3  # nothing is open, but requests of this epoch may still be on their way: a new epoch comes first
    IN_TRANSACTION = 4
    FLUSHING = 5  # a commit was asked for: deliveries are awaited, nothing of the commit was sent
    COMMITTING = 6  # EndTxn(commit) is on its way
    ABORTING = 7
    ABORTABLE_ERROR = 8  # something failed, or an abort did: only an abort leads on
    UNKNOWN_OUTCOME = 9  # EndTxn(commit) was sent and not answered: never abort on this epoch
    FATAL = 10

    @property
    def text(self) -> str:
        return self.name.lower()


UNDER_WAY = frozenset({State.IN_TRANSACTION, State.FLUSHING, State.COMMITTING, State.ABORTING})
"""A transaction was begun, and has not ended."""

OPEN = frozenset({State.IN_TRANSACTION, State.FLUSHING})
"""In which there is something to write or to add."""


class Event(IntEnum):
    """The rows: what the user asks for, then what becomes of it."""

    INIT = 0
    BEGIN = 1
    WRITE = 2  # records or offsets
    COMMIT = 3
    ABORT = 4
    INITIALIZED = 5  # an identity was given
    NOT_INITIALIZED = 6  # none was, in time
    MUST_ABORT = 7  # something of the transaction failed
    SEND_COMMIT = 8  # every write is acknowledged: EndTxn goes out
    ENDED = 9  # the end was answered, or there was nothing to end
    ENDED_STALE = 10  # so it was, but a request of this epoch may still be on its way
    REFUSED = 11  # EndTxn was certainly not carried out
    UNANSWERED = 12  # no answer to EndTxn: it may have been carried out
    BROKEN = 13  # nothing can be done with this producer any more


class Refusal(Enum):
    """Cells that are no states."""

    ILLEGAL = "illegal"  # not in this state: IllegalStateError
    FAILED = "failed"  # the transaction has failed: its error, again
    UNKNOWN = "unknown?"  # CommitOutcomeUnknownError, again
    BROKEN = "broken"  # the error that ended the producer, again
    IGNORED = "."  # it comes too late to matter
    BACK = "back"  # to the state before
    BUG = "bug"  # cannot be


Cell: TypeAlias = State | Refusal

_WORDS = {
    "uninit": State.UNINITIALIZED, "init": State.INITIALIZING, "ready": State.READY, "stale": State.STALE,
    "open": State.IN_TRANSACTION, "flush": State.FLUSHING, "commit": State.COMMITTING, "abort": State.ABORTING,
    "error": State.ABORTABLE_ERROR, "unknown": State.UNKNOWN_OUTCOME, "fatal": State.FATAL,
}  # fmt: skip

# A word of _WORDS is the next state; any other is a Refusal, by its value.
_GRID = """
EVENT           uninit  init    ready   stale   open    flush   commit   abort   error   unknown  fatal
INIT            init    illegal illegal init    illegal illegal illegal  illegal illegal init     broken
BEGIN           illegal illegal open    illegal illegal illegal illegal  illegal failed  unknown? broken
WRITE           illegal illegal illegal illegal open    illegal illegal  illegal failed  unknown? broken
COMMIT          illegal illegal illegal illegal flush   illegal illegal  illegal failed  commit   broken
ABORT           illegal illegal illegal illegal abort   abort   unknown? illegal abort   unknown? broken
INITIALIZED     bug     ready   bug     bug     bug     bug     bug      ready   bug     bug      .
NOT_INITIALIZED bug     back    bug     bug     bug     bug     bug      error   bug     bug      .
MUST_ABORT      .       .       .       .       error   error   .        .       .       .        .
SEND_COMMIT     bug     bug     bug     bug     bug     commit  bug      bug     bug     bug      .
ENDED           bug     bug     bug     bug     bug     ready   ready    ready   bug     bug      .
ENDED_STALE     bug     bug     bug     bug     bug     stale   stale    stale   bug     bug      .
REFUSED         bug     bug     bug     bug     bug     bug     error    error   bug     bug      .
UNANSWERED      bug     bug     bug     bug     bug     bug     unknown  error   bug     bug      .
BROKEN          fatal   fatal   fatal   fatal   fatal   fatal   fatal    fatal   fatal   fatal    .
"""


def _read(grid: str) -> dict[Event, tuple[Cell, ...]]:
    head, *lines = [line.split() for line in grid.strip().splitlines()]
    assert [_WORDS[word] for word in head[1:]] == list(State)
    return {Event[name]: tuple(map(_cell, words)) for name, *words in lines}


def _cell(word: str) -> Cell:
    return _WORDS[word] if word in _WORDS else Refusal(word)


TABLE = _read(_GRID)


def cell(event: Event, state: State) -> Cell:
    """What becomes of the event."""
    return TABLE[event][state]
