"""The table of all metrics of the broker, with the names that Prometheus gets; DescribeMetrics answers with it.

The rules: base units, `_total` on what only grows, labels of which there are few; topics are the exception, and at most
MAX_TOPICS of them are named. All is computed here, when it is asked for, in steps. docs/metrics.md is checked against
FAMILIES. Source: Prometheus' naming rules.
"""

import math
from collections.abc import Callable

from ... import __version__
from ...protocol.apis import APIS
from ...protocol.errors import ErrorCode
from ...protocol.messages.monitoring import COUNTER, GAUGE, HISTOGRAM
from ..metrics import Histogram, counter_of
from ..net.turns import Steps
from .backup_metrics import BACKUP_FAMILIES
from .metric_families import Exported, Family, Sample, Samples, Seen, TopicSums, by, one
from .services import Services
from .share.metrics import SHARE_FAMILIES, see_share_partitions
from .store_metrics import STORE_FAMILIES

MAX_TOPICS = 2_000
_ERROR_NAMES = {int(code): code.name for code in ErrorCode}
TRANSACTIONS_PER_UNIT = 10


def _of_topics(value: Callable[[TopicSums], float]) -> Callable[[Services, Seen], Samples]:
    """Return a function that reads one sample of each topic from its sums."""
    return lambda broker, seen: [((name,), value(sums)) for name, sums in seen.topics.items()]


def _requests(broker: Services) -> dict[str, float]:
    """Return the number of requests of each API that was used, by the API's name."""
    counts = broker.metrics.requests
    return {api.name: counts[counter_of(key)] for key, api in APIS.items() if counts[counter_of(key)]}


def _durations(broker: Services) -> dict[tuple[str, ...], Histogram]:
    """Return a histogram of request durations (ns) for each API that was used, by its label values."""
    found = broker.metrics.request_ns
    return {(api.name,): found[counter_of(key)] for key, api in APIS.items() if counter_of(key) in found}


def _errors(broker: Services, seen: Seen) -> Samples:
    """Return the number of errors answered, by API and error code."""
    return [((api, _ERROR_NAMES[code]), count) for (api, code), count in broker.metrics.errors_by_api.items()]


def _closures(broker: Services) -> dict[str, float]:
    """Return the number of connections that the broker closed, by reason."""
    metrics = broker.metrics
    return {
        "idle": metrics.closed_idle,
        "malformed": metrics.closed_malformed,
        "unsupported": metrics.closed_unsupported,
        "slow": metrics.closed_slow,
        "unauthenticated": metrics.closed_unauthenticated,
        "session_expired": metrics.closed_expired,
        "fenced": metrics.fenced_connections,
    }


def _logins(broker: Services) -> dict[str, float]:
    """Return the number of logins, by result."""
    metrics = broker.metrics
    return {"success": metrics.logins, "failure": metrics.failed_logins, "tls_failure": metrics.failed_handshakes}


def _fences(broker: Services) -> dict[str, float]:
    """Return how many requests of outdated producers were refused, by what detected them."""
    metrics = broker.metrics
    return {
        "stale_epoch": metrics.stale_epochs,
        "coordinator": metrics.errors.get(ErrorCode.PRODUCER_FENCED, 0),
        "late_connection": metrics.fenced_connections,
    }


