"""The spans of what a producer sends: one for each record, or one for each batch.

The rules: a producer without tracing does nothing for it, since the accumulator's `append` is replaced where there is
one. A span begins when its record, or its batch's first record, was taken, and ends when the batch is acknowledged or
has failed. Its context goes into the headers, unless the application has put one there, which is then linked.
Source: OpenTelemetry's messaging conventions: "send" spans and creation contexts.
"""

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind

from ..values import Headers, TopicPartition, headers_bytes
from . import conventions as names
from .headers import MAX_LINKS
from .spans import Spans, note_error
from .transacting import TransactionSpans


class _SendSpans(ABC):
    """Makes spans of what a producer sends: the part that spans for records and for batches have in common."""

    def __init__(
        self,
        spans: Spans,
        accumulator: Any,
        transactions: TransactionSpans | None,
        client_id: str,
        cluster: Any,
    ) -> None:
        self._spans = spans
        self._accumulator = accumulator
        self._transactions = transactions
        self._attributes = names.operation("send", "send", client_id)
        self._cluster = cluster
        self._append = accumulator.append
        accumulator.append = self.append

    def append(
        self,
        topic: Any,
        index: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp_ms: int,
    ) -> tuple[Any, int] | None:
        """Append a record by the accumulator's own append, and begin a span for it if it was taken.

        Returns what the accumulator's append has returned: the batch and the record's number in it; None if the memory
        limit allows no other now. An error of tracing is logged, and does not fail the append.
        """
        placed: tuple[Any, int] | None = self._append(topic, index, key, value, headers, timestamp_ms)
        if placed is not None:
            try:
                self._taken(*placed, value, headers or ())
            except Exception as error:
                self._spans.failed(error)
        return placed

    @abstractmethod
    def _taken(self, batch: Any, number: int, value: bytes | None, headers: Headers) -> None:
        """Note that a record was taken. batch, number: where it is. headers: those that the application gave it."""

    def _batch_attributes(self, batch: Any) -> dict[str, Any]:
        """Return the attributes of a batch's spans: topic, partition and the leader's address."""
        tp: TopicPartition = batch.partition.topic_partition
        found: dict[str, Any] = {
            **self._attributes,
            names.DESTINATION: tp.topic,
            names.PARTITION: str(tp.partition),
        }
        address = self._cluster.metadata.leader_address(tp)
        if address is not None:
            found[names.SERVER_ADDRESS], found[names.SERVER_PORT] = address
        return found

    def _parent(self) -> tuple[Context | None, list[Link]]:
        return (None, []) if self._transactions is None else self._transactions.parent()

    def _add(self, batch: Any, number: int, headers: Headers, added: Headers) -> None:
        """Add headers to a record that was taken, and count the memory that they need.

        A record that is large enough to be refused because of them goes without.
        """
        if added:
            size = headers_bytes(added)
            if not self._accumulator.may_grow(batch, number, size):
                return
            batch.headers[number] = headers + added
            batch.size_bytes += size
            self._accumulator.free_bytes -= size


class RecordSpans(_SendSpans):
    """A span for each record."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: dict[Any, tuple[dict[str, Any], list[tuple[int, Span]]]] = {}

    def _taken(self, batch: Any, number: int, value: bytes | None, headers: Headers) -> None:
        """Start the span of a record that was added to a batch."""
        entry = self._open.get(batch)
        if entry is None:
            entry = self._open[batch] = self._batch_attributes(batch), []
            batch.on_done.append(partial(self._done, batch))
        attributes, open_spans = entry
        context, links = self._parent()
        own = self._spans.contexts.span_context(headers) if headers else None
        if own is not None:
            links.append(Link(own))
        if value is None:
            attributes = {**attributes, names.TOMBSTONE: True}
        name = f"send {attributes[names.DESTINATION]}"
        span = self._spans.start(name, SpanKind.PRODUCER, attributes, context=context, links=links)
        open_spans.append((number, span))
        if own is None and span.get_span_context().is_valid:
            self._add(batch, number, headers, self._spans.contexts.headers(trace.set_span_in_context(span), headers))

    def _done(self, batch: Any) -> None:
        """End the spans of the records in a finished batch."""
        _, open_spans = self._open.pop(batch)
        for number, span in open_spans:
            self._spans.end(span, partial(_set_result, span, batch, number))


def _set_result(span: Span, batch: Any, number: int) -> None:
    """Set a record's offset, or the error with which it failed, in its span."""
    try:
        metadata = batch.metadata(number)
    except Exception as error:
        _set_failed(span, batch, error)
    else:
        if metadata.offset >= 0:
            span.set_attribute(names.OFFSET, metadata.offset)


