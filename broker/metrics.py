"""What the broker counts of itself: plain ints in slots, added to where things happen, read by whoever shows them.

Counters only grow; whoever wants a rate reads twice. Nothing is computed here until someone asks.
"""

API_KEYS = 128  # Kafka's keys end below 100
OWN_APIS_FROM, OWN_APIS_AT = 20_000, 120  # our own are counted behind them


KEPT_FAILURES = 20


def counted_at(api_key: int) -> int:
    """The place of an API's count in Metrics.requests."""
    return api_key if api_key < API_KEYS else api_key - OWN_APIS_FROM + OWN_APIS_AT


class Metrics:
    """Counters since the start of this broker."""

    __slots__ = (
        "accepted_connections",
        "bytes_in",
        "bytes_out",
        "bytes_uncopied",
        "closed_expired",
        "closed_idle",
        "closed_malformed",
        "closed_slow",
        "closed_unauthenticated",
        "closed_unsupported",
        "cold_reads",
        "duplicates_refused",
        "errors",
        "failed_handshakes",
        "failed_logins",
        "failures",
        "fenced_connections",
        "fetch_waits",
        "logins",
        "out_of_order",
        "prepared_for_long",
        "refused_connections",
        "requests",
        "space_refusals",
        "stale_epochs",
        "stalls",
        "throttle_ms",
        "throttles",
    )

    def __init__(self) -> None:
        self.requests = [0] * API_KEYS  # by API key, see counted_at
        self.errors: dict[int, int] = {}  # responses that carry an error, by code
        self.failures: list[BaseException] = []  # what must never happen: the first few unexpected exceptions
        self.accepted_connections = 0
        self.refused_connections = 0
        self.closed_malformed = 0
        self.closed_unsupported = 0
        self.closed_idle = 0
        self.closed_slow = 0  # sent a large request so slowly that others could not send theirs
        self.closed_unauthenticated = 0  # did not log in in time, or while too many others did not either
        self.closed_expired = 0  # sent a request when its session had ended
        self.logins = 0
        self.failed_logins = 0
        self.failed_handshakes = 0  # of TLS
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_uncopied = 0  # of these, what went from the page cache to a socket
        self.duplicates_refused = 0
        self.out_of_order = 0
        self.stale_epochs = 0
        self.fenced_connections = 0  # closed because a request came over them that a newer connection had overtaken
        self.space_refusals = 0
        self.prepared_for_long = 0  # now: Prepared transactions that wait for longer than transaction.prepared.alert.ms
        self.fetch_waits = 0
        self.cold_reads = 0
        self.stalls = 0  # times a connection was not read because something was full

        self.throttles: dict[str, int] = {}  # throttled answers, by the quota that was exceeded
        self.throttle_ms: dict[str, int] = {}  # for how long, together

    def throttled(self, kind: str, wait_ms: int) -> None:
        """Count a throttled answer, by the kind of quota."""
        self.throttles[kind] = self.throttles.get(kind, 0) + 1
        self.throttle_ms[kind] = self.throttle_ms.get(kind, 0) + wait_ms

    def error(self, code: int) -> None:
        """Count a response with this error code."""
        self.errors[code] = self.errors.get(code, 0) + 1

    def failed(self, error: BaseException) -> None:
        """Something that must never happen. The first few are kept whole; their tracebacks hold a lot."""
        if len(self.failures) < KEPT_FAILURES:
            self.failures.append(error)
