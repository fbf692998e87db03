"""The broker's counters: plain ints in slots. They are increased where things happen, and read when metrics are shown.

Counters only grow; a rate is the difference of two reads. Nothing is computed here until it is read. What a connection
or a log counts by itself is not counted here again, but added up when it is read (requests/exported_metrics.py).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..protocol.schema import OWN_APIS_FROM

API_KEYS = 160  # APIs that can be counted; Kafka's keys end below 100
OWN_APIS_AT = 120  # APIs of our own are counted from this index on

KEPT_FAILURES = 20


def counter_of(api_key: int) -> int:
    """Return the index in Metrics.requests where requests of this API are counted."""
    return api_key if api_key < OWN_APIS_AT else api_key - OWN_APIS_FROM + OWN_APIS_AT


COUNTED_FAST = (0, 24, 26)  # Produce, AddPartitionsToTxn, EndTxn: the APIs with fast paths

COMMITTED, ABORTED, TIMED_OUT, BY_ADMIN, FENCED = "commit", "abort", "timeout", "admin", "fenced"
"""What ended a transaction. FENCED: InitProducerId on its id, of a newer producer or of an admin."""
REJECTED, AT_THE_LIMIT, NO_DATA = "rejected", "delivery_limit", "no_data"
"""Why a share group does not deliver a record any more that nobody has accepted."""


class Histogram:
    """Counts numbers by powers of two: counts[n] is how many were above 2 ** (n - 1) and at most 2 ** n."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * 65
        self.total = 0

    def add(self, value: int, times: int = 1) -> None:
        """Count this value (0 or more) `times` times, under the lowest power of two that is not below it."""
        self.counts[(value - 1).bit_length()] += times
        self.total += value * times

    def copy(self) -> "Histogram":
        """Return a histogram with the same counts, which does not change when this one does."""
        other = Histogram()
        other.counts, other.total = self.counts.copy(), self.total
        return other


class StoreOfObjects(Protocol):
    """The metrics of a journal in an object store, which ownership/owner.py provides."""

    @property
    def is_troubled(self) -> bool:
        """Whether the last attempt to write a round of the journal has failed."""
        ...

    def silent_ms(self) -> int:
        """Return for how many ms the broker has waited for a needed answer of the store; 0 if it waits for none.

        It waits while a call is unanswered, or while all calls of its kind end with errors.
        """
        ...

    def durations(self) -> Mapping[tuple[str, ...], Histogram]:
        """Return how long calls took (a histogram of ns), by (call, kind of object)."""
        ...

    def endings(self) -> Mapping[tuple[str, ...], int]:
        """Return how many calls have ended, by (call, kind of object, how they ended)."""
        ...


@dataclass(slots=True)
class Backup:
    """What a backup process beside this broker has reported.

    covered_ms: the backup contains all that was acknowledged before this time (monotonic ms of the broker's clock);
    None: it contains nothing yet.
    """

    is_followed: bool = False
    is_troubled: bool = False
    covered_ms: int | None = None
    points: int = 0
    objects: int = 0
    size_bytes: int = 0


class Counting(Protocol):
    """The attributes of a connection that metrics read."""

    bytes_in: int
    bytes_out: int


