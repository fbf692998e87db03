"""A relay from an outbox table into topics: why each row is sent once, in which order, and where a relay goes on. Pure.

**The rule.** A row is gone from the table, or marked, only when its record is in the log for good, and what was sent is
known wherever the next relay begins. No way trusts the row's position to say what was sent: positions are taken before
the commit, so a lower one may appear late, or never.

| way | exactly once by | steps of a life | steps of a batch |
|---|---|---|---|
| HOLD | rows are deleted in the commit that the records are in | START | TAKE SEND COMMIT |
| NAMES | seq is the sequence of a named producer | START | NUMBER READ SEND FORGET |
| OFFSETS | seq is an offset, committed with the records | START PLACE (FIRST) FORGET | NUMBER READ SEND COMMIT FORGET |

START fences the relay before this one, and ends what it left. PLACE reads which seq was sent last, FIRST commits place
0 where there is none. TAKE begins a transaction of the database, and deletes the first rows in it. READ finds the rows
above the place, FORGET deletes what was sent. NUMBER gives visible rows without a seq the next ones, in the order of
their positions, under the lock of the relay's row in the database. So seq grows as rows appear, and nothing can appear
below one that was seen. After any failure the relay is at START again, as after a restart; only one that was fenced by
a newer relay ends.
**Order of a key.** If one row was inserted after another was committed, whoever sees it sees the other too, with a
lower position. tests/support/models/outbox_model.py runs these steps in every order, with kills.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Way(Enum):
    """How a row is sent exactly once. The value is what users call it."""

    HOLD = "hold"
    NAMES = "names"
    OFFSETS = "offsets"


class Row(NamedTuple):
    """A row of the outbox. seq: 0 where there is none yet. topic: None for the relay's own."""

    position: int
    seq: int
    topic: str | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


class Place(NamedTuple):
    """What the broker keeps of a relay. seq: of the row that was sent last. home: of which table in which database the
    row is.
    """

    seq: int
    home: str


class PlaceRefused(Exception):
    """The place and the table contradict each other. hint: what to do about it."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.hint = hint


def in_order(way: Way, rows: Iterable[Row]) -> list[Row]:
    """Return the rows in the order in which they are sent. A database returns deleted rows in any order."""
    return sorted(rows, key=lambda row: row.position if way is Way.HOLD else row.seq)


def begin_at(kept: Place | None, last: int, home: str, resume_at: int | None = None) -> int | None:
    """Return the number (seq) of the last row that was sent; None if there is none yet, so that step FIRST has to
    commit 0.

    kept: what the broker has. last: the highest seq that the database has given. home: which table of which database
    this is. resume_at: what the operator says instead. Raises PlaceRefused if these contradict each other.
    """
    if resume_at is not None:
        if not 0 <= resume_at <= last:
            raise PlaceRefused(
                f"no row has the number {resume_at}: the last one is {last}", f"--resume-at takes 0 to {last}"
            )
        return resume_at
    if kept is None:
        if last == 0:
            return None
        raise PlaceRefused(
            f"the broker has no place of this relay, and rows up to number {last} were sent or are about to be",
            "its offset expired, its group or topic was deleted, or the broker is another one: compare the topic with "
            "the table, and say --resume-at with the number of the last row that was sent",
        )
    if kept.home != home:
        raise PlaceRefused(
            f"the place of this relay belongs to {kept.home or 'something else'}, not to {home}",
            "give each relay a --name of its own; after a move of the database, say --resume-at",
        )
    if kept.seq > last:
        raise PlaceRefused(
            f"the database is older than the broker: row number {kept.seq} was sent, and the last one here is {last}",
            f"it was restored from a backup: its rows with a number were sent; say --resume-at {last} to go on",
        )
    return kept.seq
