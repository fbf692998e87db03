"""The context of a trace in the headers of a record: W3C's traceparent and tracestate, or what the propagator writes.

The rules: a header that the application has set is never replaced. Of several headers with one name the last counts, as
in Kafka's clients. What a record contains may come from anybody, so a longer value than any propagator writes is not
looked at.
"""

from collections.abc import Iterable
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter, TextMapPropagator

from ..values import Headers, Record, ShareRecord

LONGEST_BYTES = 8192  # of a header that is read: W3C's limit of baggage, the longest of them
MAX_LINKS = 128  # of a span: what the SDK keeps of them by default


class _Reading(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        for name, value in reversed(carrier):
            if name == key:
                if value is None or len(value) > LONGEST_BYTES:
                    return None
                return [value.decode("latin-1")]
        return None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


class _Writing(Setter[list[tuple[str, bytes | None]]]):
    def set(self, carrier: list[tuple[str, bytes | None]], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_READING, _WRITING = _Reading(), _Writing()


class HeaderContext:
    """Reads and writes contexts with one propagator."""

    def __init__(self, propagator: TextMapPropagator) -> None:
        self._propagator = propagator
        self._fields = frozenset(propagator.fields)

    def headers(self, context: Context, present: Headers) -> Headers:
        """Return the headers to add for this context, without those that are present."""
        written: list[tuple[str, bytes | None]] = []
        self._propagator.inject(written, context, _WRITING)
        taken = {name for name, _ in present} if present else ()
        return tuple(each for each in written if each[0] not in taken)

    def context(self, headers: Headers) -> Context:
        """Return the trace context in these headers; an empty one if they have none."""
        return self._propagator.extract(headers, Context(), _READING)

    def fields_of(self, headers: Headers) -> Headers:
        """Return the headers that the propagator uses."""
        fields = self._fields
        return tuple(each for each in headers if each[0] in fields)

    def span_context(self, headers: Headers) -> trace.SpanContext | None:
        """Return the context of the span that sent these headers; None without a valid one."""
        if not self.fields_of(headers):
            return None
        found = trace.get_current_span(self.context(headers)).get_span_context()
        return found if found.is_valid else None

    def links(self, records: Iterable[Record | ShareRecord]) -> list[trace.Link]:
        """Return links to the spans that sent these records, each once, at most MAX_LINKS."""
        seen: set[Any] = set()
        links: list[trace.Link] = []
        for record in records:
            if not record.headers or (fields := self.fields_of(record.headers)) in seen:
                continue
            seen.add(fields)
            if fields and (found := self.span_context(fields)) is not None:
                links.append(trace.Link(found))
                if len(links) == MAX_LINKS:
                    break
        return links
