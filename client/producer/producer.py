"""The producer: idempotent by default, transactional with a transactional_id.

The rules: `send` waits only for room in the buffer, and costs a microsecond; awaiting the Delivery that it returns
waits for the acknowledgement. A record that was taken is sent even if its caller is cancelled. `close` sends the
remaining records within its timeout, and never hangs.
"""

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...protocol.compression import Codec
from ..addresses import Bootstrap
from ..arguments import check_topic_name
from ..config_names import settings_from
from ..errors import ClosedError, IllegalStateError
from ..net.cluster import Cluster
from ..net.environment import SYSTEM, Environment
from ..partitioner import placing_of
from ..serialization import Serializers
from ..settings import ProducerSettings, producer_settings
from ..snapshots import ProducerSnapshot, error_text
from ..transactions.driver import TransactionDriver
from ..transactions.sources import FromGroup, offsets_of
from ..transactions.table import UNDER_WAY, Event, State
from ..values import NO_IDENTITY, ConsumerGroupMetadata, Headers, HeadersLike, ProducerIdentity, RecordMetadata
from .batching import Accumulator, Batch, Topic
from .checks import Given, as_bytes, check_headers, checked_record, timestamp_error
from .delivery import Delivery
from .ending import ProducerParts
from .numbering import Numbering, numbering_of
from .refused_sends import buffer_full_error, partition_error
from .send_permission import PlainPermission
from .sender import Sender
from .transaction import Transaction, run_until_committed
from .watching import watch

if TYPE_CHECKING:
    from typing import Unpack

    from ..metrics.counters import ClientMetrics
    from ..settings import ProducerKeywords
    from ..tracing.tracing import TracerProvider, Tracing
    from ..transactions.participant import DecidingDatabase, Wait


_CODECS = {None: 0, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}

T = TypeVar("T")


