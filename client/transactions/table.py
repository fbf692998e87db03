"""The state table of a client's transaction: for each state and event the next state, or a refusal. Pure.

The rule: nothing else changes the state. A call of the user in the wrong state raises an error and changes nothing; a
response that is impossible in the state is a bug and ends the producer, because any next state would be a guess
(KAFKA-14831). Sources: Kafka's TransactionManager; KIP-98, KIP-360, KIP-890, KIP-1050.
"""

from enum import Enum, IntEnum
from typing import TypeAlias


class State(IntEnum):
    """The columns of the table."""

    UNINITIALIZED = 0
    INITIALIZING = 1
    READY = 2
    STALE = 3  # nothing is open, but a request of this epoch may still arrive: a new epoch is needed first
    IN_TRANSACTION = 4
    FLUSHING = 5  # commit was called: waiting for deliveries, EndTxn is not sent yet
    COMMITTING = 6  # EndTxn(commit) is being sent
    ABORTING = 7
    ABORTABLE_ERROR = 8  # a write or an abort failed: only an abort is possible
    UNKNOWN_OUTCOME = 9  # EndTxn(commit) was sent and got no response: never abort on this epoch
    PREPARED = 10  # only a decision that is made elsewhere ends it: this producer's, or one that its predecessor left
    FATAL = 11

    @property
    def text(self) -> str:
        return self.name.lower()


UNDER_WAY = frozenset({State.IN_TRANSACTION, State.FLUSHING, State.COMMITTING, State.ABORTING})
"""A transaction has begun and not ended."""

OPEN = frozenset({State.IN_TRANSACTION, State.FLUSHING})
"""Records, offsets or partitions may be written or added."""


class Event(IntEnum):
    """The rows of the table: first calls of the user, then what happens to the requests."""

    INIT = 0
    BEGIN = 1
    WRITE = 2  # records or offsets
    COMMIT = 3
    ABORT = 4
    INITIALIZED = 5  # InitProducerId succeeded
    NOT_INITIALIZED = 6  # InitProducerId got no response in time
    MUST_ABORT = 7  # a write of the transaction failed
    SEND_COMMIT = 8  # every write is acknowledged: EndTxn is sent
    ENDED = 9  # EndTxn succeeded, or there was nothing to end
    ENDED_STALE = 10  # the same, but a request of this epoch may still arrive
    REFUSED = 11  # EndTxn was certainly not carried out
    UNANSWERED = 12  # no response to EndTxn: it may have been carried out
    BROKEN = 13  # the producer cannot be used any more
    TAKE_OVER = 14  # InitProducerId again: once a database is claimed, or to see whether it is held still
    PREPARED = 15  # PrepareTxn succeeded
    HELD = 16  # InitProducerId was refused: a predecessor's transaction waits for its decision


class Refusal(Enum):
    """Cells that are not a next state."""

    ILLEGAL = "illegal"  # not allowed in this state: raises IllegalStateError
    FAILED = "failed"  # the transaction has failed: raises its error again
    UNKNOWN = "unknown?"  # raises CommitOutcomeUnknownError again; while the commit is being sent, IllegalStateError
    BROKEN = "broken"  # raises the error that ended the producer again
    IGNORED = "."  # too late to matter: no change
    BACK = "back"  # return to the state before INITIALIZING
    BUG = "bug"  # impossible


Cell: TypeAlias = State | Refusal

_WORDS = {
    "uninit": State.UNINITIALIZED, "init": State.INITIALIZING, "ready": State.READY, "stale": State.STALE,
    "open": State.IN_TRANSACTION, "flush": State.FLUSHING, "commit": State.COMMITTING, "abort": State.ABORTING,
    "error": State.ABORTABLE_ERROR, "unknown": State.UNKNOWN_OUTCOME, "prepared": State.PREPARED, "fatal": State.FATAL,
}  # fmt: skip

# A word of _WORDS is the next state; any other is the value of a Refusal.
_GRID = """
EVENT           uninit  init    ready   stale   open    flush   commit   abort   error   unknown  prepared fatal
INIT            init    illegal illegal init    illegal illegal illegal  illegal illegal init     failed   broken
BEGIN           illegal illegal open    illegal illegal illegal illegal  illegal failed  unknown? failed   broken
WRITE           illegal illegal illegal illegal open    illegal illegal  illegal failed  unknown? failed   broken
COMMIT          illegal illegal illegal illegal flush   illegal illegal  illegal failed  commit   failed   broken
ABORT           illegal illegal illegal illegal abort   abort   unknown? illegal abort   unknown? failed   broken
INITIALIZED     bug     ready   bug     bug     bug     bug     bug      ready   bug     bug      bug      .
NOT_INITIALIZED bug     back    bug     bug     bug     bug     bug      error   bug     bug      bug      .
MUST_ABORT      .       .       .       .       error   error   .        .       .       .        .        .
SEND_COMMIT     bug     bug     bug     bug     bug     commit  bug      bug     bug     bug      bug      .
ENDED           bug     bug     bug     bug     bug     ready   ready    ready   bug     bug      ready    .
ENDED_STALE     bug     bug     bug     bug     bug     stale   stale    stale   bug     bug      stale    .
REFUSED         bug     bug     bug     bug     bug     bug     error    error   bug     bug      bug      .
UNANSWERED      bug     bug     bug     bug     bug     bug     unknown  error   bug     bug      bug      .
BROKEN          fatal   fatal   fatal   fatal   fatal   fatal   fatal    fatal   fatal   fatal    fatal    .
TAKE_OVER       illegal illegal init    init    illegal illegal illegal  illegal illegal illegal  init     broken
PREPARED        bug     bug     bug     bug     bug     prepared bug     bug     bug     bug      bug      .
HELD            bug     prepared bug    bug     bug     bug     bug      bug     bug     bug      bug      .
"""


def _read(grid: str) -> dict[Event, tuple[Cell, ...]]:
    """Parse the table below: the first line has the states, each other line an event and its cells."""
    head, *lines = [line.split() for line in grid.strip().splitlines()]
    assert [_WORDS[word] for word in head[1:]] == list(State)
    return {Event[name]: tuple(map(_cell, words)) for name, *words in lines}


def _cell(word: str) -> Cell:
    """Return the state or the refusal that a word of the table stands for."""
    return _WORDS[word] if word in _WORDS else Refusal(word)


TABLE = _read(_GRID)


def cell(event: Event, state: State) -> Cell:
    """Return the state that follows this event in this state, or the refusal."""
    return TABLE[event][state]
