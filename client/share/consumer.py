"""The consumer of a share group: a queue for many consumers, whose records are acknowledged one by one.

The rule: a record is delivered to one consumer at a time, and again to any of them unless it is acknowledged. The
default is explicit acknowledgement: what the application says nothing about is delivered again, by the end of its lock
or when the consumer is closed. In implicit mode asking for more accepts what was returned before. Source: KIP-932.
"""

import asyncio
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..addresses import Bootstrap
from ..arguments import check_topic_name, positive
from ..config_names import settings_from
from ..errors import IllegalStateError, RequestTimedOutError
from ..net.environment import SYSTEM, Environment
from ..reader_parts import CLOSING_MS
from ..settings import ShareConsumerSettings, share_consumer_settings
from ..snapshots import ShareConsumerSnapshot
from ..values import AcknowledgeType, ShareRecord
from .held import check_record
from .polls import SharePolls
from .taken import TakenRecords

if TYPE_CHECKING:
    from typing import Unpack

    from ..metrics.counters import ClientMetrics
    from ..settings import ShareConsumerKeywords
    from ..tracing.tracing import TracerProvider, Tracing

NEVER_MS = float("inf")


class ShareConsumer:
    """`async with ShareConsumer("localhost:9092", topics=["orders"], group_id="billing") as consumer: …`.

    Keywords: those of ShareConsumerSettings, and of the connection. `from_config` takes Java's and librdkafka's names.
    """

    def __init__(
        self,
        bootstrap_servers: Bootstrap,
        *,
        topics: Collection[str] = (),
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        environment: Environment = SYSTEM,
        **keywords: "Unpack[ShareConsumerKeywords]",
    ) -> None:
        self._set_up(share_consumer_settings(bootstrap_servers, **keywords), topics, environment)
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
    ) -> "ShareConsumer":
        """Create a consumer from setting names of Java's client or of librdkafka, such as {"bootstrap.servers": …}.

        The default of acknowledgement stays "explicit". Raises InvalidConfigurationError.
        """
        consumer = cls.__new__(cls)
        consumer._set_up(settings_from(ShareConsumerSettings, config), topics, environment)
        consumer._watch(metrics, tracing)
        return consumer

    def _set_up(self, settings: ShareConsumerSettings, topics: Collection[str], environment: Environment) -> None:
        self._settings = settings
        self._implicit = settings.acknowledgement == "implicit"
        self._clock = environment.clock
        self._polls = SharePolls(settings, environment)
        self._spans: Any = None
        if topics:
            self.subscribe(topics)

    def _watch(self, metrics: "ClientMetrics | None", tracing: "Tracing | TracerProvider | bool | None") -> None:
        """Connect the consumer with metrics and tracing, if given. tracing: True for the default tracer."""
        if metrics is not None:
            metrics.watch_share_consumer(self._polls.arrivals, self._polls.held)
        if tracing:
            from ..tracing.tracing import tracing_of

            settings = self._settings
            self._spans = tracing_of(tracing).consumer_spans(settings.client_id, settings.group_id, self._clock.now_ms)

    def __repr__(self) -> str:
        return f"<ShareConsumer group={self._settings.group_id} member={self._polls.member.member_id}>"

    def state(self) -> ShareConsumerSnapshot:
        """Return a snapshot of the consumer: its membership, records and connections."""
        return self._polls.state()

    # ---- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect. Raises BrokerUnreachableError, UnsupportedVersionError if the broker has no share groups, and
        errors of the login.
        """
        await self._polls.start()

    async def close(self, *, timeout_ms: float = CLOSING_MS) -> None:
        """Send the acknowledgements, release all other records, and leave the group, within timeout_ms. Idempotent."""
        await self._polls.close(timeout_ms)

    stop = close

    async def _close_after(self, error: BaseException | None, timeout_ms: float = CLOSING_MS) -> None:
        """Close after an `async with` block. After an error, implicit mode does not accept the records that were
        returned last.
        """
        await self._polls.close(timeout_ms, is_done=error is None)

    def __del__(self) -> None:
        polls = getattr(self, "_polls", None)
        if polls is not None and polls.is_open:
            warnings.warn(f"{self!r} was never closed: use `async with`", ResourceWarning, source=self)
            polls.end_unheld(CLOSING_MS)

    async def __aenter__(self) -> "ShareConsumer":
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

    # ---- topics ------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics and no others. Records of other topics that were returned before can still be
        acknowledged.
        """
        self._polls.check_open()
        if isinstance(topics, str):
            raise TypeError(f"topics must be a list of names, not a str: [{topics!r}]")
        for topic in topics:
            check_topic_name(topic)
        if not topics:
            raise ValueError("subscribe() needs topics")
        self._polls.subscribe(topics)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._polls.member.topics

    # ---- reading -----------------------------------------------------------------------------------------------

    def __aiter__(self) -> "ShareConsumer":
        return self

    async def __anext__(self) -> ShareRecord:
        return await self.getone()

    async def getone(self, *, timeout_ms: float | None = None) -> ShareRecord:
        """Wait for the next record. Raises RequestTimedOutError after timeout_ms."""
        deadline_ms = NEVER_MS if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        found = await self._take(1, deadline_ms)
        if not found:
            raise RequestTimedOutError(f"no record within {timeout_ms:g} ms")
        return found[0]

    async def getmany(self, *, timeout_ms: float | None = 0, max_records: int | None = None) -> list[ShareRecord]:
        """Return the available records, at most max_records (default: max_poll_records). Waits up to timeout_ms for
        the first; with None for as long as it takes.
        """
        deadline_ms = NEVER_MS if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        await asyncio.sleep(0)  # so that a loop of calls that never wait does not block other tasks and the fetcher
        return await self._take(self._most(max_records), deadline_ms)

    def batches(self, max_records: int | None = None, *, timeout_ms: float | None = None) -> "ShareBatches":
        """Return an async iterator over lists of records: each has what has arrived, at most max_records (default:
        max_poll_records).

        timeout_ms: the loop ends if no record comes for so long; another loop over the same iterator continues.
        """
        return ShareBatches(self, self._most(max_records), timeout_ms)

    def _most(self, max_records: int | None) -> int:
        return self._settings.max_poll_records if max_records is None else positive(max_records, "max_records")

    async def _take(self, most: int, deadline_ms: float) -> list[ShareRecord]:
        """Return records, at most `most`, as soon as there is one; none after deadline_ms (monotonic clock)."""
        polls, spans = self._polls, self._spans
        if spans is not None:
            spans.asked()
        polls.arrivals.begin_poll(implicit=self._implicit)
        if polls.held.unsent_sessions:
            polls.fetcher.send_soon()
        while True:
            polls.poll()
            found = polls.arrivals.take(most, polls.now())
            if found and spans is not None:
                spans.returned((found,))
            if found or not await polls.wait(deadline_ms):
                return found

    def processing(self, records: ShareRecord | Sequence[ShareRecord]) -> AbstractContextManager[Any]:
        """Return a context manager whose span is current while these records are processed; it is linked to the spans
        that sent them. See tracing.md.

        Without tracing it does nothing, and its value is None.
        """
        return nullcontext() if self._spans is None else self._spans.processing(records)

    # ---- acknowledgements --------------------------------------------------------------------------------------

    def acknowledge(self, record: ShareRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge the record: accept, release or reject it, or renew its lock. The acknowledgement is sent soon,
        with others; `commit` sends it now and waits for the answer.

        Raises RecordNotHeldError for a record that is not this consumer's any more: it is delivered again.
        """
        polls = self._polls
        polls.check_started()
        check_record(record)
        kind = type if isinstance(type, AcknowledgeType) else AcknowledgeType(type)
        polls.held.acknowledge(record.delivery, record.offset, kind, self._clock.monotonic_ms())
        if kind is AcknowledgeType.RENEW:
            polls.fetcher.pump()
        else:
            polls.fetcher.send_soon()

    async def commit(self) -> None:
        """Send all acknowledgements and wait for the answers; in implicit mode accept what was returned before.

        Raises RecordNotHeldError and others if the broker did not take some of them since the last call: their records
        are delivered again.
        """
        self._polls.check_started()
        if self._implicit:
            self._polls.arrivals.begin_poll(implicit=True)
        committing = self._polls.commit()
        await (committing if self._spans is None else self._spans.committing((), committing))

    def taken_by_transaction(self) -> TakenRecords:
        """Return an object that collects the records which one transaction acknowledges. Raises IllegalStateError in
        implicit mode.
        """
        self._polls.check_started()
        if self._implicit:
            raise IllegalStateError(
                'tx.acknowledge needs acknowledgement="explicit": in implicit mode asking for more accepts a record '
                "whose transaction failed before it, so its work would be lost",
                hint='leave out acknowledgement="implicit"',
            )
        return TakenRecords(self._polls)


class ShareBatches:
    """Iterator of `async for records in consumer.batches()`; it may be iterated again, also after an error."""

    def __init__(self, consumer: ShareConsumer, most: int, timeout_ms: float | None) -> None:
        self._consumer = consumer
        self._most = most
        self._timeout_ms = timeout_ms

    def __aiter__(self) -> "ShareBatches":
        return self

    async def __anext__(self) -> list[ShareRecord]:
        timeout_ms = NEVER_MS if self._timeout_ms is None else self._timeout_ms
        found = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=self._most)
        if not found:
            raise StopAsyncIteration
        return found
