"""What is said of share partitions: their names, ranges of offsets, and what is logged of them. Pure.

Offsets of a range are both inside. Source: KIP-932.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class SharePartitionKey(NamedTuple):
    """The name of a share partition: a partition of a topic, as one group reads it."""

    group: str
    topic_id: bytes
    partition: int


class State(IntEnum):
    """What a record is to a share group. The numbers are Kafka's; PENDING is ours, and only in memory."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    PENDING = 10


class AckType(IntEnum):
    """What a member says of a record that it has acquired."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AckRange(NamedTuple):
    """One batch of acknowledgements. types: one for the whole range, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]


class Found(NamedTuple):
    """A batch that was read. is_data: whether anybody is to see it: no control batch, not empty, not aborted."""

    first: int
    last: int
    is_data: bool = True


class Wanted(NamedTuple):
    """How much a member asks for. exact: never more than max_records; else batches are not torn.

    batch_size: from how many records on a range is ended with its batch.
    """

    max_records: int
    batch_size: int
    exact: bool = False


class AcquiredRange(NamedTuple):
    """Records that are a member's, and how often they were given out, this time included."""

    first: int
    last: int
    deliveries: int


class StateBatch(NamedTuple):
    """The state of a range, as it is logged. member: who made it pending, in a transaction's update."""

    first: int
    last: int
    state: State
    deliveries: int
    member: str = ""


class Update(NamedTuple):
    """A change of a share partition, as it is logged.

    start: where its window begins from now on; UNCHANGED if that is as before. complete: how many records from there on
    are acknowledged or archived.
    """

    start: int
    complete: int
    batches: Sequence[StateBatch]


class Snapshot(NamedTuple):
    """All of a share partition, as it is logged. state_epoch: grows when somebody sets its offset."""

    epoch: int
    state_epoch: int
    start: int
    complete: int
    batches: Sequence[StateBatch]
    created_ms: int = 0
    written_ms: int = 0


UNCHANGED = -1
