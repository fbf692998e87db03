"""Reads records, offsets and transactions of a broker, for assertions.

The rule: it implements the protocol (KIP-98) independently of the SDK, so that each checks the other.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..client.records.isolation import AbortedFilter
from ..client.settings import LEAST_DECOMPRESSED_LIMIT
from ..client.values import CREATE_TIME, LOG_APPEND_TIME, OffsetAndMetadata, Record, TopicPartition
from ..protocol.batches import Batch, walk
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.fetch import FetchRequest
from ..protocol.messages.offsets import ListOffsetsRequest, OffsetFetchRequest
from ..protocol.messages.share_offsets import DescribeShareGroupOffsetsRequest
from ..protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ..protocol.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from ..protocol.records import records
from .asking import GROUP, TRANSACTION, Asker, Line, Login, check

Isolation = Literal["read_committed", "read_uncommitted"]
Place = TopicPartition | tuple[str, int] | str
"""A partition; the name of a topic alone means its partition 0."""

WITH_NAMES = 12  # the last version of Fetch that names topics
LATEST, EARLIEST = -1, -2
FETCH_BYTES = 8 << 20
READ_COMMITTED = 1


class Attempt(NamedTuple):
    """One transaction of one producer, as one partition shows it. number: how many of the producer's transactions
    ended in this partition before.

    A record without a transaction has an Attempt of its own: producer_id -1, and its offset as the number.
    """

    partition: int
    producer_id: int
    number: int


@dataclass(frozen=True, slots=True)
class TransactionSeen:
    """One transactional id, as described by its coordinator."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


class Observed:
    """Methods that read a broker's records, offsets and transactions; a subclass provides the broker's address."""

    if TYPE_CHECKING:

        @property
        def bootstrap_servers(self) -> str: ...

    _login: Login | None = None
    """The login of a super user; None if the broker requires no login."""

    def _asker(self) -> Asker:
        """Return new connections to the broker, logged in as a super user if it has users."""
        return Asker(self.bootstrap_servers, login=self._login)

    def records(self, topic: str, isolation: Isolation = "read_committed") -> list[Record]:
        """Return all records of a topic that a reader of this isolation level gets, by partition and offset."""
        return [record for record, _, _ in self._read_attempts(topic, isolation)]

    def _read_attempts(self, topic: str, isolation: Isolation) -> list[tuple[Record, Attempt, int]]:
        """Return each record with its Attempt and its sequence number. Raises ValueError for an unknown isolation."""
        if isolation not in ("read_committed", "read_uncommitted"):
            raise ValueError(f"isolation must be read_committed or read_uncommitted, not {isolation!r}")
        committed = isolation == "read_committed"
        with self._asker() as asker:
            return [
                found
                for partition, leader in asker.leaders(topic).items()
                for found in _read(leader, TopicPartition(topic, partition), committed)
            ]

    def hw(self, place: Place) -> int:
        """Return the partition's high watermark: the offset after the last readable record. place: a topic, for its
        partition 0, or (topic, partition).
        """
        return self._offset(place, LATEST, committed=False)

    def lso(self, place: Place) -> int:
        """Return the partition's last stable offset: the offset at which a read_committed reader stops for now."""
        return self._offset(place, LATEST, committed=True)

    def start_offset(self, place: Place) -> int:
        """Return the partition's first offset that is not deleted."""
        return self._offset(place, EARLIEST, committed=False)

    def _offset(self, place: Place, timestamp: int, *, committed: bool) -> int:
        """Return the offset that the partition's leader has for this timestamp, or for EARLIEST or LATEST. committed:
        as a read_committed reader sees it. Raises KafkaError.
        """
        at = _partition(place)
        with self._asker() as asker:
            leaders = asker.leaders(at.topic)
            if at.partition not in leaders:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(at))
            return _list_offset(leaders[at.partition], at, timestamp, committed)

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offset of each partition of a group, without those in open transactions."""
        with self._asker() as asker:
            asked = OffsetFetchRequest(group_id=group, topics=None)
            response = asker.coordinator(GROUP, group).ask(asked, cap=7)
        check(response.error_code, f"group {group}")
        return {
            TopicPartition(topic.name, part.partition_index): OffsetAndMetadata(
                part.committed_offset, part.metadata or "", part.committed_leader_epoch
            )
            for topic in response.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }

    def share_lag(self, group: str) -> dict[TopicPartition, int]:
        """Return for each partition how many records a share group has not finished, including those that are
        delivered to a member or acknowledged in an open transaction.
        """
        with self._asker() as asker:
            asked = DescribeShareGroupOffsetsRequest.Group(group_id=group, topics=None)
            line = asker.coordinator(GROUP, group)
            (found,) = line.ask(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
        check(found.error_code, f"share group {group}")
        return {
            TopicPartition(topic.topic_name, part.partition_index): part.lag
            for topic in found.topics
            for part in topic.partitions
            if part.start_offset >= 0
        }

    def transactions(self) -> list[TransactionSeen]:
        """Return the state of every transactional id that the brokers know."""
        with self._asker() as asker:
            return _transactions(asker)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, without internal topics."""
        with self._asker() as asker:
            found = asker.metadata().topics
        return {topic.name: len(topic.partitions) for topic in found if not topic.is_internal}

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> str:
        """Create a topic; configs are Kafka's, with `_` for `.`. Returns its name."""
        row = CreateTopicsRequest.Topic.Config
        given = [row(name=key.replace("_", "."), value=_text(value)) for key, value in configs.items()]
        topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1, configs=given)
        with self._asker() as asker:
            response = asker.controller().ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        check(response.topics[0].error_code, response.topics[0].error_message or name)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises KafkaError if the broker refuses."""
        with self._asker() as asker:
            asked = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
            response = asker.controller().ask(asked, cap=5)
        check(response.responses[0].error_code, name)


def _partition(place: Place) -> TopicPartition:
    """Convert a topic name, which stands for partition 0, or a (topic, partition) pair."""
    return TopicPartition(place, 0) if isinstance(place, str) else TopicPartition(*place)


def _text(value: object) -> str:
    """Return the value of a config as Kafka writes it: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _list_offset(leader: Line, at: TopicPartition, timestamp: int, committed: bool) -> int:
    """Return the offset for a timestamp, or for the special value EARLIEST or LATEST."""
    part = ListOffsetsRequest.Topic.Partition(partition_index=at.partition, timestamp=timestamp)
    topic = ListOffsetsRequest.Topic(name=at.topic, partitions=[part])
    response = leader.ask(ListOffsetsRequest(isolation_level=int(committed), topics=[topic]))
    (found,) = response.topics[0].partitions
    check(found.error_code, str(at))
    return int(found.offset)


