"""`fencepost demo`: real text through a bad network and a killed broker, and what is left of it.

Every line of the project's own documents is produced with confluent-kafka's idempotent producer through a proxy that
loses acknowledgements and cuts connections; the broker is killed with SIGKILL in the middle and restarted; then
aiokafka reads everything back, and each line is looked for: lost, twice, out of order.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from .failures import Failure
from .flaky_proxy import FlakyProxy
from .interruption import INTERRUPTED, Interruption
from .ranges import COUNT, SHARE

TOPIC = "documents"
PARTITIONS = 4
READY_S = 30


@dataclass(slots=True)
class Sent:
    """What the producer was told."""

    lines: int = 0
    acknowledged: int = 0
    failed: list[str] = field(default_factory=list)


@click.command()
@click.option(
    "--lines", default=20_000, type=COUNT, show_default=True, help="Lines to send; the text is read again if shorter."
)
@click.option(
    "--lose", default=0.05, type=SHARE, show_default=True, help="Share of acknowledgements that the proxy loses."
)
@click.option("--seed", default=1, show_default=True, help="Of the proxy's choices.")
def demo(lines: int, lose: float, seed: int) -> None:
    """Send real text through a bad network and a killed broker, and count what arrives."""
    with Interruption() as interruption:
        try:
            _demonstrate(lines, lose, seed, interruption)
        except (KeyboardInterrupt, click.ClickException):
            if not interruption.wanted:
                raise
            raise Failure("interrupted", "nothing is left of it", INTERRUPTED) from None


def _demonstrate(lines: int, lose: float, seed: int, interruption: Interruption) -> None:
    text = [f"{number}:{line}" for number, line in enumerate(_lines(lines))]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fencepost-demo-") as directory, FlakyProxy(seed, lose) as proxy:
        _say(f"text      {len(text):,} lines of the project's own documents")
        broker = Broker(directory, proxy.port)
        try:
            proxy.target_port = broker.start()
            _say(f"broker    ready in {broker.ready_s:.2f} s, data in a new directory, every ack after its sync")
            _say(f"proxy     between client and broker: loses {lose:.0%} of the acknowledgements, cuts connections")
            sent = _produce(text, proxy, broker, interruption)
            _say(f"reading   everything back with aiokafka {_version('aiokafka')}")
            proxy.lose = 0.0
            found = interruption.run(_read(f"127.0.0.1:{proxy.port}", len(text)))
        finally:
            broker.stop()
        ok = _report(text, sent, found, proxy, broker)
    click.echo(
        f"\n{'✔' if ok else '✘'} {'exactly once' if ok else 'NOT exactly once'}, {time.monotonic() - began:.1f} s"
    )
    sys.exit(0 if ok else 1)


class Broker:
    """`fencepost serve` as a process that can be killed and started again on the same data."""

    def __init__(self, directory: str, advertised_port: int) -> None:
        self._command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data-dir", directory]
        self._command += ["--advertise", f"127.0.0.1:{advertised_port}", "-X", f"num.partitions={PARTITIONS}"]
        self._log = f"{directory}.log"
        self._process: subprocess.Popen[str] | None = None
        self.ready_s = 0.0
        self.kills = 0

    def start(self) -> int:
        """Start, wait for the ready line, return the port."""
        began = time.monotonic()
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ready"):
                self.ready_s = time.monotonic() - began
                return int(line.split()[-1].rsplit(":", 1)[1])
        raise click.ClickException("the broker did not become ready\n" + Path(self._log).read_text())

    def kill(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.kills += 1

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)
        if os.path.exists(self._log):
            os.unlink(self._log)


def _produce(text: list[str], proxy: FlakyProxy, broker: Broker, interruption: Interruption) -> Sent:
    """Send every line, killing the broker half-way; return when all are acknowledged or given up."""
    import confluent_kafka

    _say(f"sending   with confluent-kafka {confluent_kafka.__version__}, idempotent, five requests in flight")
    sent = Sent()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "enable.idempotence": True,
            "linger.ms": 2,
            "batch.num.messages": 50,
            "socket.timeout.ms": 1000,  # a lost answer is noticed after so long
            "request.timeout.ms": 1000,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )

    def delivered(error: Any, _message: Any) -> None:
        if error is None:
            sent.acknowledged += 1
        else:
            sent.failed.append(str(error))

    with _progress(len(text)) as show:
        for number, line in enumerate(text):
            key = str(number % PARTITIONS)
            producer.produce(TOPIC, line, key, partition=number % PARTITIONS, on_delivery=delivered)
            sent.lines += 1
            if number % 50 == 0:
                interruption.check()
                producer.poll(0.002)
                show(sent.acknowledged)
            if number == len(text) // 2:
                broker.kill()
                proxy.target_port = broker.start()
                _say(f"kill -9   at line {number:,}; restarted, recovered and ready in {broker.ready_s:.2f} s")
        while producer.flush(0.1):
            interruption.check()
            show(sent.acknowledged)
    return sent


async def _read(bootstrap: str, expected: int) -> dict[int, list[str]]:
    """Every record of the topic, by partition, in offset order."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
        with _progress(expected) as show:
            while any([await consumer.position(one) < ends[one] for one in partitions]):
                for one, batch in (await consumer.getmany(timeout_ms=1000)).items():
                    found[one.partition].extend(record.value.decode() for record in batch)
                show(sum(map(len, found.values())))
    finally:
        await consumer.stop()
    return found


def _report(text: list[str], sent: Sent, found: dict[int, list[str]], proxy: FlakyProxy, broker: Broker) -> bool:
    """Print the counts. True if everything is there exactly once, in order."""
    counts = Counter(line for lines in found.values() for line in lines)
    lost = sum(1 for line in text if not counts[line])
    twice = sum(count - 1 for count in counts.values() if count > 1)
    strangers = len(set(counts) - set(text))
    ordered = all(
        [int(line.split(":", 1)[0]) for line in lines] == sorted(int(line.split(":", 1)[0]) for line in lines)
        for lines in found.values()
    )
    rows: list[tuple[str, object]] = [
        ("lines sent", f"{sent.lines:,}"),
        ("acknowledged", f"{sent.acknowledged:,}"),
        ("acknowledgements lost by the proxy", proxy.tally.acknowledgements_lost),
        ("connections cut", proxy.tally.connections_cut),
        ("brokers killed", broker.kills),
        ("retries seen", proxy.tally.retries),
        ("duplicates refused", proxy.tally.repeats_recognised),
        ("records lost", lost),
        ("records twice", twice),
        ("order kept", "yes" if ordered else "NO"),
    ]
    click.echo()
    for label, value in rows:
        click.echo(f"  {label:36}{value!s:>10}")
    for failure in sent.failed[:3]:
        click.echo(f"  not acknowledged: {failure}")
    return not (lost or twice or strangers or sent.failed) and ordered and sent.acknowledged == len(text)


def _lines(count: int) -> list[str]:
    """Lines of the project's documents; of its sources where it is installed without them."""
    root = Path(__file__).resolve().parent.parent
    files = sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]) or sorted(root.glob("**/*.py"))
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines() if line.strip()]
    return (lines * (count // len(lines) + 1))[:count]


def _say(line: str) -> None:
    click.echo(f"  {line}")


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar while it lasts, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)
