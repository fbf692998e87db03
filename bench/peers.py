"""The servers that a comparison runs against, each a process of its own on loopback, ended when the block ends.

- fencepost, with a durability mode;
- librdkafka's mock cluster: C, in memory, no files (needs the confluent-kafka wheel only);
- the floor: bench/floor.c, which appends and syncs and does nothing else (needs a C compiler);
- Apache Kafka, where KAFKA=HOST:PORT names one that is already running.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..protocol import apis
from ..protocol.messages.produce import ProduceResponse
from . import small

READY_S = 30


@dataclass(frozen=True, slots=True)
class Peer:
    """A running server. pid: whose books to read."""

    name: str
    host: str
    port: int
    pid: int

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


@contextlib.contextmanager
def fencepost(durability: str, directory: str | None = None, *options: str) -> Iterator[Peer]:
    """`fencepost serve` on a free port, in a new data directory unless one is given."""
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-bench-"))
        command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data-dir", directory]
        process = stack.enter_context(_running([*command, "--durability", durability, *options]))
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready"):
                port = int(line.split()[-1].rsplit(":", 1)[1])
                yield Peer(f"fencepost {durability}", "127.0.0.1", port, process.pid)
                return
        raise RuntimeError("fencepost did not become ready")


@contextlib.contextmanager
def mock() -> Iterator[Peer]:
    """librdkafka's mock cluster, one broker."""
    with _running([sys.executable, "-c", _MOCK], stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        host, port = process.stdout.readline().strip().rsplit(":", 1)
        yield Peer("librdkafka mock", host, int(port), process.pid)


_MOCK = """
import sys
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored"})
broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def floor(topic: str, *, sync: bool) -> Iterator[Peer | None]:
    """The C server; it answers every frame with a Produce v7 answer for `topic`. None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        binary = os.path.join(directory, "floor")
        source = Path(__file__).with_name("floor.c")
        subprocess.run([compiler, "-O2", "-o", binary, source], check=True)
        command = [binary, os.path.join(directory, "log"), _answer(topic).hex(), *(["sync"] if sync else [])]
        with _running(command, stdin=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield Peer("C floor", "127.0.0.1", int(process.stdout.readline()), process.pid)


def _answer(topic: str) -> bytes:
    """A whole Produce v7 answer, length included, that says: written, no error."""
    partition = ProduceResponse.Topic.Partition(index=0, base_offset=0, log_start_offset=0)
    response = ProduceResponse(responses=[ProduceResponse.Topic(name=topic, partition_responses=[partition])])
    return b"".join(apis.encode_response(apis.APIS[small.PRODUCE], 7, 1, response))


def environment() -> dict[str, str]:
    """For processes that are measured: with compiled modules, as an installed package has, also where they are not
    to be written beside the sources."""
    names = dict(os.environ)
    if names.pop("PYTHONDONTWRITEBYTECODE", ""):
        names.setdefault("PYTHONPYCACHEPREFIX", os.path.join(tempfile.gettempdir(), "fencepost-bench-modules"))
    return names


@contextlib.contextmanager
def _running(command: list[str], stdin: int | None = None) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=stdin, text=True, env=environment())
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
