"""The spans of a consumer: `poll` for what it returns, `process` for what the application does with it, `commit`.

The rules: a `poll` span counts and links the records that were really returned: of `async for`, when the next poll
settles how far it came. Polls that return nothing make no span. A span has links to the spans that sent its records;
`process` of one record is also a child of that span, unless the application has a current one.
Source: OpenTelemetry's messaging conventions: "receive", "process" and "settle" spans.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind

from ..values import Record, ShareRecord, TopicPartition
from . import conventions as names
from .spans import Spans, note_error

AnyRecord = Record | ShareRecord


class ConsumerSpans:
    """Makes the spans of one consumer: poll, process, commit."""

    def __init__(self, spans: Spans, client_id: str, group: str | None, now_ms: Callable[[], int]) -> None:
        self._spans = spans
        self._now_ms = now_ms
        more = {} if group is None else {names.GROUP: group}
        self._poll = {**names.operation("poll", "receive", client_id), **more}
        self._process = {**names.operation("process", "process", client_id), **more}
        self._commit = {**names.operation("commit", "settle", client_id), **more}
        self._asked_ns = 0
        self._run: tuple[Sequence[AnyRecord], Context, int, int] | None = None

    def _now_ns(self) -> int:
        return self._now_ms() * 1_000_000

    # ---- poll --------------------------------------------------------------------------------------------------

    def asked(self) -> None:
        """Note the time at which the application asks for records: the poll's span begins there."""
        self._asked_ns = self._now_ns()

    def returned(self, runs: Iterable[Sequence[AnyRecord]]) -> None:
        """Record the poll's span: these records are returned to the application now."""
        try:
            records = [record for run in runs for record in run]
            if records:
                self._polled(records, None, self._asked_ns, None)
        except Exception as error:
            self._spans.failed(error)

    def run_began(self, records: Sequence[AnyRecord]) -> None:
        """Note that the application iterates over these records from now on."""
        self._run = records, contexts.get_current(), self._asked_ns, self._now_ns()

    def run_ended(self, count: int) -> None:
        """Record the poll's span for a run of which the application got `count` records."""
        run, self._run = self._run, None
        try:
            if run is not None and count:
                records, context, start_ns, end_ns = run
                self._polled(records[:count], context, start_ns, end_ns)
        except Exception as error:
            self._spans.failed(error)

    def _polled(self, records: Sequence[AnyRecord], context: Context | None, start_ns: int, end_ns: int | None) -> None:
        """Record the span of a poll that returned these records."""
        attributes = {**self._poll, names.MESSAGE_COUNT: len(records), **_destination(records)}
        links = self._spans.contexts.links(records)
        name = _named("poll", attributes)
        span = self._spans.start(name, SpanKind.CLIENT, attributes, context=context, links=links, start_ns=start_ns)
        span.end(end_ns)

    # ---- process -----------------------------------------------------------------------------------------------

    @contextmanager
    def processing(self, records: AnyRecord | Sequence[AnyRecord]) -> Generator[Span | None]:
        """Yield a current span for the work on these records. None if the tracer fails."""
        span = None
        try:
            span = self._start_processing((records,) if isinstance(records, Record | ShareRecord) else records)
        except Exception as failed:
            self._spans.failed(failed)
        if span is None:
            yield None
            return
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            yield span
        except BaseException as error:
            self._end(span, error)
            raise
        else:
            self._end(span, None)
        finally:
            contexts.detach(token)

    def _start_processing(self, records: Sequence[AnyRecord]) -> Span:
        """Start the span of the application's work on these records."""
        attributes = {**self._process, **_destination(records)}
        links = self._spans.contexts.links(records)
        context = None
        if len(records) != 1:
            attributes[names.MESSAGE_COUNT] = len(records)
        else:
            attributes[names.OFFSET] = records[0].offset
            if records[0].value is None:
                attributes[names.TOMBSTONE] = True
            if links and not trace.get_current_span().get_span_context().is_valid:
                context = self._spans.contexts.context(records[0].headers)
        name = _named("process", attributes)
        return self._spans.start(name, SpanKind.CONSUMER, attributes, context=context, links=links)

    def _end(self, span: Span, error: BaseException | None) -> None:
        self._spans.end(span, None if error is None else partial(note_error, span, error))

    # ---- commit ------------------------------------------------------------------------------------------------

    async def committing(self, partitions: Iterable[TopicPartition], work: Awaitable[None]) -> None:
        """Await the commit of these partitions' offsets, in a span."""
        span: Span | None = None
        try:
            topics = {tp.topic for tp in partitions}
            attributes: dict[str, Any] = dict(self._commit)
            if len(topics) == 1:
                attributes[names.DESTINATION] = topics.pop()
            span = self._spans.start(_named("commit", attributes), SpanKind.CLIENT, attributes)
        except Exception as failed:
            self._spans.failed(failed)
        try:
            await work
        except BaseException as error:
            if span is not None:
                self._end(span, error)
            raise
        if span is not None:
            self._end(span, None)


def _destination(records: Sequence[AnyRecord]) -> dict[str, Any]:
    """Return the topic of these records, and their partition if all have the same."""
    partitions = {record[:2] for record in records}
    topics = {topic for topic, _ in partitions}
    found: dict[str, Any] = {}
    if len(topics) == 1:
        found[names.DESTINATION] = topics.pop()
    if len(partitions) == 1:
        found[names.PARTITION] = str(partitions.pop()[1])
    return found


def _named(operation: str, attributes: dict[str, Any]) -> str:
    """Return the name of a span: the operation and, if the attributes have one, the topic."""
    topic = attributes.get(names.DESTINATION)
    return operation if topic is None else f"{operation} {topic}"
