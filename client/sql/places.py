"""The place of a group in each partition, as a user's database keeps it: what a batch's transaction may add. Pure.

**The rule.** One row for each group, topic id and partition has a place: the effects of the records below it are in
this database, those of the others are not. Whoever begins to read a partition claims its row (the number of claims
grows by one) and continues at its place. The transaction with the effects of a batch moves the place from where its
records begin to where they end, under the condition that claim and place are as they were found. If the condition does
not hold, it is rolled back: somebody else goes on.

The place alone makes it exactly once: of two transactions that begin at the same place only one can move it. The claim
ends the attempts of a member that does not know yet that it has lost the partition. The group's generation is not
looked at: it begins again after the group was deleted. tests/support/models/inbox_model.py runs this in every order.
"""

from typing import NamedTuple


class Key(NamedTuple):
    """The key of a row in the table of places, within its group. topic_id: 32 hexadecimal digits; the name where the
    broker has no ids (before Kafka 2.8).

    Rows are written in the order of their keys, so two transactions never wait for each other.
    """

    topic_id: str
    partition: int


class Claim(NamedTuple):
    """What a consumer knows of a row that it has claimed. number: of the claim. place: the offset of the first record
    whose effects are not in the database.

    jumps: of the PartitionState when its position was set to the place. A batch that was read after another jump,
    such as a seek, does not belong to the place.
    """

    key: Key
    number: int
    place: int
    jumps: int


class Move(NamedTuple):
    """The change of one row: claim and place as they must be, and the place afterwards."""

    key: Key
    claim: int
    place: int
    after: int


def first_new(place: int, first: int, end: int) -> int | None:
    """Return the first offset from which on the records of a batch are new to the database; None if none of them may be
    used.

    first, end: the batch's position before its first record, and after its last one. A batch that begins below the
    place comes from a consumer that was started at an older offset. One that begins above the place may not be used,
    because the records in between were not used yet.
    """
    return place if first <= place < end else None


def is_outside(place: int, log_start: int, log_end: int) -> bool:
    """Return whether a place is not in the log any more, because records there were deleted by retention or the log was
    truncated.
    """
    return not log_start <= place <= log_end