class Producer:
    """`async with Producer("localhost:9092") as producer: await producer.send("topic", b"value", key=b"key")`.

    Keywords: those of ProducerSettings, and of the connection. `from_config` takes Java's and librdkafka's names.
    """

    def __init__(
        self,
        bootstrap_servers: Bootstrap,
        *,
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        environment: Environment = SYSTEM,
        **keywords: "Unpack[ProducerKeywords]",
    ) -> None:
        self._set_up(producer_settings(bootstrap_servers, **keywords), environment)
        self._watch(metrics, tracing)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        environment: Environment = SYSTEM,
    ) -> "Producer":
        """Create a producer from setting names of Java's client or of librdkafka, such as {"bootstrap.servers": …}.

        Raises InvalidConfigurationError.
        """
        producer = cls.__new__(cls)
        producer._set_up(settings_from(ProducerSettings, config), environment)
        producer._watch(metrics, tracing)
        return producer

    def _watch(self, metrics: "ClientMetrics | None", tracing: "Tracing | TracerProvider | bool | None") -> None:
        """Connect the producer with metrics and tracing, if given. tracing: True for the default tracer."""
        parts = self._sender, self._accumulator, self._driver
        watch(metrics, tracing, parts, self._cluster, self._environment)

    def _set_up(self, settings: ProducerSettings, environment: Environment, cluster: Cluster | None = None) -> None:
        """Create the parts. cluster: connections that others use too, so that closing this producer keeps them open."""
        self.settings = settings
        self._started = self._closed = False
        self._starting = asyncio.Lock()
        self._environment = environment
        self._now_ms = environment.clock.now_ms
        self._cluster = cluster or Cluster(settings, environment)
        self._owns_cluster = cluster is None
        self._accumulator = Accumulator(
            now_ms=environment.clock.monotonic_ms,
            max_batch_bytes=min(settings.max_batch_size, settings.max_request_size),
            max_record_bytes=settings.max_request_size,
            memory_bytes=settings.buffer_memory,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            linger_ms=settings.linger_ms,
            codec=int(_CODECS[settings.compression_type]),
            level=settings.compression_level,
            random_number=lambda: environment.rng.below(1 << 30),
        )
        self._placing = placing_of(settings.partitioner, self._accumulator.random_number)
        self._topics = self._accumulator.topics
        self._sender = Sender(self._cluster, settings, self._accumulator, environment)
        self._room = asyncio.Event()
        self._room_turn = asyncio.Lock()
        self._accumulator.on_room = self._room.set
        self._driver: TransactionDriver | None = None
        self._plain: PlainPermission | None = None
        self._numbering: Numbering | None = None
        if settings.name is not None:
            self._plain = self._numbering = Numbering(self._cluster, settings, self._sender)
            self._sender.permission = self._numbering
        elif settings.transactional_id is None:
            self._plain = self._sender.permission = PlainPermission(
                self._cluster, settings, go_on=self._sender.go_on, on_fatal=self._sender.drop_unsent
            )
            self._sender.renew = self._plain.renew
        else:
            self._driver = TransactionDriver(settings, self._cluster, environment)
            self._driver.sender = self._sender
            self._sender.permission = self._driver
        serializers = Serializers(settings.key_serializer, settings.value_serializer)
        self._serializers = serializers if serializers else None
        self._parts = ProducerParts(
            self._sender, self._cluster, self._driver, self._plain, owns_cluster=self._owns_cluster
        )
        self._affinity = self._cluster.affinity
        self._machine = None if self._driver is None else self._driver.machine
        self._is_open = False  # started and not closed
        self._init_is_done = False  # by start(), and init_transactions() was not called yet

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._started else "not started"
        known_as = self.settings.transactional_id or self.settings.name
        name = "" if known_as is None else f" {known_as!r}"
        return f"<Producer{name} pid={self.producer_id} epoch={self.producer_epoch} {state}>"

    def state(self) -> ProducerSnapshot:
        """Return a snapshot of the producer: its life, identity, transaction, buffer and connections."""
        machine, accumulator = self._machine, self._accumulator
        is_open = machine is not None and machine.state in UNDER_WAY
        return ProducerSnapshot(
            life="closed" if self._closed else "open" if self._started else "not started",
            connections=self._cluster.connection_snapshots(),
            transactional_id=self.settings.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction=None if machine is None else machine.state.text,
            transaction_age_ms=self._driver.age_ms() if self._driver is not None and is_open else None,
            transaction_partitions=frozenset(machine.partitions if machine is not None and is_open else ()),
            buffered_batches=len(accumulator.incomplete),
            buffered_bytes=accumulator.memory_bytes - accumulator.free_bytes,
            buffer_memory=accumulator.memory_bytes,
            in_flight=self._sender.in_flight,
            waiting_for_room=accumulator.waiting,
            last_error=error_text((machine and machine.error) or self._sender.broken or self._sender.refused),
        )

    async def start(self) -> None:
        """Connect; with a transactional_id, fence the id's previous producer and abort its open transaction.

        It does so before the first transaction, since a consumer may wait for offsets that are pending in an old one.
        Raises BrokerUnreachableError, AuthenticationError, AuthorizationError and the like, and has closed everything
        then: create another producer to try again.
        """
        async with self._starting:
            if self._started or self._closed:
                self._check_started()
                return
            try:
                await self._cluster.start()
                if self._driver is not None:
                    await self._driver.initialise()
                    self._init_is_done = True
                if self._numbering is not None:
                    await self._numbering.open()
                if self._closed:
                    raise ClosedError("the producer was closed while it started")
            except BaseException:
                if self._owns_cluster:
                    await self._cluster.close()
                raise
            self._started = self._is_open = True
            self._parts.begin()

    async def __aenter__(self) -> "Producer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Send the remaining records, for at most timeout_ms (default: delivery_timeout_ms), then close. Idempotent.

        An open transaction is aborted. Records that could not be sent in time fail with ClosedError.
        """
        if self._closed:
            return
        self._closed = True
        self._is_open = False
        if timeout_ms is None:
            timeout_ms = self.settings.delivery_timeout_ms
        if self._cluster.affinity.is_elsewhere:  # its tasks cannot be awaited in this loop
            await self._parts.end_from_other_loop(timeout_ms)
            return
        self._room.set()
        await self._parts.end(timeout_ms)

    stop = close

    def __del__(self) -> None:
        if getattr(self, "_started", False) and not self._closed:
            warnings.warn(f"{self!r} was never closed: use `async with`", ResourceWarning, source=self)
            self._parts.end_unheld(self.settings.delivery_timeout_ms)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
        sequence: int | None = None,
    ) -> Delivery:
        """Take a record. Waits for room in the buffer only; await the delivery to learn where it was written.

        If this call is cancelled, the record was not taken.

        partition: by default chosen by the key, or any one without a key. sequence: of a named producer. Raises
        BufferFullError after max_block_ms, RecordTooLargeError, UnknownTopicError; TypeError for a str without a
        serializer.
        """
        if sequence is not None or self._numbering is not None:
            return await self._send_numbered(sequence, topic, partition, (key, value, headers, timestamp_ms))
        accumulator = self._accumulator
        if accumulator.filled:
            await self._yield_to_loop()
        machine = self._machine
        if not self._is_open or self._affinity.is_elsewhere or (machine and machine.state is not State.IN_TRANSACTION):
            self._check_open()
        if self._serializers is not None:
            key, value, headers = self._serializers(topic, key, value, headers)
        if value.__class__ is not bytes and value is not None:
            value = as_bytes(value, "value")
        if key is not None and key.__class__ is not bytes:
            key = as_bytes(key, "key")
        pairs = check_headers(headers) if headers else None
        found = self._topics.get(topic)
        if found is None:
            begun = self._transactions_begun()
            found = await self._topic(topic)
            self._check_same_transaction(begun)
        if partition is not None or self._placing is not None:
            partition = self._partition(found, partition, key)
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        elif timestamp_ms.__class__ is not int or not 0 <= timestamp_ms < 1 << 63:
            raise timestamp_error(timestamp_ms)
        placed = None
        if not accumulator.waiting:
            placed = accumulator.append(found, partition, key, value, pairs, timestamp_ms)
        if placed is None:
            placed = await self._append_when_room(found, partition, key, value, pairs, timestamp_ms)
        if accumulator.filled:
            self._sender.wake()
        return Delivery(*placed)

    async def _send_numbered(self, sequence: Any, topic: str, partition: int | None, record: Given) -> Delivery:
        """Append a record of a named producer, one call at a time: each partition keeps the order of the calls."""
        numbering, accumulator = numbering_of(self._numbering), self._accumulator
        async with numbering.turn:
            if accumulator.filled:
                await self._yield_to_loop()
            self._check_open()
            found = self._topics.get(topic) or await self._topic(topic)
            await numbering.open_topic(topic, found.count)
            taken = checked_record(self._serializers, topic, *record, self._now_ms)
            index = partition if partition is not None else numbering.partition_of(found, taken, self._placing)
            place = found.partitions[self._partition(found, index, None) or 0]
            if (repeated := numbering.repeated(place, sequence, taken)) is not None:
                return Delivery(repeated, 0)
            placed = accumulator.append(found, place.index, *taken)
            if placed is None:
                placed = await self._append_when_room(found, place.index, *taken)
            numbering.took(placed[0], sequence)
        if accumulator.filled:
            self._sender.wake()
        return Delivery(*placed)

    async def last_sequences(self, topic: str) -> dict[int, int]:
        """Return the highest sequence in the log, by partition, of this named producer. Send what comes after it."""
        numbering = numbering_of(self._numbering)
        self._check_open()
        return await numbering.last_sequences(topic, (self._topics.get(topic) or await self._topic(topic)).count)

    async def _yield_to_loop(self) -> None:
        """Let the loop send and receive before a record is taken: if this is cancelled, the record was not taken."""
        begun = self._transactions_begun()
        self._accumulator.filled = False
        await asyncio.sleep(0)
        self._check_same_transaction(begun)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
        sequence: int | None = None,
    ) -> RecordMetadata:
        """Take a record and wait until it is acknowledged. If this call is cancelled, the record may still be sent."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers, sequence))

    async def flush(self) -> None:
        """Send all records now, and return when each is acknowledged or failed; their deliveries have the results."""
        self._check_started()
        await self._sender.flush()

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic. Raises UnknownTopicError after max_block_ms."""
        self._check_started()
        return set(range((await self._topic(topic)).count))

    async def _topic(self, name: str) -> Topic:
        """Return the topic, after waiting at most max_block_ms for its metadata. Raises UnknownTopicError."""
        check_topic_name(name)
        count = await self._cluster.partitions_of(name, timeout_ms=self.settings.max_block_ms)
        self._check_started()
        found = self._topics.get(name)
        if found is None:
            self._cluster.watch_topics([name])
            random_number = self._environment.rng.below(1 << 30)
            found = self._topics[name] = Topic(name, count, self._sender.available(name, count), random_number)
        return found

    def _partition(self, topic: Topic, partition: int | None, key: bytes | None) -> int | None:
        """Return the record's partition, checked; None: the default partitioner decides when the record is appended."""
        if partition is None and self._placing is not None:
            partition = self._placing(key, topic.count, topic.available)
            if partition is None and isinstance(self.settings.partitioner, str):
                return None
        if not isinstance(partition, int) or not 0 <= partition < topic.count:
            raise partition_error(topic, partition)
        return partition

    async def _append_when_room(
        self,
        topic: Topic,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp_ms: int,
    ) -> tuple[Batch, int]:
        """Append the record when there is memory; waiting calls keep their order. Returns its batch and index."""
        accumulator = self._accumulator
        begun = self._transactions_begun()
        accumulator.waiting += 1
        self._sender.wake()
        try:
            async with asyncio.timeout(self.settings.max_block_ms / 1000), self._room_turn:
                while True:
                    self._check_same_transaction(begun)
                    placed = accumulator.append(topic, partition, key, value, headers, timestamp_ms)
                    if placed is not None:
                        return placed
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            why = self._sender.why_full()
            raise buffer_full_error(accumulator, self.settings.max_block_ms, why) from why
        finally:
            accumulator.waiting -= 1

    def _check_started(self) -> None:
        if self._closed:
            raise ClosedError("the producer is closed")
        if not self._started:
            raise IllegalStateError("the producer is not started", hint="async with Producer(…) as producer")
        self._cluster.affinity.check()

    def _check_open(self) -> None:
        """Raise unless a record may be sent now; with a transactional_id, only inside an open transaction."""
        self._check_started()
        if self._driver is not None:
            self._driver.machine.request(Event.WRITE)
        if self._numbering is not None:
            self._numbering.check()

    def _transactions_begun(self) -> int:
        """Return how many transactions this producer has begun; 0 without a transactional_id."""
        return 0 if self._driver is None else self._driver.begun

    def _check_same_transaction(self, begun: int) -> None:
        """Check, after a wait, that the record's transaction is still open: it must not go into a later one."""
        self._check_open()
        if self._transactions_begun() != begun:
            raise IllegalStateError("the transaction ended before this record was added to it")

    @property
    def transactional_id(self) -> str | None:
        """Return the transactional id from the settings; None without transactions."""
        return self.settings.transactional_id

    @property
    def producer_id(self) -> int:
        """Return the producer id; -1 if it has none."""
        return self._identity().producer_id

    @property
    def producer_epoch(self) -> int:
        """Return the producer epoch; -1 if it has none."""
        return self._identity().epoch

    def _identity(self) -> ProducerIdentity:
        """Return producer id and epoch, of the transactional id or the idempotent producer; NO_IDENTITY without one."""
        if self._driver is not None:
            return self._driver.machine.identity
        return self._sender.sequences.identity or NO_IDENTITY

    def _transacting(self) -> TransactionDriver:
        """Return the transaction driver. Raises IllegalStateError without a transactional_id."""
        if self._driver is None:
            raise IllegalStateError("this producer is not transactional", hint="set transactional_id")
        self._check_started()
        return self._driver

    def transaction(
        self,
        batch: FromGroup | None = None,
        label: str | None = None,
        *,
        db: "DecidingDatabase | None" = None,
        wait: "Wait" = "ended",
    ) -> Transaction:
        """`async with producer.transaction() as tx`: commits at the end, aborts on any exception.

        batch: one that a consumer yielded; its offsets are committed with the transaction. label: a name for `repr`.
        db: from `fencepost.sql.connect`; its changes in the block are committed with the records: both or neither.
        wait: with a db, "decided" ends the block once the database has committed; the broker is told of it later.
        """
        return Transaction(cast(Any, self), self._transacting(), batch, label, database=db, wait=wait)

    async def init_transactions(self) -> None:
        """Do nothing on the first call, since start() has fenced the id already. For code written for other clients.

        Raises IllegalStateError if called again, or after the first transaction; but after a CommitOutcomeUnknownError
        it gives up resolving that and starts again.
        """
        driver = self._transacting()
        if self._init_is_done and not driver.begun:
            self._init_is_done = False
            return
        await driver.initialise()

    async def begin_transaction(self) -> None:
        """Begin a transaction. Raises IllegalStateError while another is open."""
        await self._transacting().begin()

    async def commit_transaction(self) -> None:
        """Wait for every record, then commit. Raises AbortableTransactionError: abort it and do the work again."""
        await self._transacting().commit()

    async def abort_transaction(self) -> None:
        """Abort the open transaction: read_committed consumers never see its records."""
        await self._transacting().abort()

    async def send_offsets_to_transaction(self, source: Any, metadata: ConsumerGroupMetadata | None = None) -> None:
        """Add offsets of a consumer, of a batch, or a mapping to the transaction; they are committed with it."""
        driver = self._transacting()
        await driver.send_offsets(*offsets_of(source, metadata))

    async def run(
        self, work: Callable[[Transaction], Awaitable[T]], retries: int = 3, *, db: "DecidingDatabase | None" = None
    ) -> T:
        """Run `work` in a transaction; up to `retries` times more after an abort or a conflict in the database."""
        return await run_until_committed(partial(self.transaction, db=db), work, retries)

    run_in_transaction = run
