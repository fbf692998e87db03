"""The aims of fencepost compared with its peers, and the judgement of a run by these aims. Pure.

Every aim is a ratio to a peer of the same run, or a bound: a limit for a figure of fencepost. An aim compared with
Apache Kafka may be missed by a quarter at most; a bound must be reached exactly. A verdict is about all rounds: if
rounds lie on both sides of the limit, or the run has only one round, the verdict is undecided.
"""

import statistics
from collections.abc import Iterable, Sequence

from ..measured import LESS, Measured
from ..peers.names import (
    ACKNOWLEDGED,
    AIOKAFKA,
    APART,
    AT_LEAST_ONCE,
    COMMITTED,
    CONFLUENT,
    COPIED,
    DECIDED,
    ENDED,
    EXACTLY_ONCE,
    FLOOR,
    FOLLOWED,
    FSYNC,
    HANDED_OVER,
    INBOX,
    INSERTS,
    KAFKA,
    KAFKA_FLUSH,
    KILLED,
    MIRRORED,
    MOCK,
    OFFSETS,
    OS,
    PLAIN_LOOP,
    SDK,
    SPARK,
    SPARK_JAR,
    STORED,
    STORED_FEW,
    STORED_IDLE,
    STORED_MANY,
    UNCOMMITTED,
    WATCHED,
)
from ..verdicts import Aim, Outcome, Verdict


def _row(
    row: str,
    scenario: str,
    figure: str,
    fsync: float | None = None,
    flush: float | None = None,
    os: float | None = None,
) -> list[Aim]:
    """Return the aims of one row of the table, as ratios. fsync: ours with fsync to Kafka's default; flush: ours with
    fsync to Kafka with flush on every message; os: ours with durability os to Kafka's default; None: no aim.
    """
    pairs = ((FSYNC, KAFKA, fsync), (FSYNC, KAFKA_FLUSH, flush), (OS, KAFKA, os))
    return [Aim(row, scenario, figure, ours, theirs, aim) for ours, theirs, aim in pairs if aim is not None]


def _bound(row: str, scenario: str, figure: str, ours: str, theirs: str | None, bound: float) -> Aim:
    """Return an aim that must hold in every round. theirs: None if it is the figure of `ours` itself, not a ratio."""
    return Aim(row, scenario, figure, ours, theirs, bound, 0)


def _sdk(row: str, scenario: str, theirs: str, bound: float) -> Aim:
    """Return an aim for the ratio of the SDK's rate to that of another library. row: the end of its label. scenario:
    the end of the load's name. theirs: the library.
    """
    return _bound(f"SDK ÷ {theirs}, {row}", f"bound SDK {scenario}", "rate", SDK, theirs, bound)


def _jar(row: str, scenario: str, aim: float) -> Aim:
    """Return an aim for the ratio of our Spark connector's rate to that of Spark's own Kafka source and sink. row: the
    end of its label. scenario: the end of the load's name.
    """
    return Aim(f"Spark ÷ Kafka's jar, {row}: rows/s", f"bound Spark {scenario}", "rate", SPARK, SPARK_JAR, aim)