FAMILIES = (
    Exported("fencepost_build_info", GAUGE, ("version",), "Always 1.", lambda broker, seen: [((__version__,), 1)]),
    Exported(
        "fencepost_recovery_seconds",
        GAUGE,
        (),
        "From the broker's start until it listened.",
        one(lambda broker: broker.metrics.recovery_ms / 1000),
    ),
    Exported("fencepost_requests_total", COUNTER, ("api",), "Requests.", by(_requests)),
    Exported(
        "fencepost_request_errors_total",
        COUNTER,
        ("api", "error"),
        "Errors in answers, of partitions and the like too.",
        _errors,
    ),
    Exported(
        "fencepost_request_duration_seconds",
        HISTOGRAM,
        ("api",),
        "From the turn of the loop that handles a request until its answer may leave; of Fetch with its wait.",
        counted=_durations,
        scale=1e-9,
        lowest=15,
        highest=36,
    ),
    Exported(
        "fencepost_unexpected_errors",
        GAUGE,
        (),
        "Errors that are bugs of the broker, of the first 20.",
        one(lambda broker: len(broker.metrics.failures)),
    ),
    Exported(
        "fencepost_connections", GAUGE, (), "Open connections.", one(lambda broker: len(broker.server.connections))
    ),
    Exported(
        "fencepost_connections_accepted_total",
        COUNTER,
        (),
        "Accepted connections.",
        one(lambda broker: broker.metrics.accepted_connections),
    ),
    Exported(
        "fencepost_connections_refused_total",
        COUNTER,
        (),
        "Connections beyond a limit.",
        one(lambda broker: broker.metrics.refused_connections),
    ),
    Exported(
        "fencepost_connections_closed_total",
        COUNTER,
        ("reason",),
        "Connections that the broker closed.",
        by(_closures),
    ),
    Exported("fencepost_logins_total", COUNTER, ("outcome",), "Logins, and TLS handshakes that failed.", by(_logins)),
    Exported(
        "fencepost_received_bytes_total",
        COUNTER,
        (),
        "Bytes from clients.",
        one(lambda broker: broker.metrics.bytes_in),
    ),
    Exported(
        "fencepost_sent_bytes_total", COUNTER, (), "Bytes to clients.", one(lambda broker: broker.metrics.bytes_out)
    ),
    Exported(
        "fencepost_throttles_total",
        COUNTER,
        ("quota",),
        "Answers with a throttle time.",
        by(lambda broker: broker.metrics.throttles),
    ),
    Exported(
        "fencepost_throttle_seconds_total",
        COUNTER,
        ("quota",),
        "For how long, together.",
        by(lambda broker: {quota: ms / 1000 for quota, ms in broker.metrics.throttle_ms.items()}),
    ),
    Exported(
        "fencepost_stalls_total",
        COUNTER,
        (),
        "Times that a connection was not read because something was full.",
        one(lambda broker: broker.metrics.stalls),
    ),
    Exported(
        "fencepost_produce_records_total",
        COUNTER,
        ("topic",),
        "Offsets taken: records, and markers of transactions.",
        _of_topics(lambda sums: sums.records),
    ),
    Exported(
        "fencepost_produce_bytes_total",
        COUNTER,
        ("topic",),
        "Bytes of record batches appended.",
        _of_topics(lambda sums: sums.appended_bytes),
    ),
    Exported(
        "fencepost_fetch_bytes_total",
        COUNTER,
        (),
        "Bytes of record batches in answers to Fetch.",
        one(lambda broker: broker.metrics.fetched_bytes),
    ),
    Exported(
        "fencepost_log_size_bytes",
        GAUGE,
        ("topic",),
        "What the topic's partitions hold.",
        _of_topics(lambda sums: sums.size_bytes),
    ),
    Exported(
        "fencepost_fetch_uncopied_bytes_total",
        COUNTER,
        (),
        "Bytes of fencepost_fetch_bytes_total that went from the page cache to a socket without a copy.",
        one(lambda broker: broker.metrics.bytes_uncopied),
    ),
    Exported(
        "fencepost_fetch_waits_total",
        COUNTER,
        (),
        "Fetches that waited because there was not enough to read yet.",
        one(lambda broker: broker.metrics.fetch_waits),
    ),
    Exported(
        "fencepost_fetch_cold_reads_total",
        COUNTER,
        (),
        "Reads of segments for a Fetch that were not in memory.",
        one(lambda broker: broker.metrics.cold_reads),
    ),
    Exported(
        "fencepost_share_sessions",
        GAUGE,
        (),
        "Sessions of members of share groups.",
        one(lambda broker: len(broker.share_sessions)),
    ),
    Exported(
        "fencepost_share_session_partitions",
        GAUGE,
        (),
        "Partitions that these sessions fetch.",
        one(lambda broker: broker.share_sessions.partitions),
    ),
    Exported(
        "fencepost_share_session_evictions_total",
        COUNTER,
        (),
        "Sessions of share groups that ended with their connection.",
        one(lambda broker: broker.share_sessions.evictions),
    ),
    Exported(
        "fencepost_storage_usable_bytes",
        GAUGE,
        (),
        "Free bytes of the data directory's disk, without what is in memory and needs its place there too.",
        one(lambda broker: broker.store.usable_bytes),
    ),
    Exported(
        "fencepost_storage_min_free_bytes",
        GAUGE,
        (),
        "Where requests that need space begin to be refused (storage.min.free.bytes).",
        one(lambda broker: broker.settings.storage_min_free_bytes),
    ),
    Exported(
        "fencepost_storage_refusals_total",
        COUNTER,
        (),
        "Requests, and partitions of them, that were refused because the disk was nearly full.",
        one(lambda broker: broker.store.space.refusals),
    ),
    Exported(
        "fencepost_fsync_duration_seconds",
        HISTOGRAM,
        (),
        "Write and sync of a round; large ones overlap.",
        counted=lambda broker: {(): broker.metrics.sync_ns},
        scale=1e-9,
        lowest=15,
        highest=33,
    ),
    Exported(
        "fencepost_round_size_bytes",
        HISTOGRAM,
        (),
        "Bytes that were made durable together.",
        counted=lambda broker: {(): broker.metrics.round_bytes},
        lowest=8,
        highest=25,
    ),
    Exported(
        "fencepost_journal_bytes",
        GAUGE,
        (),
        "Journal that is still needed.",
        one(lambda broker: broker.store.journal.used_bytes),
    ),
    Exported(
        "fencepost_journal_max_bytes",
        GAUGE,
        (),
        "The journal's limit (journal.max.bytes).",
        one(lambda broker: broker.settings.journal_max_bytes),
    ),
    Exported(
        "fencepost_event_loop_lag_seconds",
        HISTOGRAM,
        (),
        "How late the loop came to housekeeping, ten times a second.",
        counted=lambda broker: {(): broker.metrics.loop_lag_ms},
        scale=1e-3,
        lowest=0,
        highest=13,
    ),
    Exported(
        "fencepost_transactions",
        GAUGE,
        ("state",),
        "Transactional ids by state.",
        lambda broker, seen: [((state,), count) for state, count in seen.by_state.items()],
    ),
    Exported(
        "fencepost_oldest_open_transaction_seconds",
        GAUGE,
        (),
        "Age of the oldest open transaction; 0 without one.",
        lambda broker, seen: [((), seen.oldest_ms / 1000)],
    ),
    Exported(
        "fencepost_oldest_held_transaction_seconds",
        GAUGE,
        (),
        "How long the oldest transaction has been held until a program's database decides; 0 without one.",
        lambda broker, seen: [((), seen.held_ms / 1000)],
    ),
    Exported(
        "fencepost_prepared_transactions_late",
        GAUGE,
        (),
        "Prepared transactions that wait for longer than transaction.prepared.alert.ms, or are held for over 60 s.",
        one(lambda broker: broker.metrics.prepared_for_long),
    ),
    Exported(
        "fencepost_transactions_completed_total",
        COUNTER,
        ("outcome",),
        "Transactions with records or offsets, by what ended them.",
        by(lambda broker: broker.metrics.transactions_ended),
    ),
    Exported(
        "fencepost_transaction_duration_seconds",
        HISTOGRAM,
        (),
        "Of these, from their first partition to their end.",
        counted=lambda broker: {(): broker.metrics.transaction_ms},
        scale=1e-3,
        lowest=0,
        highest=20,
    ),
    Exported(
        "fencepost_producer_fenced_total", COUNTER, ("reason",), "Requests of producers that were fenced.", by(_fences)
    ),
    Exported(
        "fencepost_duplicate_batches_total",
        COUNTER,
        (),
        "Batches that were there already, answered and not stored again.",
        one(lambda broker: broker.metrics.duplicates_refused),
    ),
    Exported(
        "fencepost_out_of_order_sequence_total",
        COUNTER,
        (),
        "Batches refused for a gap in their sequence.",
        one(lambda broker: broker.metrics.out_of_order),
    ),
    *SHARE_FAMILIES,
    *BACKUP_FAMILIES,
    *STORE_FAMILIES,
)


