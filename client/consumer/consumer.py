"""The consumer: `async with Consumer("localhost:9092", topics=["orders"], group_id="billing") as consumer: …`.

The rule: the consumer joins its group, and its assignment changes, only within `getone`, `getmany`, `batches` and
`async for`; in between it only sends heartbeats. Records are fetched ahead in the background.
"""

import asyncio
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...effects.counts import count_text
from ..addresses import Bootstrap
from ..arguments import check_topic_name, offset_of, positive
from ..config_names import settings_from
from ..errors import IllegalStateError, RequestTimedOutError
from ..group.group import Group
from ..group.subscription import EARLIEST, LATEST
from ..net.environment import SYSTEM, Environment
from ..reader_parts import CLOSING_MS
from ..settings import CONSUMER, ConsumerSettings, IsolationLevel, consumer_settings
from ..snapshots import ConsumerSnapshot
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, Record, TopicPartition
from .batches import Batch, Batches
from .list_offsets import READ_COMMITTED, READ_UNCOMMITTED, Listed, list_offsets
from .polls import Polls

if TYPE_CHECKING:
    from typing import Unpack

    from ..metrics.counters import ClientMetrics
    from ..settings import ConsumerKeywords
    from ..tracing.tracing import TracerProvider, Tracing

NEVER_MS = float("inf")
_Times = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]


