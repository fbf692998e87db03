"""Spark with our connector, beside Spark's own jar where that is to be had: `python -m fencepost.bench.bars.spark`.

The jar needs an environment of its own with the pyspark it is made for: SPARK_KAFKA_PYTHON names its Python and
SPARK_KAFKA_PACKAGES the jar (org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0). Without them its rates as they were
measured once on such a machine are what we stand beside. Rounds are interleaved, sessions warm.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ...client.producer.producer import Producer
from .. import topics
from ..peers import peers
from .rows import Row, line

PARTITIONS = 4
RECORD_BYTES = 100
ROUNDS = 5
BATCH_ROWS = 200_000
BATCHES_A_RUN = 6  # the first of each run is warm-up
RUNS = 7
ABOVE_ALL = 1.15
# Records per second of spark-sql-kafka-0-10 4.0.0 on two cores, where it is not here: source, at-least-once copy.
JAR_READS, JAR_COPIES = 1_000_000, 470_000
SOURCE, TARGET = "bench-source", "bench-target"


class Session:
    """A process with a Spark session."""

    def __init__(self, form: str, python: str) -> None:
        program = str(Path(__file__).with_name("spark_loads.py"))
        self._process = subprocess.Popen(
            [python, program, form], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.version: str = self._answer()["spark"]

    def do(self, what: str, **order: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "options": {}, **order}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise click.ClickException(f"Spark's process ended with {self._process.wait()}")
        return json.loads(said)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


async def fill(servers: str, topic: str, records: int) -> None:
    """Records of RECORD_BYTES, keys of eight."""
    value = bytes(i * 131 % 251 for i in range(RECORD_BYTES))
    async with Producer(servers) as producer:
        for i in range(records):
            await producer.send(topic, value, key=b"%08d" % (i % 10_000), partition=i % PARTITIONS)
        await producer.flush()


def rates(ours: Session, jar: Session | None, servers: str, records: int) -> list[Row]:
    """Batch source and stream copy, in turns."""
    found: dict[tuple[str, str], list[float]] = {}
    for again in range(ROUNDS + 1):
        for name, one in (("ours", ours), ("jar", jar)):
            if one is not None:
                for what, target in (("read", ""), ("copy", f"{TARGET}-{name}")):
                    seconds = one.do(what, servers=servers, topic=SOURCE, target=target)["seconds"]
                    if again:  # the first is warm-up
                        found.setdefault((name, what), []).append(records / seconds)
    rows = []
    for what, words, bar, once in (
        ("read", "Spark batch source to noop: rows/s", 0.8, JAR_READS),
        ("copy", "Spark exactly-once stream copy: rows/s", 0.5, JAR_COPIES),
    ):
        mine = statistics.median(found["ours", what])
        theirs = statistics.median(found["jar", what]) if jar is not None else float(once)
        against = f"jar {jar.version}" if jar is not None else "jar 4.0.0, measured before"
        rows.append(Row(words, mine / theirs, ">=", bar, f"{mine:,.0f}", f"{against} {theirs:,.0f}"))
    return rows


def guarantee(ours: Session, servers: str) -> Row:
    """A micro-batch exactly once beside one at least once: runs of some batches, in turns."""
    taken: dict[str, list[float]] = {"exactly_once": [], "at_least_once": []}
    for _ in range(RUNS):
        for name, found in taken.items():
            order = {"topic": f"{SOURCE}-batches", "target": f"{TARGET}-{name}", "per_batch": BATCH_ROWS}
            done = ours.do("copy", servers=servers, **order, options={"deliveryGuarantee": name})
            found += done["batches"][1:]
    one, other = (statistics.median(taken[name]) for name in ("exactly_once", "at_least_once"))
    name = f"Spark micro-batch of {BATCH_ROWS // 1000} k rows, {len(taken['exactly_once'])} each: exactly once"
    return Row(name, one / other, "<=", ABOVE_ALL, f"{one:,.0f} ms", f"at least once {other:,.0f} ms")


@contextlib.contextmanager
def sessions() -> Iterator[tuple[Session, Session | None]]:
    """Ours, and that of Spark's own connector if it is to be had."""
    ours = Session("fencepost", sys.executable)
    python, packages = os.environ.get("SPARK_KAFKA_PYTHON"), os.environ.get("SPARK_KAFKA_PACKAGES")
    jar = Session("kafka", python) if python and packages else None
    try:
        yield ours, jar
    finally:
        for each in (ours, jar):
            if each is not None:
                each.close()


@click.command()
@click.option("--records", default=3_000_000, show_default=True)
@click.option("--only-rates", is_flag=True, help="Without the batches of the guarantees.")
def main(records: int, only_rates: bool) -> None:
    began = time.monotonic()
    with peers.fencepost("os") as peer:
        for name in (SOURCE, f"{SOURCE}-batches", f"{TARGET}-ours", f"{TARGET}-jar"):
            topics.create(peer.host, peer.port, name, PARTITIONS)
        for name in ("exactly_once", "at_least_once"):
            topics.create(peer.host, peer.port, f"{TARGET}-{name}", PARTITIONS)
        click.echo(f"filling with {records:,} records of {RECORD_BYTES} B")
        asyncio.run(fill(peer.bootstrap, SOURCE, records))
        with sessions() as (ours, jar):
            click.echo(f"Spark {ours.version}" + (f", jar for Spark {jar.version}" if jar else ", no jar here"))
            for row in rates(ours, jar, peer.bootstrap, records):
                click.echo(line(row))
            if not only_rates:
                asyncio.run(fill(peer.bootstrap, f"{SOURCE}-batches", BATCH_ROWS * BATCHES_A_RUN))
                click.echo(line(guarantee(ours, peer.bootstrap)))
    click.echo(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