def export(broker: Services) -> Steps[list[Family]]:
    """Return all metrics with their current values, computed in steps."""
    seen = Seen()
    yield from _see_topics(broker, seen)
    yield from _see_transactions(broker, seen)
    yield from see_share_partitions(broker, seen)
    families = []
    for each in FAMILIES:
        samples = (
            [_histogram(labels, counted, each) for labels, counted in each.counted(broker).items()]
            if each.counted is not None
            else [Sample(labels=list(labels), value=float(value)) for labels, value in each.read(broker, seen)]
            if each.read is not None
            else []
        )
        families.append(
            Family(name=each.name, help=each.help, kind=each.kind, label_names=list(each.labels), samples=samples)
        )
        yield 1 + len(samples)
    return families


def _see_topics(broker: Services, seen: Seen) -> Steps[None]:
    """Add up, in steps, the records and bytes appended to each topic since the start, and its size; for MAX_TOPICS
    topics at most.
    """
    before = broker.metrics.appended_before
    for name, topic in list(broker.topics.by_name.items())[:MAX_TOPICS]:
        sums = seen.topics[name] = TopicSums()
        for partition in topic.partitions:
            log = partition.log
            end_offset, appended_bytes = before.get(log.log_id, (0, 0))
            sums.records += log.end_offset - end_offset
            sums.appended_bytes += partition.appended_bytes - appended_bytes
            sums.size_bytes += log.size_bytes
            yield 1 + len(log.segments)


