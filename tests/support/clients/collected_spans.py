"""OpenTelemetry spans that clients made, collected in memory."""

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler


class CollectedSpans:
    """provider: for `tracing=`."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def current(self, name: str) -> Any:
        """Begin a span of the application for the block: `with spans.current("request"):`."""
        return self.provider.get_tracer("application").start_as_current_span(name)

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the ended spans with this name, in the order in which they ended."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def names(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]


def parent_of(span: ReadableSpan) -> int | None:
    """Return the id of the span's parent."""
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    return span.context.span_id


def links_of(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that it links to."""
    return [link.context.span_id for link in span.links]


def status_of(span: ReadableSpan) -> str:
    return span.status.status_code.name