class Metrics:
    """Counters since the start of this broker."""

    __slots__ = (
        "_bytes_in_before",
        "_bytes_out_before",
        "accepted_connections",
        "appended_before",
        "backup",
        "bytes_uncopied",
        "closed_expired",
        "closed_idle",
        "closed_malformed",
        "closed_slow",
        "closed_unauthenticated",
        "closed_unsupported",
        "cold_reads",
        "connections",
        "duplicates_refused",
        "errors_by_api",
        "failed_handshakes",
        "failed_logins",
        "failures",
        "fast_requests",
        "fenced_connections",
        "fetch_waits",
        "fetched_bytes",
        "general_requests",
        "logins",
        "loop_lag_ms",
        "out_of_order",
        "prepared_for_long",
        "recovery_ms",
        "refused_connections",
        "request_ns",
        "round_bytes",
        "share_acknowledged",
        "share_archived",
        "share_locks_timed_out",
        "stale_epochs",
        "stalls",
        "store_of_objects",
        "sync_ns",
        "throttle_ms",
        "throttles",
        "transaction_ms",
        "transactions_ended",
    )

    def __init__(self) -> None:
        # By API key, see counter_of: those that the dispatcher reads, and those that took a fast path.
        self.general_requests = [0] * API_KEYS
        self.fast_requests = [0] * API_KEYS
        self.request_ns: dict[int, Histogram] = {}  # how long requests took, by API key as above
        self.errors_by_api: dict[tuple[str, int], int] = {}  # error codes in responses, by API name and code
        self.failures: list[BaseException] = []  # the first few unexpected exceptions: bugs
        self.accepted_connections = 0
        self.refused_connections = 0
        self.closed_malformed = 0
        self.closed_unsupported = 0
        self.closed_idle = 0
        self.closed_slow = 0  # connections that sent a large request too slowly
        self.closed_unauthenticated = 0  # connections that did not log in in time
        self.closed_expired = 0  # connections whose SASL session had ended
        self.logins = 0
        self.failed_logins = 0
        self.failed_handshakes = 0  # of TLS
        self.connections: Collection[Counting] = ()  # the present ones
        self._bytes_in_before = 0  # of connections that have ended
        self._bytes_out_before = 0
        self.bytes_uncopied = 0  # bytes sent from the page cache without copying
        self.duplicates_refused = 0
        self.out_of_order = 0
        self.stale_epochs = 0
        self.fenced_connections = 0  # closed: their client uses a newer one
        self.prepared_for_long = 0  # transactions prepared too long, at present
        self.fetch_waits = 0
        self.fetched_bytes = 0  # of record batches, in answers to Fetch
        self.cold_reads = 0
        self.stalls = 0  # times a connection was not read because something was full
        self.share_acknowledged = {"gap": 0, "accept": 0, "release": 0, "reject": 0, "renew": 0}  # records, by type
        self.share_archived = {REJECTED: 0, AT_THE_LIMIT: 0, NO_DATA: 0}  # records, by reason
        self.share_locks_timed_out = 0  # records

        self.backup = Backup()
        self.store_of_objects: StoreOfObjects | None = None  # None: the journal is local
        self.recovery_ms = 0  # from the start until the broker listened
        self.appended_before: dict[int, tuple[int, int]] = {}  # by log: its end offset and bytes as recovered
        self.sync_ns = Histogram()  # how long it took to write and sync a round
        self.round_bytes = Histogram()
        self.loop_lag_ms = Histogram()  # how late the loop came back to housekeeping, while that is awake
        self.transactions_ended = {COMMITTED: 0, ABORTED: 0, TIMED_OUT: 0, BY_ADMIN: 0, FENCED: 0}
        self.transaction_ms = Histogram()  # their durations, from the first partition to the end
        self.throttles: dict[str, int] = {}  # throttled answers, by the quota that was exceeded
        self.throttle_ms: dict[str, int] = {}  # their total wait

    @property
    def requests(self) -> list[int]:
        """The number of requests of each API, at the index that counter_of() returns for the API."""
        return [a + b for a, b in zip(self.general_requests, self.fast_requests, strict=True)]

    @property
    def bytes_in(self) -> int:
        """Bytes received from all clients since the start."""
        return self._bytes_in_before + sum(each.bytes_in for each in self.connections)

    @property
    def bytes_out(self) -> int:
        """Bytes sent to all clients since the start."""
        return self._bytes_out_before + sum(each.bytes_out for each in self.connections)

    def left(self, connection: Counting) -> None:
        """Add the bytes of a connection that has ended to the totals. It must no longer be in `connections`."""
        self._bytes_in_before += connection.bytes_in
        self._bytes_out_before += connection.bytes_out

    def throttled(self, kind: str, wait_ms: int) -> None:
        """Count an answer after which a client must wait wait_ms. kind: the kind of quota."""
        self.throttles[kind] = self.throttles.get(kind, 0) + 1
        self.throttle_ms[kind] = self.throttle_ms.get(kind, 0) + wait_ms

    def error(self, api: str, code: int) -> None:
        """Count an answer, or a part of one, with this error code. api: its name in protocol.apis."""
        counts, key = self.errors_by_api, (api, code)
        counts[key] = counts.get(key, 0) + 1

    @property
    def errors(self) -> dict[int, int]:
        """The number of answers with an error, by error code."""
        found: dict[int, int] = {}
        for (_, code), count in self.errors_by_api.items():
            found[code] = found.get(code, 0) + count
        return found

    def failed(self, error: BaseException) -> None:
        """Keep an unexpected error, which is a bug. Only the first few are kept, and later ones ignored, because their
        tracebacks take memory.
        """
        if len(self.failures) < KEPT_FAILURES:
            self.failures.append(error)
