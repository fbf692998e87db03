"""The table of all transaction decisions: for each state (column) and event (row), the action or the error.

The rule: an event is looked up here after its producer id and epoch were found to be the current ones (or, for a retry,
those before them). Nothing else decides. A cell is either an error code, which changes nothing (NONE means success,
because the state is already reached), or the action to do. Sources: Kafka's TransactionCoordinator; KIP-98, KIP-360,
KIP-890 with its table of EndTxn retries; KIP-588.
"""

from enum import Enum, IntEnum
from typing import TypeAlias

from ....protocol.errors import ErrorCode
from .transaction import Status, Transaction


class State(IntEnum):
    """The columns of the table: the states of a transactional id.

    HELD: prepared with a hold, so that only its decision ends it. A Dead id counts as UNKNOWN. PREPARE_EPOCH_FENCE,
    which no broker logs, counts as PREPARE_ABORT.
    """

    UNKNOWN = 0
    EMPTY = 1
    ONGOING = 2
    PREPARED = 3
    HELD = 4
    PREPARE_COMMIT = 5
    PREPARE_ABORT = 6
    COMPLETE_COMMIT = 7
    COMPLETE_ABORT = 8


class Event(IntEnum):
    """The rows of the table. `_RETRY`: the request has the producer id and epoch that the last bump replaced."""

    INIT = 0  # InitProducerId of somebody new, or (KIP-360) with the current id and epoch
    INIT_RETRY = 1
    INIT_STALE = 2  # with an id or epoch that is neither
    ADD = 3  # AddPartitionsToTxn, AddOffsetsToTxn, and what TV2 adds by itself
    VERIFY = 4  # may it write to a partition that is not known to be its own?
    COMMIT_V1 = 5  # EndTxn up to version 4
    ABORT_V1 = 6
    COMMIT_V2 = 7  # EndTxn from version 5 on
    ABORT_V2 = 8
    COMMIT_V2_RETRY = 9
    ABORT_V2_RETRY = 10
    PREPARE = 11  # PrepareTxn
    DECIDE_COMMIT = 12  # EndTxns
    DECIDE_ABORT = 13
    TIMEOUT = 14
    FORCE_ABORT = 15  # an admin ends it


class Action(Enum):
    """What the coordinator does for a cell of the table. "bump": the producer gets a new epoch (or a new producer id,
    if its epochs are used up).
    """

    CREATE = "create"  # a new id: a new producer id, epoch 0
    BUMP = "bump"  # the next epoch, nothing open
    SAME = "same"  # nothing open, at the epoch it has
    ABORT_AND_BEGIN = "abort+begin"  # what is open is aborted and fenced in the same unit; then as `same`
    OPEN = "open"  # a transaction begins with these partitions
    GROW = "grow"  # these partitions as well; nothing to log if they are there
    CHECK = "check"  # success if the partition is there, else INVALID_TXN_STATE
    COMMIT = "commit"
    ABORT = "abort"
    COMMIT_AND_BUMP = "commit+bump"
    ABORT_AND_BUMP = "abort+bump"
    ABORT_NOTHING = "abort-none"  # there is nothing to mark, but the epoch moves as with any abort
    PREPARE = "prepare"  # it waits for the decision
    PREPARE_AGAIN = "again"  # success if it is the same, else INVALID_TXN_STATE


Cell: TypeAlias = ErrorCode | Action

# A number is an error code: 0 success, nothing is changed; 48 INVALID_TXN_STATE; 49 INVALID_PRODUCER_ID_MAPPING;
# 51 CONCURRENT_TRANSACTIONS; 90 PRODUCER_FENCED. A word is an Action.
_GRID = """
EVENT           UNKNOWN EMPTY      ONGOING     PREPARED    HELD        PREPARE_COMMIT PREPARE_ABORT COMPLETE_COMMIT COMPLETE_ABORT
INIT            create  bump       abort+begin abort+begin 51          51             51            bump            bump
INIT_RETRY      create  same       90          90          51          51             51            same            same
INIT_STALE      create  90         90          90          51          51             51            90              90
ADD             49      open       grow        48          48          51             51            open            open
VERIFY          49      48         check       48          48          51             51            48              48
COMMIT_V1       49      48         commit      commit+bump commit+bump 51             48            0               48
ABORT_V1        49      48         abort       abort+bump  abort+bump  48             51            48              0
COMMIT_V2       49      48         commit+bump commit+bump commit+bump 90             90            48              48
ABORT_V2        49      abort-none abort+bump  abort+bump  abort+bump  90             90            abort-none      abort-none
COMMIT_V2_RETRY 49      90         90          90          90          51             48            0               48
ABORT_V2_RETRY  49      90         90          90          90          48             51            48              0
PREPARE         49      48         prepare     again       again       51             51            48              48
DECIDE_COMMIT   49      48         48          commit+bump commit+bump 51             51            48              48
DECIDE_ABORT    49      48         48          abort+bump  abort+bump  51             51            48              48
TIMEOUT         0       0          abort+bump  abort+bump  abort+bump  0              0             0               0
FORCE_ABORT     0       0          abort+bump  abort+bump  48          51             51            0               0
"""  # noqa: E501


def _read(grid: str) -> dict[Event, tuple[Cell, ...]]:
    """Parse the table's text: a row for each event, a cell for each state."""
    head, *lines = [line.split() for line in grid.strip().splitlines()]
    assert [State[name] for name in head[1:]] == list(State)
    return {Event[name]: tuple(_cell(word) for word in words) for name, *words in lines}


def _cell(word: str) -> Cell:
    """Return the error code (a number) or the action that a word in the table's text stands for."""
    return _CODES[int(word)] if word.isdigit() else Action(word)


_CODES = {int(code): code for code in ErrorCode}
TABLE = _read(_GRID)

_STATES = {
    Status.EMPTY: State.EMPTY,
    Status.ONGOING: State.ONGOING,
    Status.PREPARE_COMMIT: State.PREPARE_COMMIT,
    Status.PREPARE_ABORT: State.PREPARE_ABORT,
    Status.COMPLETE_COMMIT: State.COMPLETE_COMMIT,
    Status.COMPLETE_ABORT: State.COMPLETE_ABORT,
    Status.DEAD: State.UNKNOWN,
    Status.PREPARE_EPOCH_FENCE: State.PREPARE_ABORT,
}


def state_of(txn: Transaction | None) -> State:
    """Return the column of the table for a transactional id's state; UNKNOWN if txn is None."""
    if txn is None:
        return State.UNKNOWN
    if txn.prepared is not None:
        return State.HELD if txn.prepared.hold else State.PREPARED
    return _STATES[txn.status]


def answer(event: Event, txn: Transaction | None) -> Cell:
    """Return the cell of the table for an event in the id's state: the action to do, or the error to answer."""
    return TABLE[event][state_of(txn)]