def _set_failed(span: Span, batch: Any, error: Exception) -> None:
    """Record the batch's error on the span, and whether the broker may have written the batch all the same."""
    span.set_attribute(names.MAYBE_WRITTEN, bool(getattr(error, "maybe_written", batch.maybe_written)))
    note_error(span, error)


class BatchSpans(_SendSpans):
    """A span for each batch, whose context all its records carry. It is a child of what was current at its first
    record, and has links to what was current at the others.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: dict[Any, _BatchSpan] = {}

    def _taken(self, batch: Any, number: int, value: bytes | None, headers: Headers) -> None:
        """Add a record to the span of its batch; the first record starts the span."""
        entry = self._open.get(batch)
        if entry is None:
            attributes = self._batch_attributes(batch)
            context, links = self._parent()
            name = f"send {attributes[names.DESTINATION]}"
            span = self._spans.start(name, SpanKind.PRODUCER, attributes, context=context, links=links)
            entry = self._open[batch] = _BatchSpan(span, trace.get_current_span())
            batch.on_done.append(partial(self._done, batch))
            if span.get_span_context().is_valid:
                entry.added = self._spans.contexts.headers(trace.set_span_in_context(span), ())
        else:
            entry.link_current()
        own = self._spans.contexts.fields_of(headers) if headers else ()
        if own and (linked := self._spans.contexts.span_context(own)) is not None:
            entry.link(linked)
            return
        taken = {each[0] for each in own}
        added = entry.added if not own else tuple(each for each in entry.added if each[0] not in taken)
        self._add(batch, number, headers, added)

    def _done(self, batch: Any) -> None:
        """End the span of a batch that was acknowledged or has failed."""
        span = self._open.pop(batch).span
        self._spans.end(span, partial(_set_batch_result, span, batch))


def _set_batch_result(span: Span, batch: Any) -> None:
    """Set the number of records, the number of attempts if above one, and the error of a batch in its span."""
    span.set_attribute(names.MESSAGE_COUNT, len(batch.timestamps))
    if batch.attempts > 1:
        span.set_attribute(names.ATTEMPTS, batch.attempts)
    if batch.error is not None:
        _set_failed(span, batch, batch.error)


class _BatchSpan:
    """The span of one batch. added: the headers with its context. begun_in: the span that was current then."""

    __slots__ = ("_linked", "_seen", "added", "span")

    def __init__(self, span: Span, begun_in: Span) -> None:
        self.span = span
        self.added: Headers = ()
        self._seen = begun_in
        self._linked = {begun_in.get_span_context().span_id}

    def link_current(self) -> None:
        """Add a link to the current span, unless it is the same as at the last call."""
        current = trace.get_current_span()
        if current is not self._seen:
            self._seen = current
            self.link(current.get_span_context())

    def link(self, context: trace.SpanContext) -> None:
        """Add a link to this span, unless the batch has it already, or has MAX_LINKS."""
        # _linked has begun_in as well, which is not a link
        if context.is_valid and context.span_id not in self._linked and len(self._linked) <= MAX_LINKS:
            self._linked.add(context.span_id)
            self.span.add_link(context)
