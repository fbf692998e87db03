"""The transaction bars of `make bench-bars`: rates, cost and steadiness, all servers in turns within one run."""

import statistics
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .. import accounting, topics, txn
from ..figures import percentile
from ..loads import aborted
from ..loads import many_ids as ids
from ..peers import peers
from .rows import ROUNDS, Row

TOPIC = "bench-transactions"
PARTITIONS = 4
MANY = 16


@dataclass(slots=True)
class Series:
    """What the rounds of one load against one server gave; times in ms, CPU in us a transaction."""

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    def add(self, peer: peers.Peer, load: txn.TransactionLoad) -> None:
        """One more round."""
        books: list[accounting.Usage] = []
        result = txn.run(peer.bootstrap, load, lambda: books.append(accounting.usage(peer.pid)))
        ordered = array("d", sorted(result.latencies))
        self.rates.append(result.transactions / result.seconds)
        self.cpu.append(books[-1].since(books[0]).cpu_ns / 1e3 / max(1, result.transactions))
        self.p50.append(1e3 * percentile(ordered, 0.5))
        self.p99.append(1e3 * percentile(ordered, 0.99))


def measure(servers: Sequence[peers.Peer], topic: str, seconds: float) -> dict[tuple[str, int], Series]:
    """All servers in turns, there and back, with one producer and with many. By (server's name, producers)."""
    found = {(peer.name, producers): Series() for peer in servers for producers in (1, MANY)}
    for round_number in range(ROUNDS):
        order = servers if round_number % 2 == 0 else list(reversed(servers))
        for producers in (1, MANY):
            load = txn.TransactionLoad(topic, producers, PARTITIONS, seconds=seconds)
            for peer in order:
                found[peer.name, producers].add(peer, replace(load, ids=f"{topic}-{producers}-{round_number}"))
    return found


def transactions(seconds: float, kafka: str | None) -> list[Row]:
    """Transactions of one record through confluent-kafka: against the mock, and against Kafka that flushes."""
    with peers.fencepost("os") as relaxed, peers.fencepost("fsync") as durable, peers.mock() as mock:
        servers = [relaxed, mock, durable]
        for peer in servers:
            topics.create(peer.host, peer.port, TOPIC, PARTITIONS)
        rows = _against_mock(measure(servers, TOPIC, seconds), relaxed.name, durable.name, mock.name)
        return rows if kafka is None else rows + _against_kafka(kafka, durable, seconds)


def _against_mock(found: dict[tuple[str, int], Series], relaxed: str, durable: str, mock: str) -> list[Row]:
    rows = []
    for name, bar in ((relaxed, 0.8), (durable, 0.6)):
        for producers in (1, MANY):
            ours, theirs = found[name, producers].rate, found[mock, producers].rate
            title = f"transactions/s, {producers} producers, {name.split()[-1]}"
            rows.append(Row(title, ours / theirs, ">=", bar, f"{ours:,.0f}", f"mock {theirs:,.0f}"))
    os_series, mock_series, durable_series = found[relaxed, MANY], found[mock, MANY], found[durable, MANY]
    ours, theirs = statistics.median(os_series.cpu), statistics.median(mock_series.cpu)
    rows.append(
        Row(f"CPU per transaction, {MANY} producers, os", ours / theirs, "<=", 1.5, f"{ours:.0f} us", f"{theirs:.0f}")
    )
    p50, p99 = statistics.median(durable_series.p50), statistics.median(durable_series.p99)
    rows.append(Row("transaction p99 over p50, fsync", p99 / p50, "<=", 3.0, f"{p99:.1f} ms", f"p50 {p50:.1f} ms"))
    share = durable_series.rate / os_series.rate
    rows.append(
        Row(
            f"durable transactions/s over os, {MANY} producers",
            share,
            ">=",
            0.35,
            f"{durable_series.rate:,.0f}",
            f"{os_series.rate:,.0f}",
        )
    )
    return rows


def _against_kafka(kafka: str, durable: peers.Peer, seconds: float) -> list[Row]:
    host, port = topics.address(kafka)
    theirs = peers.Peer("Kafka", host, port, accounting.listener_pid(port) or 0)
    with topics.topic(host, port, None, PARTITIONS) as topic:
        topics.create(durable.host, durable.port, topic, PARTITIONS)
        found = measure([durable, theirs], topic, seconds)
    ours, other = found[durable.name, MANY].rate, found[theirs.name, MANY].rate
    title = f"durable transactions/s, {MANY} producers"
    return [Row(title, ours / other, ">=", 3.0, f"{ours:,.0f}", f"Kafka {other:,.0f}")]


def aborted_fetch() -> list[Row]:
    """Reading a range in which 10,000 transactions were aborted, at both isolation levels."""
    committed, uncommitted = aborted.measure()
    name = f"read_committed over {aborted.ABORTED:,} aborted transactions: CPU"
    return [
        Row(name, committed / uncommitted, "<=", 1.5, f"{committed:.1f} ms", f"read_uncommitted {uncommitted:.1f} ms")
    ]


def many_ids() -> list[Row]:
    """200,000 producers and 100,000 transactional ids: stalls while they come, and the next start."""
    measured = ids.measure()
    against = f"{ids.PRODUCERS:,} producers, {ids.TRANSACTIONAL_IDS:,} ids in {measured.seconds:.0f} s"
    return [
        Row(
            "longest stall while very many ids come, ms",
            measured.stall_ms,
            "<=",
            50,
            f"{measured.stall_ms:.0f} ms",
            against,
        ),
        Row("start with very many ids after kill -9, s", measured.ready_s, "<=", 3.0, f"{measured.ready_s:.2f}", "-"),
    ]