def _see_transactions(broker: Services, seen: Seen) -> Steps[None]:
    """Note, in steps, for how long each open transaction has been open, and the oldest held one prepared; and how many
    transactions are in each state.
    """
    coordinator, age_ms = broker.transactions, broker.store.age_ms()
    for count, name in enumerate(list(coordinator.open)):
        txn = coordinator.transactions.get(name)
        if txn is not None and name in coordinator.open:
            open_ms = seen.open_ms[txn.producer_id] = age_ms - txn.started_age_ms
            seen.oldest_ms = max(seen.oldest_ms, open_ms)
            if txn.prepared is not None and txn.prepared.hold:
                seen.held_ms = max(seen.held_ms, age_ms - txn.prepared.since_age_ms)
        if not count % TRANSACTIONS_PER_UNIT:
            yield 1
    for count, txn in enumerate(list(coordinator.transactions.values())):
        state = txn.status.text if txn.prepared is None else "Prepared"
        seen.by_state[state] = seen.by_state.get(state, 0) + 1
        if not count % TRANSACTIONS_PER_UNIT:
            yield 1


def _histogram(labels: tuple[str, ...], counted: Histogram, each: Exported) -> Sample:
    """Return the sample of a histogram: scaled cumulative buckets at the powers of two from `lowest` to `highest`, and
    one for all.
    """
    buckets, count = [], 0
    for power, more in enumerate(counted.counts):
        count += more
        if each.lowest <= power <= each.highest:
            buckets.append(Sample.Bucket(bound=2.0**power * each.scale, count=count))
    buckets.append(Sample.Bucket(bound=math.inf, count=count))
    return Sample(labels=list(labels), value=counted.total * each.scale, buckets=buckets)
