"""The three ways in which rows become records, each exactly once: what each asks of the broker. relaying.py has the
steps.

The rule: a way that has raised is not used again; whoever wants to go on opens another one, which finds out at the
broker what was sent.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ....protocol.errors import ErrorCode
from ...admin.admin import Admin
from ...errors import InvalidConfigurationError, KafkaError, RecordTooLargeError
from ...net.environment import Environment
from ...producer.delivery import Delivery
from ...producer.producer import Producer
from ...values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from ..interfaces import Database
from .relaying import Place, PlaceRefused, Row, Way, begin_at
from .rows import bad_row
from .table import OutboxTable

OF_RECORD = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD}
"""What the broker says about a record that it will never take."""
COMMIT_AGAIN_MS = 3_600_000
"""After how long a place is committed again, lest it expires."""


class Clients(Protocol):
    """Makes clients of the broker."""

    def producer(self, **more: Any) -> Producer:
        """Return a producer; more: further settings."""
        ...

    def admin(self) -> Admin:
        """Return an admin client."""
        ...


class Moving(Protocol):
    """The relay's work in one of the three ways, from opening until it raises or is closed."""

    async def start(self) -> None:
        """Fence the earlier relay of this name, and find out which rows it has sent."""
        ...

    async def move(self, count: int) -> int:
        """Send the next rows, at most this many, and delete or mark them. Returns how many were sent."""
        ...

    async def rest(self) -> None:
        """Do what is due while there are no rows."""
        ...

    async def close(self, timeout_ms: float) -> None:
        """Close the clients; what is not committed is aborted."""
        ...


def row_record(row: Row, to: str) -> dict[str, Any]:
    """Return the arguments of `send` for this row."""
    return {"topic": row.topic or to, "value": row.value, "key": row.key, "headers": row.headers}


async def sent(send: Callable[..., Any], row: Row, record: dict[str, Any]) -> Delivery:
    """Send the record of a row, and return its delivery. Raises OutboxRowError if the row cannot be a record."""
    try:
        delivery: Delivery = await send(**record)
    except (RecordTooLargeError, TypeError, UnicodeEncodeError) as error:
        raise bad_row(row.position, str(error)) from error
    return delivery


def blame_row(error: KafkaError, deliveries: Iterable[tuple[Row, Delivery]]) -> None:
    """Raise OutboxRowError if the broker has refused one of these records for what is in it; else return. error: the
    error of the send or commit, which becomes the cause.
    """
    refused: list[tuple[Row, KafkaError]] = []
    for row, delivery in deliveries:
        failure = delivery.exception() if delivery.done() else None
        if isinstance(failure, KafkaError) and failure.code in OF_RECORD:
            refused.append((row, failure))
    if not refused:
        return
    row, failure = max(refused, key=lambda each: _size_of(each[0]))  # the rows after it failed with it
    if failure.code == ErrorCode.INVALID_RECORD:
        row, failure = refused[0]
        raise bad_row(row.position, f"it, or a later row: {failure}") from error
    raise bad_row(row.position, str(failure)) from error


def _size_of(row: Row) -> int:
    """Return how many bytes key, value and headers of the row have."""
    headers = sum(len(name) + len(value or b"") for name, value in row.headers or ())
    return len(row.key or b"") + len(row.value or b"") + headers


class _Transactional:
    """The part that both ways with a transactional id have in common."""

    def __init__(self, clients: Clients, table: OutboxTable, name: str, to: str) -> None:
        self._table = table
        self._name = name
        self._to = to
        self._producer = clients.producer(transactional_id=name)

    async def _send(self, tx: Any, rows: list[Row], deliveries: list[tuple[Row, Delivery]]) -> None:
        """Send the rows in the open transaction, and wait for the acknowledgements. Adds each row and its delivery to
        `deliveries`. Raises OutboxRowError, or the error of a delivery.
        """
        for row in rows:
            deliveries.append((row, await sent(tx.send, row, row_record(row, self._to))))
        await self._producer.flush()
        for _, delivery in deliveries:
            delivery.result()

    async def rest(self) -> None:
        """Do nothing: nothing is due while there are no rows."""

    async def close(self, timeout_ms: float) -> None:
        """Close the producer; an open transaction is aborted."""
        await self._producer.close(timeout_ms=timeout_ms)


class ByHold(_Transactional):
    """Way HOLD, the default: rows are deleted and sent in one commit over database and broker."""

    def __init__(self, clients: Clients, db: Database, table: OutboxTable, name: str, to: str) -> None:
        super().__init__(clients, table, name, to)
        self._db = db

    async def start(self) -> None:
        """Fence the earlier relay of this name. Its open transaction is ended before the first one of this relay."""
        await self._table.check_unnumbered()
        await self._producer.start()

    async def move(self, count: int) -> int:
        """Delete or mark the next rows, and send them, in one commit (steps TAKE, SEND, COMMIT). Returns how many."""
        deliveries: list[tuple[Row, Delivery]] = []
        try:
            async with self._producer.transaction(db=self._db) as tx:
                await self._send(tx, await self._table.take(count), deliveries)
        except KafkaError as error:
            blame_row(error, deliveries)
            raise
        return len(deliveries)


