"""The results of a client's `state()`: immutable snapshots. Pure.

The rule: a snapshot is created by the call and costs nothing otherwise; it contains no secrets, and errors as texts.
Times are milliseconds, sizes bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .values import TopicPartition

Life = Literal["not started", "open", "closed"]
PoolLife = Literal["not started", "open", "fenced", "closed"]


@dataclass(frozen=True, slots=True)
class ConnectionSnapshot:
    """One connection of a client. broker: "host:port"; node_id: below 0 while it is not known.

    purpose: "fetch" and so on, "" for the connection of all other requests. in_flight: requests without a response.
    failures: how often in a row it was lost or could not be opened.
    """

    broker: str
    node_id: int
    purpose: str
    is_open: bool
    in_flight: int
    failures: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class AdminSnapshot:
    """An Admin. connections: the open ones, and those that were lost and not opened again."""

    connections: tuple[ConnectionSnapshot, ...]


@dataclass(frozen=True, slots=True)
class ProducerSnapshot:
    """A producer. producer_id, producer_epoch: -1 if it has none.

    transaction: "ready", "in_transaction", "committing" and so on, None without a transactional_id; transaction_age_ms,
    transaction_partitions: of the open one. buffered_batches, buffered_bytes: of records that are not acknowledged.
    in_flight: requests without a response. waiting_for_room: calls of send that wait for room. last_error: the error
    that failed the transaction, ended the producer, or keeps it from logging in again.
    """

    life: Life
    connections: tuple[ConnectionSnapshot, ...]
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    transaction: str | None
    transaction_age_ms: int | None
    transaction_partitions: frozenset[TopicPartition]
    buffered_batches: int
    buffered_bytes: int
    buffer_memory: int
    in_flight: int
    waiting_for_room: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """An assigned partition of a consumer. position: of the next record to be returned, -1 while it is not known.

    fetched_bytes: in memory. high_watermark: of the last fetch, -1 before. last_error: the error that the next read
    raises. unstable_ms: for how long an open transaction has held the group's committed offset, so that there is no
    position; 0: none does.
    """

    position: int
    is_paused: bool
    fetched_bytes: int
    high_watermark: int
    last_error: str | None
    unstable_ms: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerSnapshot:
    """A consumer. membership: "unjoined", "joining", "stable" and the like, None without a group; generation: -1
    without one.

    partitions: the assigned ones. last_error: the error that the next read raises.
    """

    life: Life
    connections: tuple[ConnectionSnapshot, ...]
    group_id: str | None
    membership: str | None
    member_id: str
    generation: int
    subscription: frozenset[str]
    partitions: Mapping[TopicPartition, PartitionSnapshot]
    last_error: str | None


class SharePartitionSnapshot(NamedTuple):
    """How many records of a partition a share consumer has acquired.

    fetched: not returned yet; returned: without an acknowledgement; unsent: acknowledged, but that is not sent;
    in_transactions: acknowledged in open transactions.
    """

    fetched: int = 0
    returned: int = 0
    unsent: int = 0
    in_transactions: int = 0


@dataclass(frozen=True, slots=True)
class ShareConsumerSnapshot:
    """A share consumer. membership: "unjoined", "joining" or "stable"; member_epoch: -1 without one.

    partitions: those that are assigned, and those of which there are records. last_error: the error that the next read
    raises.
    """

    life: Life
    connections: tuple[ConnectionSnapshot, ...]
    group_id: str
    membership: str
    member_id: str
    member_epoch: int
    subscription: frozenset[str]
    partitions: Mapping[TopicPartition, SharePartitionSnapshot]
    last_error: str | None


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """A pool of producers. taken: slots whose transaction is open, beginning or ending.

    waiting: calls that wait for a slot; producers: the existing ones, by transactional id.
    """

    life: PoolLife
    prefix: str
    size: int
    taken: int
    waiting: int
    producers: Mapping[str, ProducerSnapshot]


@dataclass(frozen=True, slots=True)
class DurationsSnapshot:
    """Durations, counted. buckets: (bound in ms, how many took at most that); the last bound is infinite."""

    count: int
    total_ms: int
    buckets: tuple[tuple[float, int], ...]


class PartitionLag(NamedTuple):
    """How far a consumer is behind: to the last stable offset, and to the high watermark, as of its last fetch.

    While it iterates over records, that is from the first of them.
    """

    to_stable: int
    to_high_watermark: int


@dataclass(frozen=True, slots=True)
class ClientMetricsSnapshot:
    """Counts since the ClientMetrics was made, over all clients that have it.

    sent_bytes: of batches, compressed. failed_records: by the class of the error. retries: batches sent again.
    transactions: committed, aborted, unknown; one that is resolved later counts again, as what it was.
    acknowledged_records: what consumers of share groups have acknowledged, also in transactions: accept, release,
    reject. failed_acknowledgements: those that the broker did not take. undecided_decisions: how often a prepared
    transaction with a database was left waiting, because the database or the broker did not answer in time.
    diverged_decisions: how often broker and database contradicted each other.
    """

    sent_records: dict[str, int]
    sent_batches: int
    sent_bytes: int
    failed_records: dict[str, int]
    retries: int
    batch_durations: DurationsSnapshot
    transactions: dict[str, int]
    transaction_durations: DurationsSnapshot
    received_records: dict[str, int]
    in_flight: int
    buffered_bytes: int
    lag: dict[TopicPartition, PartitionLag]
    acknowledged_records: dict[str, int]
    failed_acknowledgements: int
    undecided_decisions: int
    diverged_decisions: int


def error_text(error: BaseException | None) -> str | None:
    """Return the class and text of an error; None for None."""
    return None if error is None else f"{type(error).__name__}: {error}"
