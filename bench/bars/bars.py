"""`make bench-bars`: bounds that fencepost has without another broker; JSON into bench/results/, a table.

What has a broker to be compared with is measured by `make bench`. Rounds are interleaved (ours, peer, ours, peer …) and
medians compared, for machines are noisy; a bar is a ratio or a bound with a reason, and one that is missed is printed
as missed.
"""

import asyncio
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import uvloop

from .. import accounting, small, topics
from ..loads import stalls
from ..peers import peers
from . import idle, recovery, steps, syncloop
from .clients import clients, starts
from .rows import ROUNDS, Row, line
from .transactions import aborted_fetch, many_ids

TOPIC = "bench"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one round of a load cost and gave."""

    requests_per_second: float
    cpu_ms_per_mb: float


def small_cost(peer: peers.Peer, load: small.SmallLoad) -> Cost:
    """One round of the small-request load against one server."""
    books: list[accounting.Usage] = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        work = small.run(peer.host, peer.port, load, lambda: books.append(accounting.usage(peer.pid)))
        result = runner.run(work)
    cpu_ns = books[-1].since(books[0]).cpu_ns
    megabytes = result.requests * load.batch_records * load.record_bytes / 1e6
    return Cost(result.requests / result.seconds, cpu_ns / 1e6 / megabytes)


def interleaved(one: Callable[[], float], other: Callable[[], float]) -> tuple[float, float]:
    """Medians of two measurements, taken in turns."""
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(one())
        theirs.append(other())
    return statistics.median(ours), statistics.median(theirs)


def durable_partitions(seconds: float) -> list[Row]:
    """Durable requests per second over 16 partitions, against a plain loop of write and fdatasync."""
    load = small.SmallLoad(TOPIC, 16, 16, 1, seconds=seconds)
    with peers.fencepost("fsync") as ours:
        topics.create(ours.host, ours.port, TOPIC, 16)
        frame = small.frame_for(load, 0)
        one, other = interleaved(
            lambda: small_cost(ours, load).requests_per_second, lambda: syncloop.requests_per_second(frame, 16, seconds)
        )
        name = "16 partitions, 16 connections x 1, fsync: requests/s"
        return [Row(name, one / other, ">=", 1.8, f"{one:,.0f}", f"plain loop {other:,.0f}")]


def large_batches(seconds: float) -> list[Row]:
    """CPU per MB of 100 KB batches, fsync, against the C floor."""
    load = small.SmallLoad(TOPIC, 4, 4, 2, record_bytes=1000, batch_records=100, seconds=seconds)
    with peers.fencepost("fsync") as ours, peers.floor(TOPIC, sync=True) as theirs:
        if theirs is None:
            return []
        topics.create(ours.host, ours.port, TOPIC, 4)
        one, other = interleaved(
            lambda: small_cost(ours, load).cpu_ms_per_mb, lambda: small_cost(theirs, load).cpu_ms_per_mb
        )
    return [Row("100 KB batches, fsync: CPU per MB", one / other, "<=", 2.0, f"{one:.3f} ms", f"C {other:.3f} ms")]


def start_and_idle() -> list[Row]:
    """What a broker costs that does nothing."""
    measured = idle.measure()
    return [
        Row("serve ready, s", measured.ready_s, "<=", 0.4, f"{measured.ready_s:.2f}", "-"),
        Row("idle memory, MB", measured.rss_mb, "<=", 55, f"{measured.rss_mb:.1f}", "-"),
        Row(
            "1,000 idle connections, MB more", measured.connections_mb, "<=", 20, f"{measured.connections_mb:.1f}", "-"
        ),
        Row("2,000 idle partitions, CPU %", measured.partitions_cpu, "<=", 1.0, f"{measured.partitions_cpu:.2f}", "-"),
    ]


def full_journal() -> list[Row]:
    """kill -9 with a full journal of 200-byte units over 2,000 partitions."""
    measured = recovery.measure()
    against = f"{measured.units:,} units, {measured.journal_mb:.0f} MB; peak {measured.peak_mb:.0f} MB of memory"
    return [Row("recovery of a full journal, s", measured.ready_s, "<=", 10.0, f"{measured.ready_s:.1f}", against)]


def loop_stalls(seconds: float) -> list[Row]:
    """The longest that an idle client waits while the broker works, and the longest step of upkeep on the loop."""
    step, step_ms = max(steps.measure().items(), key=lambda item: item[1])
    measured = stalls.measure(seconds)
    seen = f"{measured.most:.0f} ms seen"
    against = f"p50 {measured.p50:.2f}, p99 {measured.p99:.1f}, p99.9 {measured.p999:.1f} ms"
    return [
        Row("longest step of upkeep over 2,000 logs, CPU ms", step_ms, "<=", 50, f"{step_ms:.1f}", step),
        Row("longest stall under load, 2,000 partitions, ms", measured.own, "<=", 50, seen, against),
    ]


@click.command()
@click.option("--quick", is_flag=True, help="Short rounds: whether it runs, not what it measures.")
@click.option("--only", default="", help="Part of a row's function name.")
def main(quick: bool, only: str) -> None:
    """Measure every bar and write bench/results/bars-<time>.json."""
    seconds = 1.0 if quick else 4.0
    parts: dict[str, Callable[[], list[Row]]] = {
        "start_and_idle": start_and_idle,
        "durable_partitions": lambda: durable_partitions(seconds),
        "large_batches": lambda: large_batches(seconds),
        "aborted_fetch": aborted_fetch,
        "many_ids": many_ids,
        "client_starts": starts,
        "clients": lambda: clients(0.1 if quick else 1.0),
        "full_journal": full_journal,
        "loop_stalls": lambda: loop_stalls(5.0 if quick else 20.0),
    }
    rows: list[Row] = []
    for name, measure in parts.items():
        if only in name:
            click.echo(f"measuring {name} …", err=True)
            found = measure()
            rows.extend(found)
            for row in found:
                click.echo(line(row))
    results = Path("bench/results")
    results.mkdir(parents=True, exist_ok=True)
    facts = {"python": sys.version.split()[0], "machine": platform.machine(), "system": platform.release()}
    document = {"facts": facts, "rounds": ROUNDS, "rows": [asdict(row) | {"met": row.met} for row in rows]}
    path = results / f"bars-{time.strftime('%Y%m%dT%H%M%S')}.json"
    path.write_text(json.dumps(document, indent=1))
    click.echo(f"{sum(row.met for row in rows)} of {len(rows)} bars met; {path}")


if __name__ == "__main__":
    main()