class ByOffsets(_Transactional):
    """Way OFFSETS, for any Kafka broker: the seq of the last sent row is an offset that is committed with the records.

    resume_at: the seq from which to go on, whatever the broker has; None: from what it has.
    """

    def __init__(
        self,
        clients: Clients,
        table: OutboxTable,
        name: str,
        to: str,
        environment: Environment,
        resume_at: int | None = None,
    ) -> None:
        super().__init__(clients, table, name, to)
        self._clients = clients
        self._now_ms = environment.clock.monotonic_ms
        self._resume_at = resume_at
        self._kept_in = TopicPartition(to, 0)
        self._group = ConsumerGroupMetadata(name, -1, "", None)
        self._place = 0
        self._committed_ms = 0.0

    async def start(self) -> None:
        """Fence the earlier relay, read its place from the group's offsets, and delete or mark the rows up to there."""
        await self._producer.start()
        await self._producer.partitions_for(self._kept_in.topic)
        async with self._clients.admin() as admin:
            found = await admin.list_group_offsets(self._group.group_id, require_stable=True)
        offset = found.get(self._kept_in)
        kept = None if offset is None else Place(offset.offset, offset.metadata or "")
        last = await self._table.introduce(Way.OFFSETS, self._name)
        try:
            place = begin_at(kept, last, self._table.home, self._resume_at)
        except PlaceRefused as refused:
            elsewhere = sorted(str(each) for each in found)
            note = f"; the group has one for {', '.join(elsewhere)}" if kept is None and elsewhere else ""
            raise InvalidConfigurationError(
                f"{self._kept_in} of group {self._name}: {refused}{note}", hint=refused.hint
            ) from None
        self._place = place or 0
        if place is None or self._resume_at is not None:
            await self._commit([])
        if place is not None:
            await self._table.forget(place)

    async def move(self, count: int) -> int:
        """Give numbers to new rows, send the next ones with their place in one transaction, and delete or mark them."""
        await self._table.number(count)
        rows = await self._table.read(self._place, count)
        if rows:
            self._place = rows[-1].seq
            await self._commit(rows)
            await self._table.forget(self._place)
        return len(rows)

    async def _commit(self, rows: list[Row]) -> None:
        """Send the rows, and commit them together with the place (the seq of the last row) in one transaction. Without
        rows, commit the place alone.
        """
        deliveries: list[tuple[Row, Delivery]] = []
        place = OffsetAndMetadata(self._place, self._table.home)
        try:
            async with self._producer.transaction() as tx:
                await self._send(tx, rows, deliveries)
                await tx.send_offsets_to_transaction({self._kept_in: place}, self._group)
        except KafkaError as error:
            blame_row(error, deliveries)
            raise
        self._committed_ms = self._now_ms()

    async def rest(self) -> None:
        """Commit the place again if the last commit is an hour ago, so that it does not expire."""
        if self._now_ms() - self._committed_ms >= COMMIT_AGAIN_MS:
            await self._commit([])


class ByNames:
    """Way NAMES: the seq of a row is the sequence of a named producer, so the broker recognizes a row that is sent
    again.
    """

    def __init__(self, clients: Clients, table: OutboxTable, name: str, to: str) -> None:
        self._table = table
        self._name = name
        self._to = to
        self._producer = clients.producer(name=name)
        self._place = 0  # what is below was sent, and forgotten

    async def start(self) -> None:
        """Fence the earlier relay. Rows it has sent but not deleted are sent again, and the broker recognizes them."""
        await self._producer.start()
        await self._table.introduce(Way.NAMES, self._name)

    async def move(self, count: int) -> int:
        """Give numbers to new rows, send the next ones, and delete or mark them. Returns how many were sent."""
        await self._table.number(count)
        rows = await self._table.read(self._place, count)
        deliveries: list[tuple[Row, Delivery]] = []
        try:
            for row in rows:
                record = row_record(row, self._to)
                if row.key is None:  # sent again, it must go where it went
                    record["partition"] = row.seq % len(await self._producer.partitions_for(record["topic"]))
                deliveries.append((row, await sent(self._producer.send, row, {**record, "sequence": row.seq})))
            await self._producer.flush()
            for _, delivery in deliveries:
                delivery.result()
        except KafkaError as error:
            blame_row(error, deliveries)
            raise
        if rows:
            self._place = rows[-1].seq
            await self._table.forget(self._place)
        return len(rows)

    async def rest(self) -> None:
        """Do nothing: the broker keeps sequences for good."""

    async def close(self, timeout_ms: float) -> None:
        """Close the producer."""
        await self._producer.close(timeout_ms=timeout_ms)
