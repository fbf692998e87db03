"""Measures Spark with our connector, and with Kafka's own connector if its jar is available. Each Spark session is
started once, and warmed up before it is measured.

The jar needs a Python environment with the pyspark version that it is made for: SPARK_KAFKA_PYTHON names the Python,
and SPARK_KAFKA_PACKAGES the jar (org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0). Without these variables Kafka's
connector is not measured.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from ...client.producer.producer import Producer
from .. import topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import AT_LEAST_ONCE, EXACTLY_ONCE, SPARK, SPARK_JAR
from .sizes import Say, Size, in_turns

PARTITIONS = 4
RECORD_BYTES = 100
RECORDS = 3_000_000
BATCH_ROWS = 200_000
BATCHES = 6  # of a run; the first is warm-up
SOURCE, SOURCE_OF_BATCHES, TARGET = "bench-source", "bench-batches", "bench-target"
GUARANTEES = {EXACTLY_ONCE: "exactly_once", AT_LEAST_ONCE: "at_least_once"}
PROGRAM = Path(__file__).with_name("spark_loads.py")
PATIENCE_S = 300.0  # for a session, and for each thing it does
LAST_LINES = 5  # of the output of a session that ended


class SparkFailed(Exception):
    """Raised if a Spark session ended, a command failed in it, or it timed out."""


class Session:
    """A process with a Spark session that executes commands."""

    def __init__(self, form: str, process: "subprocess.Popen[str]", errors: IO[bytes]) -> None:
        """Wait until the session is ready. Raises: SparkFailed."""
        self._form = form
        self._process = process
        self._errors = errors
        self._late = False
        self.version = str(self._answer("the start")["spark"])

    def do(self, what: str, **order: Any) -> dict[str, Any]:
        """Run one command in the session and return its answer. what: "read", "write" or "copy". order: its arguments.
        Raises: SparkFailed.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # _answer() raises the reason
            self._process.stdin.write(json.dumps({"do": what, "options": {}, **order}) + "\n")
            self._process.stdin.flush()
        return self._answer(what)

    def _answer(self, what: str) -> dict[str, Any]:
        """Wait for the session's next answer and return it. what: names the command in errors. Raises: SparkFailed,
        also after PATIENCE_S.
        """
        assert self._process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self._give_up)
        timer.daemon = True
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._why()}
        if "error" in answer:
            raise SparkFailed(f"{self._form}, {what}: {answer['error']}")
        return answer

    def _give_up(self) -> None:
        """Kill the session's process because a command took too long."""
        self._late = True
        self._process.kill()

    def _why(self) -> str:
        """Return why the session ended, with its last lines of output."""
        if self._late:
            return f"not done after {PATIENCE_S:g} s"
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        return f"ended with code {code}" + "".join(f" / {line.strip()}" for line in last)


@contextlib.contextmanager
def session(form: str, python: str) -> Iterator[Session]:
    """Run a Spark session during the block. form: the data source it uses. python: the program to run it with."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [python, str(PROGRAM), form],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only the parent, which then ends this process
        )
        with peers.ended(process):
            yield Session(form, process, errors)


@contextlib.contextmanager
def sessions(say: Say) -> Iterator[dict[str, Session]]:
    """Run our session, and one with Kafka's connector if the environment names its jar, during the block. Yields them
    by their names in results.
    """
    with contextlib.ExitStack() as stack:
        found = {SPARK: stack.enter_context(session("fencepost", sys.executable))}
        python = os.environ.get("SPARK_KAFKA_PYTHON")
        if python and os.environ.get("SPARK_KAFKA_PACKAGES"):
            found[SPARK_JAR] = stack.enter_context(session("kafka", python))
        say(", ".join(f"{name} {each.version}" for name, each in found.items()))
        yield found


async def fill(servers: str, topic: str, records: int) -> None:
    """Write records of RECORD_BYTES with keys of eight bytes, spread over the topic's partitions."""
    value = bytes(i * 131 % 251 for i in range(RECORD_BYTES))
    async with Producer(servers) as producer:
        for i in range(records):
            await producer.send(topic, value, key=b"%08d" % (i % 10_000), partition=i % PARTITIONS)
        await producer.flush()


def spark(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure reading, writing and copying with each session, then batches with each delivery guarantee. The first
    round of each only warms up, and takes many times as long.
    """
    records, rows = size.count(RECORDS), size.count(BATCH_ROWS)
    say(f"{name} · {records + rows * BATCHES:,} records are made")
    with peers.fencepost("os") as broker, sessions(say) as found:
        for topic, count in ((SOURCE, records), (SOURCE_OF_BATCHES, rows * BATCHES), (TARGET, 0)):
            topics.create(broker.host, broker.port, topic, PARTITIONS)
            asyncio.run(fill(broker.bootstrap, topic, count))

        def rate(each: Session, what: str) -> float:
            """Return records per second of one command ("read", "write" or "copy") in a session."""
            order: dict[str, Any] = {"servers": broker.bootstrap, "topic": SOURCE, "target": TARGET}
            order |= {"records": records, "record_bytes": RECORD_BYTES, "partitions": PARTITIONS}
            return float(records / each.do(what, **order)["seconds"])

        def took_ms(guarantee: str) -> float:
            """Return the median ms of a micro-batch with this delivery guarantee, without the first."""
            order = {"servers": broker.bootstrap, "topic": SOURCE_OF_BATCHES, "target": TARGET, "per_batch": rows}
            done = found[SPARK].do("copy", **order, options={"deliveryGuarantee": guarantee})
            return float(statistics.median(done["batches"][1:]))

        for what in ("read", "write", "copy"):
            say(f"{name} {what}")
            rates = in_turns(1 + size.rounds, *(partial(rate, each, what) for each in found.values()))
            for peer, values in zip(found, rates, strict=True):
                yield Measured(f"{name} {what}", "row", peer, {"rate": tuple(values[1:])})
        say(f"{name} guarantees")
        times = in_turns(1 + size.rounds, *(partial(took_ms, guarantee) for guarantee in GUARANTEES.values()))
        for peer, values in zip(GUARANTEES, times, strict=True):
            yield Measured(f"{name} guarantees", "batch", peer, {"took_ms": tuple(values[1:])})