AIMS: tuple[Aim, ...] = (
    *_row("1 × 100 B, 1 connection: requests/s", "small 1x1", "rate", 0.45, 1, 0.9),
    *_row("1 × 100 B, 1 connection: p99", "small 1x1", "p99_ms", 2, 1, 1.2),
    *_row("1 × 100 B, 16 connections, 16 partitions: requests/s", "small 16x1 over 16", "rate", 0.9, 2.5, 1.3),
    *_row("1 × 100 B, 16 connections, 16 partitions: CPU per request", "small 16x1 over 16", "cpu_us", 0.8, 0.25, 0.5),
    *_row("1 × 100 B, 16 connections, 16 partitions: p99", "small 16x1 over 16", "p99_ms", 1.2, 0.5, 1.2),
    *_row("1 × 100 B, 64 connections: requests/s", "small 64x1", "rate", 1, 6, 1.4),
    *_row("1 × 100 B, 64 connections: CPU per request", "small 64x1", "cpu_us", 0.8, 0.15, 0.5),
    *_row("1 × 100 B, 64 connections: p99", "small 64x1", "p99_ms", 1.2, 0.5, 1.2),
    *_row("1 × 100 B, 16 connections × 5: CPU per request", "small 16x5", "cpu_us", 0.5, 0.08, 0.25),
    *_row("1 × 100 B, 16 connections × 5: p99", "small 16x5", "p99_ms", 1.2, 0.5, 1.2),
    *_row("idempotent librdkafka, 100 B: records/s", "produce 100 B", "rate", 1.0, 1.6, 1.15),
    *_row("idempotent librdkafka, 1 KB: records/s", "produce 1 KB", "rate", 1.5, 3, 2.5),
    *_row("batches of 100 KB: MB/s", "batch 100 KB", "mb_per_second", 1.0, 2.2, 2),
    *_row("batches of 100 KB: p99", "batch 100 KB", "p99_ms", 1.5, 1, 1.3),
    *_row("transactions/s, 1 producer", "transactions 1p 4x1", "rate", 0.9, 2.8, 1.15),
    *_row("transactions, 1 producer: p99", "transactions 1p 4x1", "p99_ms", 0.3, 0.3, 0.3),
    *_row("transactions/s, 16 producers", "transactions 16p 4x1", "rate", 1.1, 6, 1.6),
    *_row("transactions, 16 producers: CPU per transaction", "transactions 16p 4x1", "cpu_us", 0.35, 0.09, 0.25),
    *_row("transactions, 16 producers: p99", "transactions 16p 4x1", "p99_ms", 0.5, 0.4, 0.4),
    *_row("end to end, 2,000 messages/s: p50", "end to end 2,000/s", "p50_ms", 1.3, 0.6, 0.9),
    *_row("end to end, 2,000 messages/s: p99", "end to end 2,000/s", "p99_ms", 1, 0.3, 0.7),
    *_row("consumer of 1 KB records: MB/s", "consume 1 KB", "mb_per_second", os=1.0),
    *_row("consumer of 1 KB records: CPU per MB", "consume 1 KB", "cpu_ms_per_mb", os=1.7),
    *_row("share consumer of 100 B records, librdkafka: records/s", "queue 100 B", "rate", os=1.0),
    *_row("ready after start", "start", "ready_s", 0.2),
    *_row("idle memory", "start", "idle_mb", 0.15),
    _bound("bare C server, 64 connections: CPU per request", "small 64x1", "cpu_us", OS, FLOOR, 1.8),
    _bound("bare C server, 16 connections × 5: CPU per request", "small 16x5", "cpu_us", OS, FLOOR, 2.2),
    _bound("os ÷ mock, 64 connections: CPU per request", "small 64x1", "cpu_us", OS, MOCK, 1.5),
    _bound("os ÷ mock, 16 connections × 5: CPU per request", "small 16x5", "cpu_us", OS, MOCK, 0.9),
    _bound("os ÷ mock, idempotent librdkafka, 100 B: records/s", "produce 100 B", "rate", OS, MOCK, 0.85),
    _bound("os ÷ mock, idempotent librdkafka, 1 KB: records/s", "produce 1 KB", "rate", OS, MOCK, 0.7),
    _bound("os ÷ mock, 1 producer: transactions/s", "transactions 1p 4x1", "rate", OS, MOCK, 0.8),
    _bound("os ÷ mock, 16 producers: transactions/s", "transactions 16p 4x1", "rate", OS, MOCK, 0.8),
    _bound("fsync ÷ mock, 1 producer: transactions/s", "transactions 1p 4x1", "rate", FSYNC, MOCK, 0.6),
    _bound("fsync ÷ mock, 16 producers: transactions/s", "transactions 16p 4x1", "rate", FSYNC, MOCK, 0.6),
    _bound("os ÷ mock, 16 producers: CPU per transaction", "transactions 16p 4x1", "cpu_us", OS, MOCK, 1.5),
    _bound("fsync ÷ os, 16 producers: transactions/s", "transactions 16p 4x1", "rate", FSYNC, OS, 0.35),
    _bound("fsync, 16 producers: p99 over p50", "transactions 16p 4x1", "p99_over_p50", FSYNC, None, 3),
    _bound("10,000 partitions over 10: CPU per request", "growth partitions", "growth", OS, None, 1.2),
    _bound("100,000 transactional ids over 1: CPU per request", "growth ids", "growth", OS, None, 1.2),
    _bound("5,000 connections over 64: CPU per request", "growth connections", "growth", OS, None, 1.2),
    _bound("serve ready, s", "bound idle", "ready_s", FSYNC, None, 0.4),
    _bound("idle memory, MB", "bound idle", "idle_mb", FSYNC, None, 55),
    _bound("1,000 idle connections, MB more", "bound idle", "connections_mb", FSYNC, None, 20),
    _bound("2,000 idle partitions, % of a processor", "bound idle", "idle_cpu", FSYNC, None, 1.0),
    _bound("fsync ÷ plain loop that syncs: requests/s", "bound durable writes", "rate", FSYNC, PLAIN_LOOP, 1.8),
    _bound("fsync ÷ C server that syncs: CPU per MB", "bound batch 100 KB", "cpu_ms_per_mb", FSYNC, FLOOR, 2),
    _bound("read_committed ÷ read_uncommitted: CPU", "bound aborted", "cpu_us", COMMITTED, UNCOMMITTED, 1.5),
    _bound("longest stall while 300,000 ids come, ms", "bound many ids", "stall_ms", OS, None, 50),
    _bound("start with 300,000 ids after kill -9, s", "bound many ids", "ready_s", OS, None, 3),
    _bound("longest stall while 1,000 members come and go, ms", "bound groups", "stall_ms", OS, None, 50),
    _bound("share consumer of librdkafka, first record, ms", "queue 100 B", "p50_ms", OS, None, 1_000),
    _bound("SDK, 4 share workers, 1 partition: records/s", "bound share workers", "rate", OS, None, 20_000),
    _bound(
        "100 records acknowledged in a transaction ÷ a consumer's offsets: time",
        "bound share transactions",
        "took_ms",
        ACKNOWLEDGED,
        OFFSETS,
        1.5,
    ),
    _bound("one commit ÷ two, 1 row and record: time", "bound commit of 1 row", "took_ms", ENDED, APART, 2),
    _bound("one commit ÷ two, 10 rows and records: time", "bound commit of 10 rows", "took_ms", ENDED, APART, 1.5),
    _bound("one commit ÷ two, 100 rows and records: time", "bound commit of 100 rows", "took_ms", ENDED, APART, 1.1),
    _bound("one commit, decided ÷ two, 1 row: time", "bound commit of 1 row", "took_ms", DECIDED, APART, 1.5),
    _bound("inbox ÷ the same inserts without, 1 record", "bound inbox of 1 record", "rate", INBOX, INSERTS, 0.8),
    _bound("inbox ÷ the same inserts without, 10 records", "bound inbox of 10 records", "rate", INBOX, INSERTS, 0.8),
    _bound("inbox ÷ the same inserts without, 100 records", "bound inbox of 100 records", "rate", INBOX, INSERTS, 0.8),
    _bound("mirror ÷ the SDK's reads and writes alone: records/s", "bound mirror", "rate", MIRRORED, COPIED, 0.6),
    _bound("outbox of PostgreSQL, 500 rows a commit, fsync: rows/s", "bound outbox", "rate", FSYNC, None, 20_000),
    _bound("start with a full journal after kill -9, s", "bound full journal", "ready_s", OS, None, 10),
    _bound("longest step of upkeep over 2,000 logs, CPU ms", "bound steps of upkeep", "took_ms", FSYNC, None, 50),
    _bound("longest stall under load, 2,000 partitions, ms", "bound stalls", "stall_ms", FSYNC, None, 50),
    _bound("100 open consoles and a scrape a second ÷ none: p50", "bound consoles", "p50_ms", WATCHED, FSYNC, 1.2),
    _bound("followed ÷ alone at 50 MB/s: CPU per MB", "bound follower", "cpu_ms_per_mb", FOLLOWED, FSYNC, 1.1),
    _bound("loss window at 50 MB/s, s", "bound follower", "window_s", FOLLOWED, None, 3),
    _bound("restore of 1 GB from a store, s", "bound follower", "s_per_gb", FOLLOWED, None, 15),
    _bound("journal in a store, 30 ms a PUT, 1 connection: p50, ms", "bound store produce", "p50_ms", STORED, None, 35),
    _bound("journal in a store, 30 ms a PUT, 1 connection: p99, ms", "bound store produce", "p99_ms", STORED, None, 45),
    _bound("journal in a store, 16 producers: transactions/s", "bound store transactions", "rate", STORED, None, 100),
    _bound("store ÷ disk, batches of 100 KB: MB/s", "bound store batch 100 KB", "mb_per_second", STORED, FSYNC, 0.7),
    _bound("store ÷ disk, 100 KB: CPU per MB", "bound store batch 100 KB", "cpu_ms_per_mb", STORED, FSYNC, 1.3),
    _bound("PUTs/s of an idle broker", "bound store requests", "puts", STORED_IDLE, None, 0.6),
    _bound("PUTs/s under load, 10 a second allowed", "bound store requests", "puts", STORED_FEW, None, 11),
    _bound("PUTs/s, 1,000 partitions ÷ 10", "bound store requests", "puts", STORED_MANY, STORED_FEW, 1.1),
    _bound("kill to first commit at a standby, 1 GB, s", "bound store takeover", "first_commit_s", KILLED, None, 10),
    _bound("handover to first commit, 1 GB, s", "bound store takeover", "first_commit_s", HANDED_OVER, None, 2),
    _bound("restore of 1 GB of a journal in a store, s", "bound store takeover", "s_per_gb", KILLED, None, 15),
    _bound("import fencepost, ms", "bound import", "took_ms", SDK, None, 60),
    _bound("import of the pytest plugin, ms", "bound import of the plugin", "took_ms", SDK, None, 5),
    _bound("Broker() ready after the imports, ms", "bound Broker()", "took_ms", SDK, None, 300),
    _sdk("100 B: records/s", "produce 100 B", AIOKAFKA, 2),
    _sdk("100 B, equal batches: records/s", "produce 100 B, equal batches", AIOKAFKA, 2),
    _sdk("1 KB: records/s", "produce 1 KB", AIOKAFKA, 2),
    _sdk("1 KB, equal batches: records/s", "produce 1 KB, equal batches", AIOKAFKA, 2),
    _sdk("getmany: records/s", "getmany", AIOKAFKA, 1.5),
    _sdk("async for: records/s", "async for", AIOKAFKA, 1.5),
    _sdk("consume-transform-produce: records/s", "copy", AIOKAFKA, 2),
    _sdk("one producer: transactions/s", "transactions", CONFLUENT, 1.3),
    _jar("batch source to nowhere", "read", 1.1),
    _jar("batch sink, exactly ÷ at least once", "write", 0.6),
    _jar("stream copy, exactly ÷ at least once", "copy", 0.6),
    _bound(
        "Spark, exactly ÷ at least once: time of 200,000 rows",
        "bound Spark guarantees",
        "took_ms",
        EXACTLY_ONCE,
        AT_LEAST_ONCE,
        1.15,
    ),
)


