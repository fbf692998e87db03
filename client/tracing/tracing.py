"""Tracing: what `tracing=` takes, and which spans clients make then.

The rule: this imports nothing of OpenTelemetry until one is made, and clients import nothing of this until they are
given one.
"""

from typing import Any, Protocol

from ..errors import InvalidConfigurationError
from ..values import Record, ShareRecord


class TracerProvider(Protocol):
    """OpenTelemetry's TracerProvider."""

    def get_tracer(self, instrumenting_module_name: str, /) -> Any:
        """OpenTelemetry's method: return the tracer of this name."""
        ...


class Tracing:
    """`tracing = fp.Tracing()`, then `fp.Producer(..., tracing=tracing)`; several clients may share one.

    provider: None for the global one. record_spans: a span for each record that is sent; False: for each batch.
    propagator: None for the global one, which writes traceparent, tracestate and baggage unless it was changed.
    """

    def __init__(
        self, provider: TracerProvider | None = None, *, record_spans: bool = True, propagator: Any = None
    ) -> None:
        try:
            from .spans import Spans
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] != "opentelemetry":
                raise
            raise InvalidConfigurationError(
                "tracing needs OpenTelemetry, which is not installed", hint='pip install "fencepost[otel]"'
            ) from None
        self._spans = Spans(provider, propagator)
        self._record_spans = record_spans

    def context_of(self, record: Record | ShareRecord) -> Any:
        """Return the context in a record's headers, as a parent for spans; an empty one if there is none."""
        return self._spans.contexts.context(record.headers)

    # ---- called by clients -------------------------------------------------------------------------------------

    def watch_producer(self, accumulator: Any, driver: Any, client_id: str, cluster: Any) -> None:
        """Make spans of what this producer sends, and of its transactions. driver: None without transactions."""
        from .producing import BatchSpans, RecordSpans
        from .transacting import TransactionSpans

        transactions = None if driver is None else TransactionSpans(self._spans, driver, client_id)
        kind = RecordSpans if self._record_spans else BatchSpans
        kind(self._spans, accumulator, transactions, client_id, cluster)

    def consumer_spans(self, client_id: str, group: str | None, now_ms: Any) -> Any:
        """Return the object that a consumer calls when it returns records, and commits."""
        from .consuming import ConsumerSpans

        return ConsumerSpans(self._spans, client_id, group, now_ms)


def tracing_of(given: Tracing | TracerProvider | bool) -> Tracing:
    """Return the Tracing for a client's argument `tracing`: True is the global provider; else a provider or a Tracing.

    Raises TypeError, InvalidConfigurationError.
    """
    if isinstance(given, Tracing):
        return given
    if given is not True and not hasattr(given, "get_tracer"):
        raise TypeError(f"tracing must be True, a TracerProvider or a Tracing, not {type(given).__name__}")
    return Tracing(None if isinstance(given, bool) else given)