class Consumer:
    """Reads records, in a group or alone. Keywords: those of ConsumerSettings, and of the connection.

    `from_config` takes Java's and librdkafka's names. topics: to subscribe to from the start. Without a group_id, the
    consumer reads all partitions of them.
    """

    def __init__(
        self,
        bootstrap_servers: Bootstrap,
        *,
        topics: Collection[str] = (),
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        environment: Environment = SYSTEM,
        **keywords: "Unpack[ConsumerKeywords]",
    ) -> None:
        self._set_up(consumer_settings(bootstrap_servers, **keywords), topics, environment)
        self._watch(metrics, tracing)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        topics: Collection[str] = (),
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        environment: Environment = SYSTEM,
    ) -> "Consumer":
        """Create a consumer from setting names of Java's client or of librdkafka, such as {"bootstrap.servers": …}.

        Raises InvalidConfigurationError.
        """
        consumer = cls.__new__(cls)
        consumer._set_up(settings_from(ConsumerSettings, config), topics, environment)
        consumer._watch(metrics, tracing)
        return consumer

    def _set_up(self, settings: ConsumerSettings, topics: Collection[str], environment: Environment) -> None:
        """Create what the consumer is made of; connects to no broker yet. topics: to subscribe to at once, if any."""
        self._settings = settings
        self._clock = environment.clock
        self._polls = polls = Polls(settings, environment)
        self._cluster, self._subscription = polls.cluster, polls.subscription
        self._group, self._whole = polls.group, polls.whole
        self._spans: Any = None
        self._reading, self._fetcher, self._positions = polls.reading, polls.fetcher, polls.positions
        if topics:
            self.subscribe(topics)

    def _watch(self, metrics: "ClientMetrics | None", tracing: "Tracing | TracerProvider | bool | None") -> None:
        """Connect the consumer with metrics and tracing, if given. tracing: True for the default tracer."""
        if metrics is not None:
            metrics.watch_consumer(self._reading, self._subscription)
        if tracing:
            from ..tracing.tracing import tracing_of

            settings = self._settings
            spans = tracing_of(tracing).consumer_spans(settings.client_id, settings.group_id, self._clock.now_ms)
            self._spans = self._reading.spans = spans
            if self._group is not None:
                self._group.trace_commits(spans.committing)

    def __repr__(self) -> str:
        return f"<Consumer group={self._settings.group_id} {count_text(len(self._subscription.assigned), 'partition')}>"

    def state(self) -> ConsumerSnapshot:
        """Return a snapshot of the consumer's state."""
        return self._polls.state(self._settings.group_id)

    async def start(self) -> None:
        """Connect. Raises BrokerUnreachableError, AuthenticationError and the like."""
        self._polls.check_open()
        await self._cluster.start()
        self._polls.begin()

    async def close(self, *, timeout_ms: float = CLOSING_MS) -> None:
        """Leave the group and close all connections, within timeout_ms. Idempotent."""
        await self._polls.close(timeout_ms)

    stop = close

    async def _close_after(self, error: BaseException | None, timeout_ms: float = CLOSING_MS) -> None:
        """Close after an `async with` block. After an error, no automatic commit contains the last returned records."""
        await self._polls.close(timeout_ms, is_done=error is None)

    def __del__(self) -> None:
        polls = getattr(self, "_polls", None)
        if polls is not None and polls.is_open:
            warnings.warn(f"{self!r} was never closed: use `async with`", ResourceWarning, source=self)
            polls.end_unheld(CLOSING_MS)

    async def __aenter__(self) -> "Consumer":
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._close_after(error)

    def subscribe(
        self, topics: Collection[str] = (), *, pattern: "str | re.Pattern[str] | None" = None, listener: Any = None
    ) -> None:
        """Read these topics, or those whose whole name matches: in a group a share of their partitions, else all of
        them.

        pattern: with group_protocol="consumer" a str is evaluated by the broker, as RE2; a compiled one always here.
        listener: on_partitions_revoked, on_partitions_assigned and optionally on_partitions_lost, each sync or async.
        """
        self._polls.check_open()
        if isinstance(topics, str):
            raise TypeError(f"topics must be a list of names, not a str: [{topics!r}]")
        if not all(isinstance(topic, str) for topic in topics):
            raise TypeError(f"topics must be a list of str, not {topics!r}")
        for topic in topics:
            check_topic_name(topic)
        if self._whole is not None and listener is not None:
            raise IllegalStateError("a rebalance listener needs a group", hint="set group_id")
        if not topics and pattern is None:
            raise ValueError("subscribe() needs topics or a pattern")
        if self._group is not None and self._group.leaving:
            raise IllegalStateError(
                "the consumer is unsubscribing now", hint="call subscribe() after unsubscribe() has returned"
            )
        self._reading.settle()
        expression = None
        if isinstance(pattern, str) and self._group is not None and self._settings.group_protocol == CONSUMER:
            pattern, expression = None, pattern
        self._subscription.subscribe(
            topics, re.compile(pattern) if pattern is not None else None, listener, expression=expression
        )
        if self._whole is not None:
            self._whole.subscribed()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, without a group's assignment. Those that were assigned keep their positions.

        Raises IllegalStateError after `subscribe`, and for a partition that was unassigned and is assigned again while
        an open transaction uses its records.
        """
        self._polls.check_open()
        self._reading.settle()
        chosen = [TopicPartition(*partition) for partition in partitions]
        self._cluster.watch_topics({tp.topic for tp in chosen})
        self._subscription.assign(chosen)

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        self._reading.settle()
        if self._group is not None and self._subscription.is_subscribed:
            await self._group.unsubscribe()
            return
        self._subscription.unsubscribe()
        if self._whole is not None:
            self._whole.subscribed()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics, by name or by pattern; for a pattern of the broker, the assigned ones."""
        if self._subscription.expression is not None:
            return frozenset(tp.topic for tp in self._subscription.assigned)
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return frozenset(self._subscription.assigned)

    async def assigned(self, *, timeout_ms: float | None = None) -> frozenset[TopicPartition]:
        """Wait for an assignment (joins the group) and for its positions: records written after that will be read.

        timeout_ms: by default default_api_timeout_ms. Raises RequestTimedOutError.
        """
        timeout_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            await self._polls.poll(deadline_ms)
            states = self._subscription.assigned.values()
            if self._subscription.has_assignment and all(state.is_known or state.refused for state in states):
                return self.assignment()
            if not await self._polls.wait(deadline_ms, news=True):
                raise self._late(f"the group assigned nothing within {timeout_ms:g} ms")

    def _late(self, text: str) -> RequestTimedOutError:
        """Return a RequestTimedOutError with this text. If a position lookup waits for something, the text says for
        what.
        """
        why = self._positions.describe_wait()
        return RequestTimedOutError(
            text if why is None else f"{text}: {why}", hint="" if why is None else self._positions.hint
        )

    async def topics(self) -> frozenset[str]:
        """Return all topics of the cluster except internal ones."""
        found = await self._cluster.refresh(all_topics=True)
        return frozenset(topic.name for topic in found.topics.values() if not topic.error and not topic.is_internal)

    async def partitions_for_topic(self, topic: str) -> frozenset[int]:
        """Return the partition numbers of a topic. Raises UnknownTopicError."""
        count = await self._cluster.partitions_of(topic, timeout_ms=self._settings.default_api_timeout_ms)
        return frozenset(range(count))

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> Record:
        if self._group is None or self._group.may_go_on():
            for record in self._reading.run:
                return record
        return await self._one(())

    async def getone(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> Record:
        """Wait for the next record, of these partitions or of any. Raises RequestTimedOutError after timeout_ms."""
        if not partitions and (self._group is None or self._group.may_go_on()):
            for record in self._reading.run:
                return record
        return await self._one(partitions, timeout_ms)

    async def _one(self, wanted: Collection[TopicPartition], timeout_ms: float | None = None) -> Record:
        """Wait for the next record of these partitions and return it. Raises RequestTimedOutError after timeout_ms."""
        reading, most = self._reading, self._settings.max_poll_records
        deadline_ms = self._until_ms(timeout_ms)
        self._note_asked()
        while True:
            await self._polls.poll(deadline_ms, wanted)
            run = reading.begin_run(1 if wanted else most, wanted, self._metadata())
            self._fetcher.pump_soon()
            if run is not None:
                return next(run)
            if not await self._polls.wait(deadline_ms, wanted):
                raise RequestTimedOutError(f"no record arrived within {timeout_ms:g} ms")

    def _until_ms(self, timeout_ms: float | None) -> float:
        """Return the deadline on the monotonic clock; NEVER_MS without a timeout."""
        return NEVER_MS if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Return records, at most max_records (default: max_poll_records). Waits timeout_ms for one; None: forever."""
        deadline_ms = self._until_ms(timeout_ms)
        await asyncio.sleep(0)  # so that a loop of calls that never wait does not block other tasks and the fetcher
        taken = await self._take_when_there(self._most(max_records), partitions, deadline_ms)
        return {state.tp: records for state, (_, records) in taken.items()}

    def _most(self, max_records: int | None) -> int:
        """Return max_records, by default max_poll_records. Raises TypeError, InvalidConfigurationError."""
        return self._settings.max_poll_records if max_records is None else positive(max_records, "max_records")

    async def _take_when_there(self, most: int, wanted: Collection[TopicPartition], deadline_ms: float) -> Any:
        """Return what Reading.take() returns, as soon as there are records; {} after the deadline."""
        self._note_asked()
        while True:
            await self._polls.poll(deadline_ms, wanted)
            taken = self._reading.take(most, wanted, self._metadata())
            self._fetcher.pump()
            if taken or not await self._polls.wait(deadline_ms, wanted):
                return taken

    def batches(
        self, max_records: int | None = None, *, max_wait_ms: float = 0, timeout_ms: float | None = None
    ) -> Batches:
        """Return an iterator over batches of at most max_records (default: max_poll_records), each for one transaction.

        max_wait_ms: how long a batch waits for more records after its first. timeout_ms: the loop ends if no record
        comes for so long; another loop over the same iterator continues. An error does not end the iterator.
        """
        most = self._most(max_records)
        return Batches(lambda: self._batch(most, max_wait_ms, self._until_ms(timeout_ms)))

    async def _batch(self, most: int, max_wait_ms: float, deadline_ms: float) -> Batch | None:
        """Return the next batch of at most `most` records; None at deadline_ms. Waits max_wait_ms until it is full."""
        reading = self._reading
        self._note_asked()
        while True:
            await self._polls.poll(deadline_ms)
            if not reading.has_some(()):
                if not await self._polls.wait(deadline_ms):
                    return None
                continue
            if max_wait_ms:
                until_ms = self._clock.monotonic_ms() + max_wait_ms
                while reading.at_most() < most and not reading.is_full(self._settings.max_partition_fetch_bytes):
                    if not await self._polls.wait(until_ms, news=True):
                        break
                    await self._polls.poll(until_ms)
            metadata = self._metadata()
            taken = reading.take(most, (), metadata)
            self._fetcher.pump()
            if taken:
                return reading.batch(taken, metadata)

    def _note_asked(self) -> None:
        """Note that the application asks for more: it has processed what was returned before."""
        self._reading.note_asked()
        if self._spans is not None:
            self._spans.asked()

    def processing(self, records: Record | Sequence[Record]) -> AbstractContextManager[Any]:
        """Return a context manager whose span is current while records are processed, with links to what sent them.

        `with consumer.processing(records) as span:`, see tracing.md. records: one, a list or a batch. Without tracing
        it does nothing, and span is None. Raises TypeError for an iterator, which would be at its end before the work.
        """
        if not isinstance(records, Sequence):
            raise TypeError(f"records must be a record, a list or a batch, not {type(records).__name__}")
        return nullcontext() if self._spans is None else self._spans.processing(records)

    @property
    def last_batch(self) -> Batch | None:
        """What `send_offsets_to_transaction(consumer)` commits: the last batch, if nothing else was returned since the
        last commit or abort.

        Else a batch without records, with the offsets of everything returned since then; None if nothing was.
        """
        return self._reading.last_batch()

    def _metadata(self) -> ConsumerGroupMetadata | None:
        return None if self._group is None else self._group.metadata()

    async def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record to be returned. Looks it up if it is not known yet."""
        tp = TopicPartition(*partition)
        found = await self._position(tp)
        return self._subscription.state(tp).position if found is None else found

    async def _position(self, tp: TopicPartition) -> int | None:
        """Return the position; None if the partition is not assigned, or is revoked meanwhile."""
        self._reading.settle()
        deadline_ms = self._clock.monotonic_ms() + self._settings.default_api_timeout_ms
        while (state := self._subscription.assigned.get(tp)) is not None and not state.is_known:
            if state.refused is not None:
                raise state.refused
            await self._polls.look(deadline_ms)
            if not await self._polls.wait(deadline_ms, news=True):
                raise self._late(f"the position of {tp} is not known")
        return None if state is None else state.position

    def seek(self, partition: tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Continue at this offset."""
        where = offset_of(offset)
        self._reading.settle()
        self._subscription.seek(TopicPartition(*partition), where.offset, where.leader_epoch)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record in the log; without arguments, in all assigned partitions."""
        self._reading.settle()
        self._subscription.seek_to_earliest_or_latest(partitions or self.assignment(), EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record that is visible now; without arguments, in all assigned partitions."""
        self._reading.settle()
        chosen = partitions or tuple(self.assignment())
        self._subscription.seek_to_earliest_or_latest(chosen, LATEST)
        for tp in chosen:  # position() raises if a partition that the caller named is revoked meanwhile
            await (self.position if partitions else self._position)(tp)

    async def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the group's committed offsets; without arguments, in all assigned partitions."""
        chosen = partitions or self.assignment()
        self._reading.forget(chosen)
        self._subscription.seek_to_committed(chosen)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`."""
        self._reading.settle()
        self._subscription.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._subscription.resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(self._subscription.paused())

    async def _list_offsets(self, timestamps: _Times, isolation: int) -> dict[TopicPartition, Listed]:
        """Look up an offset by timestamp for each partition. isolation: Kafka's level, 0 or 1."""
        self._polls.check_open()
        self._cluster.affinity.check()
        timeout_ms = self._settings.default_api_timeout_ms
        wanted = {TopicPartition(*partition): timestamp for partition, timestamp in timestamps.items()}
        return await list_offsets(self._cluster, wanted, isolation, timeout_ms=timeout_ms)

    async def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset of the first record in each partition's log."""
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST), self._positions.isolation)
        return {tp: one.offset for tp, one in found.items()}

    async def end_offsets(
        self, partitions: Iterable[tuple[str, int]], *, isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition, or with read_uncommitted the high watermark."""
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST), self._isolation(isolation))
        return {tp: one.offset for tp, one in found.items()}

    async def offsets_for_times(self, timestamps_ms: _Times) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each timestamp; None if there is none."""
        found = await self._list_offsets(timestamps_ms, self._positions.isolation)
        return {tp: OffsetAndTimestamp(*one) if one.offset >= 0 else None for tp, one in found.items()}

    async def lag(self, *, isolation: IsolationLevel | None = None) -> dict[TopicPartition, int]:
        """Return how many offsets each position is behind the end, for this isolation level or the consumer's own."""
        ends = await self.end_offsets(self.assignment(), isolation=isolation)
        found = {tp: await self._position(tp) for tp in ends}
        return {tp: max(0, ends[tp] - position) for tp, position in found.items() if position is not None}

    def _isolation(self, isolation: IsolationLevel | None) -> int:
        """Return Kafka's number of an isolation level; None: of the consumer's own."""
        if isolation is None:
            return self._positions.isolation
        return READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED

    def _member(self) -> Group:
        """Return the group. Raises IllegalStateError if the consumer has no group_id."""
        if self._group is None or not self._group.leaving:  # a listener may commit while the consumer is being closed
            self._polls.check_open()
        if self._group is None:
            raise IllegalStateError("without a group_id there are no committed offsets", hint="set group_id")
        return self._group

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member and its generation, for transactions (KIP-447).

        Raises IllegalStateError without a group, or before the member has joined it: the broker accepts offsets without
        a generation from any client.
        """
        metadata = self._member().metadata()
        if self._subscription.is_subscribed and metadata.generation < 0:
            raise IllegalStateError(
                f"this consumer has not joined group {metadata.group_id} yet",
                hint="read first, and call it again for each transaction",
            )
        return metadata

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commit the positions, or these offsets (of the next record to read). Raises CommitFailedError and others."""
        group = self._member()
        self._reading.settle()
        if offsets is None:
            wanted = self._subscription.positions()
        else:
            wanted = {TopicPartition(*tp): offset_of(one) for tp, one in offsets.items()}
        await group.commit(wanted)
        self._reading.note_committed(wanted)

    async def committed(
        self, *partitions: TopicPartition, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, by default of the assigned partitions; None for a partition without
        one.

        require_stable: wait for open transactions that will commit offsets.
        """
        return await self._member().committed(partitions or self.assignment(), require_stable=require_stable)
