"""The tracer that clients make spans with, and how spans tell of errors.

The rule: an error of a tracer, a processor or a propagator never fails what is traced: it is logged, once, and what is
traced goes on without the span.
"""

import logging
from collections.abc import Callable
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from ... import __version__
from ...protocol.errors import KafkaError
from . import conventions
from .headers import HeaderContext

log = logging.getLogger("fencepost.client")


class Spans:
    """Starts spans with the tracer of one Tracing. contexts: reads and writes the headers of records."""

    def __init__(self, provider: Any, propagator: Any) -> None:
        self._tracer = trace.get_tracer("fencepost", __version__, provider, conventions.SCHEMA_URL)
        self.contexts = HeaderContext(propagate.get_global_textmap() if propagator is None else propagator)
        self._has_failed = False

    def start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Any,
        *,
        context: Context | None = None,
        links: Any = (),
        start_ns: int | None = None,
    ) -> Span:
        """Start a span. context: of its parent; None for the current one."""
        return self._tracer.start_span(
            name, context=context, kind=kind, attributes=attributes, links=links, start_time=start_ns
        )

    def end(self, span: Span, set_result: Callable[[], None] | None = None) -> None:
        """End a span, even if set_result, which sets how its operation ended, raises."""
        try:
            try:
                if set_result is not None and span.is_recording():
                    set_result()
            finally:
                span.end()
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Log an error of the tracer itself; only the first one is logged."""
        if not self._has_failed:
            self._has_failed = True
            log.warning("tracing failed, and goes on failing silently: %r", error, exc_info=error)


def note_error(span: Span, error: BaseException) -> None:
    """Set the error that the span's operation ended with; does not end the span."""
    if span.is_recording():
        span.set_attribute(conventions.ERROR_TYPE, error_type(error))
        span.set_status(Status(StatusCode.ERROR, _text(error)))
        span.record_exception(error)


def _text(error: BaseException) -> str:
    """Return the error's message; the name of its class if str() of it raises an exception."""
    try:
        return str(error)
    except Exception:  # of the application's class
        return type(error).__qualname__


def error_type(error: BaseException) -> str:
    """Return Kafka's name of the error's code, else the name of its class."""
    return error.code.name if isinstance(error, KafkaError) else type(error).__qualname__
