"""One commit over the broker and a database: what a producer, or who ends what it left, does next. Pure.

**The rule.** The row, the records and PrepareTxn, then COMMIT, then EndTxns. One row for each transactional id has the
number of its last decision and whether that was to commit. It is written by the last statement of the user's own
transaction of the database, under the condition that its number is lower and its generation the producer's own. Whoever
ends a number waits until no open transaction has changed the row. If it then finds a lower number, it writes "not
committed" there. Afterwards the condition does not hold, so nobody can commit that number. What the database did is
asked, never guessed.

PrepareTxn is sent right behind the last records, so that one sync of the broker makes records and prepared state
durable. The row is written once the records are taken, because it is locked until COMMIT. COMMIT is sent once the
answers to all three are good. Until then nothing can be committed, so the producer ends a transaction that has failed
by EndTxn(abort), whether it is prepared or not.

| step | asks | OK | NO | no answer |
|---|---|---|---|---|
| CLAIM | database: the next generation of the id | LOOK | | CLAIM |
| LOOK | broker: does a transaction wait under the key? NO: one does | INIT | CLOSE | LOOK |
| CLOSE | database: close its number, or read how it was decided. NO: a later number was | END | LOOK | CLOSE |
| END | broker: EndTxns, as the database says | LOOK | LOOK | END |
| INIT | broker: InitProducerId. NO: a transaction is held | DECIDE | LOOK | INIT |
| DECIDE | database: the row; broker: the records. NO: condition not met, or refused | PREPARE | STOPPED | STOPPED |
| PREPARE | broker: PrepareTxn with `hold`, which was sent right behind the records | COMMIT | STOPPED | PREPARE |
| COMMIT | database. NO: refused | END_OWN | CLOSE_OWN | CLOSE_OWN |
| CLOSE_OWN | as CLOSE, over a new connection | END_OWN | STOPPED | CLOSE_OWN |
| END_OWN | as END. NO: somebody ended it, and another producer goes on | DECIDE | LOOK | END_OWN |

STOPPED: nothing was decided by this producer and nothing will be; it aborts at the broker, and begins again at CLAIM,
or ends. A producer raises the generation once; at a later CLAIM it only looks, and is fenced if it finds another one:
to raise it again would stop a successor that has begun meanwhile, perhaps while this producer's process was stopped.
Whoever only ends what others left does LOOK, CLOSE and END. tests/support/models/commit_model.py runs this table in
every order of steps.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from ..values import ProducerIdentity

PREFIX = "sql:"
OWNER = "sql"
NONE_YET = -1


class Step(IntEnum):
    """The rows of the table. Steps up to END_OWN wait for an answer."""

    CLAIM = 0
    LOOK = 1
    CLOSE = 2
    END = 3
    INIT = 4
    DECIDE = 5
    PREPARE = 6
    COMMIT = 7
    CLOSE_OWN = 8
    END_OWN = 9
    STOPPED = 10


class Answer(IntEnum):
    """What a step has got as its answer: the columns of the table."""

    OK = 0
    NO = 1
    NONE = 2  # none in time; the request may still arrive


Cell: TypeAlias = tuple[Step, Answer]

_GRID = """
CLAIM      LOOK      STOPPED    CLAIM
LOOK       INIT      CLOSE      LOOK
CLOSE      END       LOOK       CLOSE
END        LOOK      LOOK       END
INIT       DECIDE    LOOK       INIT
DECIDE     PREPARE   STOPPED    STOPPED
PREPARE    COMMIT    STOPPED    PREPARE
COMMIT     END_OWN   CLOSE_OWN  CLOSE_OWN
CLOSE_OWN  END_OWN   STOPPED    CLOSE_OWN
END_OWN    DECIDE    LOOK       END_OWN
"""

TABLE: Mapping[Cell, Step] = {
    (Step[name], answer): Step[cell]
    for name, *cells in map(str.split, _GRID.strip().splitlines())
    for answer, cell in zip(Answer, cells, strict=True)
}


class Row(NamedTuple):
    """The database's row of a transactional id. number: of its last decision, NONE_YET before the first."""

    generation: int
    number: int
    committed: bool


class Waiting(NamedTuple):
    """A held transaction: the decision that it waits for (ledger key and number), and the producer id and epoch to end
    it with.
    """

    key: str
    transactional_id: str
    identity: ProducerIdentity
    number: int
    waits_for_ms: int = 0


class Standing(NamedTuple):
    """What the broker's ledger says about a key. number, committed: of its last decision; NONE_YET, False before the
    first. waiting: the transaction that waits for the next one.
    """

    number: int
    committed: bool
    waiting: Waiting | None


def ledger_key(database_id: str, transactional_id: str) -> str:
    """Return the ledger key under which this id's transactions with this database are decided."""
    return f"{PREFIX}{database_id}:{transactional_id}"


def digest_of(identity: ProducerIdentity) -> bytes:
    """Return the digest for EndTxns, which identifies the decided transaction: a repeated decision with an equal
    digest is answered as made already.
    """
    return b"%d:%d" % identity


def next_number(row: Row, standing: Standing) -> int:
    """Return the number of the next decision: one above the last that the database or the broker knows."""
    return max(row.number, standing.number) + 1


def older_database(row: Row, standing: Standing) -> str | None:
    """Return the text of an error if the database must have been restored from a backup, since it lacks a decision that
    the broker knows; None if not.

    standing: read before the row. A number gets into the ledger only after it is in the row, so the row cannot have a
    lower one.
    """
    if row.number >= standing.number:
        return None
    return (
        f"the database is older than the broker: number {standing.number} was decided there, and the database "
        f"knows {'none' if row.number < 0 else f'no number above {row.number}'}"
    )


def older_broker(row: Row, standing: Standing) -> str | None:
    """Return the text of an error if the broker must have been restored from a backup, since it lacks a decision that
    the database knows; None if not.

    standing: read after the row. A number that the database has committed is in the ledger, or its transaction still
    waits.
    """
    if standing.waiting is not None or not row.committed or row.number <= standing.number:
        return None
    return (
        f"the broker is older than the database: number {row.number} is committed there, and in the broker "
        f"{'none was decided' if standing.number < 0 else f'{standing.number} was decided last'} and nothing waits"
    )