def judge(findings: Iterable[Measured], aims: Sequence[Aim] = AIMS) -> list[Verdict]:
    """Return a verdict for each aim, in the order of the aims. findings: everything that the run measured."""
    found = {(each.scenario, each.peer): each for each in findings}
    return [
        _verdict(aim, found.get((aim.scenario, aim.ours)), found.get((aim.scenario, aim.theirs or ""))) for aim in aims
    ]


def _verdict(aim: Aim, ours: Measured | None, theirs: Measured | None) -> Verdict:
    """Return how far one aim was reached. ours, theirs: what was measured, None if it was not."""
    above = ours.values(aim.figure) if ours else ()
    below = theirs.values(aim.figure) if theirs else ()
    if aim.theirs is None:
        below = (1.0,) * len(above)
    if not above or not below or min(below) <= 0:
        return Verdict(aim, Outcome.ABSENT)
    low, high = spread(above, below)
    sides = [each for each in (ours, theirs) if each is not None]
    rounds = len(above), len(below)
    return Verdict(
        aim,
        _outcome(aim, low, high) if min(rounds) > 1 else Outcome.UNDECIDED,
        statistics.median(above) / statistics.median(below),
        low,
        high,
        statistics.median(above),
        None if theirs is None else statistics.median(below),
        ours.median("p99_ms") if ours else None,
        theirs.median("p99_ms") if theirs else None,
        tuple(each.peer for each in sides if each.saturated),
        tuple(each.peer for each in sides if not each.warm),
    )


def spread(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Return the least and the greatest ratio of `above` to `below`, round by round. If they have different numbers of
    rounds, of any two rounds.
    """
    if len(above) == len(below):
        ratios = [one / other for one, other in zip(above, below, strict=True)]
        return min(ratios), max(ratios)
    return min(above) / max(below), max(above) / min(below)


def _outcome(aim: Aim, low: float, high: float) -> Outcome:
    """Return whether an aim is met. low, high: the least and greatest ratio of a round."""
    worst, best = (high, low) if aim.sense == LESS else (low, high)
    if aim.holds(worst, aim.aim):
        return Outcome.MET
    if aim.holds(worst, aim.must):
        return Outcome.MUST
    return Outcome.UNDECIDED if aim.holds(best, aim.must) else Outcome.MISSED
