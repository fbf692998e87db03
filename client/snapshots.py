"""What `state()` of a client gives: in which state it is at one moment, as values that do not change. Pure.

The rule: a snapshot is made when it is asked for and costs nothing otherwise; it has no secrets, and errors are texts.
Times are milliseconds, sizes bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .values import TopicPartition

Life = Literal["not started", "open", "closed"]
PoolLife = Literal["not started", "open", "fenced", "closed"]


@dataclass(frozen=True, slots=True)
class ConnectionSnapshot:
    """broker: "host:port"; node_id: below 0 while it is not known which it is. purpose: "fetch" and so on, "" for what
    needs none of its own. in_flight: requests without an answer. failures: in a row, lost or not opened.
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
    """connections: those there are, and those that were lost and not opened again."""

    connections: tuple[ConnectionSnapshot, ...]


@dataclass(frozen=True, slots=True)
class ProducerSnapshot:
    """producer_id, producer_epoch: -1 while there are none. transaction: "ready", "in_transaction", "committing" and so
    on, None without a transactional_id; its age and partitions while one is open. buffered_batches, buffered_bytes: of
    records that are not acknowledged. in_flight: requests with such. waiting_for_room: calls of send that wait.
    last_error: what spoiled the transaction, or ended the producer.
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
    """position: of the next record that is given, -1 while it is not known; fetched_bytes: what lies here already;
    high_watermark: as of the last fetch, -1 before; last_error: what the next read raises.
    """

    position: int
    is_paused: bool
    fetched_bytes: int
    high_watermark: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class ConsumerSnapshot:
    """membership: "unjoined", "joining", "stable" and the like, None without a group; generation: -1 in none.
    partitions: those that are assigned. last_error: what the next read raises.
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


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """taken: transactions that are open, or being begun or ended; waiting: who waits for a slot; producers: those there
    are, by transactional id.
    """

    life: PoolLife
    prefix: str
    size: int
    taken: int
    waiting: int
    producers: Mapping[str, ProducerSnapshot]


def error_text(error: BaseException | None) -> str | None:
    """An error as a text."""
    return None if error is None else f"{type(error).__name__}: {error}"