def _read(leader: Line, at: TopicPartition, committed: bool) -> Iterator[tuple[Record, Attempt, int]]:
    """Yield the partition's records up to its current end, each with the transaction attempt that wrote it and its
    sequence number. committed: only what a read_committed reader gets. Raises KafkaError.
    """
    ended: Counter[int] = Counter()
    offset = _list_offset(leader, at, EARLIEST, False)
    end = _list_offset(leader, at, LATEST, committed)
    while offset < end:
        part = _fetch(leader, at, offset, committed)
        aborted = part.aborted_transactions if committed else None
        isolation = AbortedFilter((one.producer_id, one.first_offset) for one in aborted or ())
        batches = list(walk(memoryview(b"".join(part.records or ()))))
        if not batches:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"{at}: no record at offset {offset}, though the end is {end}"
            )
        for batch in _visible(batches, isolation, ended):
            for record in records(batch, limit=LEAST_DECOMPRESSED_LIMIT):
                if offset <= record.offset < end:
                    of = (
                        (batch.producer_id, ended[batch.producer_id]) if batch.is_transactional else (-1, record.offset)
                    )
                    sequence = batch.base_sequence + record.offset - batch.base_offset
                    yield _record(at, batch, record), Attempt(at.partition, *of), sequence
        offset = batches[-1].next_offset


def _fetch(leader: Line, at: TopicPartition, offset: int, committed: bool) -> Any:
    """Fetch once from this offset on and return the partition's part of the response. Raises KafkaError."""
    part = FetchRequest.Topic.Partition(partition=at.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    asked = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        isolation_level=int(committed),
        session_epoch=-1,
        topics=[FetchRequest.Topic(topic=at.topic, partitions=[part])],
    )
    response = leader.ask(asked, cap=WITH_NAMES)
    check(response.error_code, str(at))
    (found,) = response.responses[0].partitions
    check(found.error_code, str(at))
    return found


def _visible(batches: list[Batch], isolation: AbortedFilter, ended: "Counter[int]") -> Iterator[Batch]:
    """Yield the batches that a reader sees. ended: number of markers passed, by producer id; updated here."""
    for batch in batches:
        if batch.is_control:
            ended[batch.producer_id] += 1
        if not isolation.hides(batch):
            yield batch


def _record(at: TopicPartition, batch: Batch, record: Any) -> Record:
    """Convert a decoded record to the SDK's Record, with its timestamp's type."""
    kind = LOG_APPEND_TIME if batch.is_log_append_time else CREATE_TIME
    timestamp = batch.max_timestamp if batch.is_log_append_time else record.timestamp
    return Record(at.topic, at.partition, record.offset, timestamp, kind, record.key, record.value, record.headers)


def _transactions(asker: Asker) -> list[TransactionSeen]:
    """Describe every transactional id that a broker lists, by its coordinator."""
    ids: set[str] = set()
    for node in asker.nodes():
        listed = node.ask(ListTransactionsRequest())
        check(listed.error_code, "transactions")
        ids |= {one.transactional_id for one in listed.transaction_states}
    seen: list[TransactionSeen] = []
    for name in sorted(ids):
        asked = DescribeTransactionsRequest(transactional_ids=[name])
        (found,) = asker.coordinator(TRANSACTION, name).ask(asked).transaction_states
        if found.error_code:  # forgotten between the two requests
            continue
        partitions = [TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions]
        seen.append(
            TransactionSeen(
                name,
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms,
                tuple(sorted(partitions)),
            )
        )
    return seen
