"""The span of a transaction, from its begin until its outcome is known or given up.

The rules: what is sent in it is a child of the transaction's span, or of a span that the application has opened in
between, with a link to the transaction's. The records of a batch that is committed with it are linked. The span is an
error if the transaction failed, was left by an exception, or its outcome is unknown; if the outcome becomes known
later, a span of its own with a link says so. `begin` and `send_offsets` of a driver are replaced where it is traced.
"""

from functools import partial
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode

from ..errors import ProducerFencedError
from . import conventions as names
from .headers import MAX_LINKS
from .spans import Spans, note_error


class TransactionSpans:
    """Makes the spans of one producer's transactions."""

    def __init__(self, spans: Spans, driver: Any, client_id: str) -> None:
        self._spans = spans
        self._machine = driver.machine
        self._attributes = {
            **names.operation("transaction", "", client_id),
            names.TRANSACTIONAL_ID: driver.transactional_id,
        }
        self.open: _TransactionSpan | None = None
        begin, send_offsets = driver.begin, driver.send_offsets

        async def traced_begin(sources: Any = None, database: Any = None) -> None:
            await begin(sources, database)
            self._begin(driver.sources)

        async def traced_offsets(offsets: Any, group: Any, batch: Any = None) -> None:
            """Name the group in the transaction's span, and send the offsets."""
            if self.open is not None:
                self.open.set(names.GROUP, group.group_id)
            await send_offsets(offsets, group, batch)

        driver.begin, driver.send_offsets = traced_begin, traced_offsets

    def _begin(self, sources: Any) -> None:
        """Start the span of a transaction that begins now. sources: its batches and its label."""
        try:
            identity = self._machine.identity
            attributes: dict[str, Any] = {
                **self._attributes,
                names.PRODUCER_ID: identity.producer_id,
                names.PRODUCER_EPOCH: identity.epoch,
            }
            if sources.label is not None:
                attributes[names.LABEL] = sources.label
            begun_in = trace.get_current_span().get_span_context()
            span = self._spans.start("transaction", SpanKind.CLIENT, attributes)
            self.open = sources.watch = _TransactionSpan(self, span, begun_in, sources)
        except Exception as error:
            self._spans.failed(error)

    def parent(self) -> tuple[Context | None, list[Link]]:
        """Return what a span of a send needs: its parent's context, None for the current one, and its links."""
        found = self.open
        if found is None or not found.context.is_valid:
            return None, []
        current = trace.get_current_span().get_span_context()
        if not current.is_valid or current.span_id == found.begun_in.span_id:
            return trace.set_span_in_context(found.span), []
        return None, ([] if current.span_id == found.context.span_id else [Link(found.context)])

    def ended(self, which: "_TransactionSpan", outcome: str | None, cause: str | None) -> None:
        """Set outcome and cause of the transaction in its span, as far as they are known, and end the span."""
        if self.open is which:
            self.open = None
        self._spans.end(which.span, partial(self._set_end, which.span, outcome, cause))

    def _set_end(self, span: Span, outcome: str | None, cause: str | None) -> None:
        """Set the transaction's partitions, outcome and error in its span. outcome: None if it was not confirmed."""
        error = self._machine.error
        span.set_attribute(names.PARTITIONS, len(self._machine.partitions))
        if outcome is None:
            outcome = "fenced" if isinstance(error, ProducerFencedError) else "not confirmed"
        span.set_attribute(names.OUTCOME, outcome)
        if outcome == "committed":
            return
        if outcome == "unknown":
            error = error or self._machine.failure()
        if error is not None:
            note_error(span, error)
        elif cause is not None:
            span.set_attribute(names.ERROR_TYPE, cause)
            span.set_status(Status(StatusCode.ERROR, f"aborted because of {cause}"))
        elif outcome != "aborted":
            span.set_status(Status(StatusCode.ERROR, "the abort is not confirmed"))

    def resolved(self, which: "_TransactionSpan", outcome: str) -> None:
        """Record the outcome of a transaction whose span has ended already, in a new span that is linked to it."""
        try:
            attributes = {**self._attributes, names.OPERATION_NAME: "resolve", names.OUTCOME: outcome}
            self._spans.start("resolve", SpanKind.CLIENT, attributes, links=[Link(which.context)]).end()
        except Exception as error:
            self._spans.failed(error)

    def links_of(self, batch: Any) -> list[Link]:
        """Return links to the spans that sent the records of a batch."""
        return self._spans.contexts.links(batch)

    def failed(self, error: Exception) -> None:
        self._spans.failed(error)


class _TransactionSpan:
    """The span of one transaction, which is told of its course as `watch` of its Sources. begun_in: the span that was
    current when it began.
    """

    __slots__ = ("_links", "_of", "_outcome", "_sources", "begun_in", "context", "is_open", "span")

    def __init__(self, of: TransactionSpans, span: Span, begun_in: SpanContext, sources: Any) -> None:
        self._of = of
        self.span = span
        self.context = span.get_span_context()
        self.begun_in = begun_in
        self.is_open = True
        self._sources = sources
        self._outcome: str | None = None
        self._links = 0

    def set(self, name: str, value: str) -> None:
        """Set an attribute."""
        try:
            self.span.set_attribute(name, value)
        except Exception as error:
            self._of.failed(error)

    def reads(self, batch: Any) -> None:
        """Note that a consumed batch is committed with the transaction."""
        try:
            if batch.group_metadata is not None:
                self.span.set_attribute(names.GROUP, batch.group_metadata.group_id)
            self._link(batch)
        except Exception as error:
            self._of.failed(error)

    def acknowledges(self, group_id: str, records: Any) -> None:
        """Note that records of a share group are acknowledged with the transaction."""
        try:
            self.span.set_attribute(names.GROUP, group_id)
            self._link(records)
        except Exception as error:
            self._of.failed(error)

    def _link(self, records: Any) -> None:
        """Add links to the spans that sent these records, at most MAX_LINKS for a transaction."""
        for link in self._of.links_of(records)[: MAX_LINKS - self._links]:
            self.span.add_link(link.context)
            self._links += 1

    def ended(self, outcome: str | None) -> None:
        """Note the outcome, and end the span. outcome: None if nothing has confirmed it. May be called again when more
        is known.
        """
        if self.is_open:
            self.is_open = False
            self._outcome = outcome
            self._of.ended(self, outcome, self._sources.cause)
        elif outcome is not None and self._outcome not in ("committed", "aborted", outcome):
            self._outcome = outcome
            self._of.resolved(self, outcome)
