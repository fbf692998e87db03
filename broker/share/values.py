"""Plain values about share partitions: names, ranges of offsets, contents of logged records. Pure.

The first and the last offset of a range both belong to it.
Source: KIP-932.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from ...storage.journal.journal import Part


class SharePartitionKey(NamedTuple):
    """The name of a share partition: a partition of a topic, as one group reads it."""

    group: str
    topic_id: bytes
    partition: int


class State(IntEnum):
    """The state of a record in a share group.

    The numbers are Kafka's; PENDING is fencepost's own, and only in memory.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    PENDING = 10


class AckType(IntEnum):
    """How a member acknowledges a record that it has acquired."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AckRange(NamedTuple):
    """Acknowledgements of a range of offsets, both ends included. types: one for the whole range, or one for each
    offset.
    """

    first: int
    last: int
    types: Sequence[int]


class Found(NamedTuple):
    """A batch that was read. is_data: whether it has records for consumers; a control batch, an empty one or an aborted
    one has none.
    """

    first: int
    last: int
    is_data: bool = True


class Wanted(NamedTuple):
    """How many records a member asks for. exact: whether it gets at most max_records; otherwise it gets whole batches.

    batch_size: an acquired range with at least this many records ends where its batch ends.
    """

    max_records: int
    batch_size: int
    exact: bool = False


class AcquiredRange(NamedTuple):
    """A range that a member has acquired. deliveries: how often it was delivered, including this time."""

    first: int
    last: int
    deliveries: int


class StateBatch(NamedTuple):
    """The state of a range of offsets, as it is logged.

    member: in a transaction's update, the member that acknowledged the range; else empty.
    """

    first: int
    last: int
    state: State
    deliveries: int
    member: str = ""


class Update(NamedTuple):
    """A change of a share partition, as it is logged.

    start: the window's new start, or UNCHANGED. complete: how many records from there on are acknowledged or archived.
    """

    start: int
    complete: int
    batches: Sequence[StateBatch]


class Snapshot(NamedTuple):
    """The whole state of a share partition, as it is logged. epoch: grows with each snapshot. state_epoch: grows when
    an admin sets the share partition's offset.
    """

    epoch: int
    state_epoch: int
    start: int
    complete: int
    batches: Sequence[StateBatch]
    created_ms: int = 0
    written_ms: int = 0


class ShareUnit(NamedTuple):
    """Changes of share partitions as parts of a caller's unit. The caller calls apply() once that is committed."""

    parts: list[Part]
    apply: Callable[[], None]


UNCHANGED = -1


def append_or_extend(
    batches: list[StateBatch], first: int, last: int, state: State, deliveries: int, member: str = ""
) -> None:
    """Append the range with its state. If the last one is adjacent and has the same state, that one is extended
    instead.
    """
    if batches:
        begins, ends, before, given, whose = batches[-1]
        if ends + 1 == first and before is state and given == deliveries and whose == member:
            batches[-1] = StateBatch(begins, last, state, deliveries, member)
            return
    batches.append(StateBatch(first, last, state, deliveries, member))
