"""The servers that are compared, each a process of its own on loopback that ends with the block.

- fencepost, with a durability mode;
- Apache Kafka with its defaults, and one that flushes each message before it answers (needs a JDK and Maven);
- librdkafka's mock cluster: C, in memory, no files (needs the confluent-kafka wheel only);
- the floor: bench/peers/floor.c, which appends and syncs and does nothing else (needs a C compiler).
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...protocol import apis
from ...protocol.messages.produce import ProduceResponse
from .. import small
from . import apache, survivors
from .facts import file_system
from .names import FLOOR, FSYNC, KAFKA, KAFKA_FLUSH, MOCK, OS

FLOOR_TOPIC = "bench"  # the floor answers for this topic alone
LAST_CHARACTERS = 1000  # of the output of a server that did not start or has ended
NO_FILES = frozenset({"tmpfs", "ramfs"})  # file systems on which a sync costs nothing
MODULES = tempfile.gettempdir()  # compiled modules stay there from run to run


@dataclass(frozen=True, slots=True)
class Peer:
    """A running server.

    pid: the process whose CPU time and memory are read. is_jvm: it must run for a while until it is steady. durable: an
    answer means that the record is on disk. ready_s: seconds from its start to its first answer. directory: of its
    files, empty if it has none.
    """

    name: str
    host: str
    port: int
    pid: int
    is_jvm: bool = False
    durable: bool = False
    ready_s: float = 0.0
    directory: str = ""

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


class NoFiles(ValueError):
    """Raised if the data directories would be on a file system in memory."""


@contextlib.contextmanager
def bench_root(given: str | None = None) -> Iterator[Path]:
    """Yield the directory under which all servers of this process have their data during the block: a new folder,
    deleted at the end, in the given directory, or in `build` of the current one.

    Directories that had to be created above it are deleted too. Raises: NoFiles for one in memory; OSError if none can
    be created.
    """
    above = Path(given or "build").absolute()
    mounts = Path("/proc/self/mountinfo")
    if (kind := file_system(above, mounts.read_text() if mounts.exists() else "")) in NO_FILES:
        raise NoFiles(f"{above} lies on {kind}: a sync would cost nothing there; name a directory on a disk")
    made = [each for each in (above, *above.parents) if not each.exists()]
    above.mkdir(parents=True, exist_ok=True)
    before = tempfile.tempdir
    try:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=above, ignore_cleanup_errors=True) as root:
            tempfile.tempdir = root
            Path(root).chmod(0o711)  # PostgreSQL's data is below it; if this user is root, PostgreSQL runs as another
            try:
                with survivors.watched(Path(root)):
                    yield Path(root)
            finally:
                tempfile.tempdir = before
    finally:
        with contextlib.suppress(OSError):  # it is not empty: another run uses it
            for each in made:
                each.rmdir()


@contextlib.contextmanager
def start(name: str) -> Iterator[Peer | None]:
    """Run one server by its name, in a new directory, during the block. Yields None if this machine cannot run it."""
    if name in (FSYNC, OS):
        with fencepost(name.split()[-1]) as peer:
            yield peer
    elif name in (KAFKA, KAFKA_FLUSH):
        with kafka(flush=name == KAFKA_FLUSH) as found:
            yield found
    elif name == MOCK:
        with mock() as peer:
            yield peer
    elif name == FLOOR:
        with floor(FLOOR_TOPIC, sync=False) as found:
            yield found
    else:
        raise ValueError(f"no server is named {name!r}")


@contextlib.contextmanager
def fencepost(durability: str, directory: str | None = None, *options: str) -> Iterator[Peer]:
    """Run `fencepost serve` on a free port during the block, in a new data directory unless one is given. options:
    further arguments. Raises RuntimeError if it does not become ready.
    """
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-bench-"))
        command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data-dir", directory]
        output = stack.enter_context(tempfile.TemporaryFile())
        began = time.perf_counter()
        process = stack.enter_context(_running([*command, "--durability", durability, *options], stderr=output))
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready"):
                stack.callback(_show_last_words, process, output)
                ready_s = time.perf_counter() - began
                port = int(line.split()[-1].rsplit(":", 1)[1])
                durable = durability == "fsync"
                name = f"fencepost {durability}"
                yield Peer(name, "127.0.0.1", port, process.pid, False, durable, ready_s, directory)
                return
        raise RuntimeError(f"fencepost did not become ready: {_last(output)}")


def _show_last_words(process: "subprocess.Popen[str]", output: IO[bytes]) -> None:
    """Print the last output of a server, if it has ended without being told to."""
    if process.poll() is not None and (last := _last(output)):
        print(last, file=sys.stderr)


def _last(output: IO[bytes]) -> str:
    """Return the last LAST_CHARACTERS of an output file."""
    output.seek(0)
    return output.read().decode(errors="replace")[-LAST_CHARACTERS:].strip()


@contextlib.contextmanager
def kafka(*, flush: bool, directory: str | None = None) -> Iterator[Peer | None]:
    """Run Apache Kafka with one node during the block. flush: it syncs every message. Yields None, with a printed
    reason, if this machine cannot run it.
    """
    absent = apache.absence()
    libraries = None if absent else apache.jars()
    if libraries is None:
        print(f"Apache Kafka is absent: {absent or 'Maven could not resolve it'}", file=sys.stderr)
        yield None
        return
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-bench-"))
        port = apache.prepare(Path(directory), libraries, flush=flush)
        began = time.perf_counter()
        process = stack.enter_context(ended(apache.start(Path(directory), libraries)))
        apache.wait_until_ready(process, port, Path(directory))
        ready_s = time.perf_counter() - began
        name = KAFKA_FLUSH if flush else KAFKA
        yield Peer(name, "127.0.0.1", port, process.pid, True, flush, ready_s, directory)


@contextlib.contextmanager
def mock() -> Iterator[Peer]:
    """Run librdkafka's mock cluster with one broker during the block. Raises RuntimeError without confluent-kafka."""
    began = time.perf_counter()
    with _running([sys.executable, "-c", _MOCK], stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().rpartition(":")
        if not port:
            raise RuntimeError("the mock cluster did not start: it needs confluent-kafka")
        yield Peer(MOCK, host, int(port), process.pid, ready_s=time.perf_counter() - began)


_MOCK = """
import signal
import sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches only the parent; this process ends with its input
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "log_level": 0})
broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def floor(topic: str, *, sync: bool) -> Iterator[Peer | None]:
    """Run the minimal C server during the block: it writes every request to one file and answers it with a Produce v7
    response for `topic`. sync: it syncs before it answers. Yields None without a C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("the C floor is absent: no C compiler", file=sys.stderr)
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        binary = os.path.join(directory, "floor")
        source = Path(__file__).with_name("floor.c")
        subprocess.run([compiler, "-O2", "-o", binary, source], check=True)
        command = [binary, os.path.join(directory, "log"), _answer(topic).hex(), *(["sync"] if sync else [])]
        with _running(command, stdin=subprocess.PIPE) as process:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield Peer(FLOOR, "127.0.0.1", port, process.pid, durable=sync, directory=directory)


def _answer(topic: str) -> bytes:
    """Return a whole Produce v7 response without error, with its length prefix."""
    partition = ProduceResponse.Topic.Partition(index=0, base_offset=0, log_start_offset=0)
    response = ProduceResponse(responses=[ProduceResponse.Topic(name=topic, partition_responses=[partition])])
    return b"".join(apis.encode_response(apis.APIS[small.PRODUCE], 7, 1, response))


def environment() -> dict[str, str]:
    """Return the environment of measured processes. They use compiled modules, as an installed package does."""
    names = dict(os.environ)
    if names.pop("PYTHONDONTWRITEBYTECODE", ""):
        names.setdefault("PYTHONPYCACHEPREFIX", os.path.join(MODULES, "fencepost-bench-modules"))
    return names


@contextlib.contextmanager
def _running(
    command: list[str], stdin: int | None = None, stderr: IO[bytes] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Run a process during the block, with its output as a pipe."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=stdin, stderr=stderr, text=True, env=environment()
    )
    with ended(process):
        yield process


@contextlib.contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """Yield the process, and end it when the block or this process ends."""
    with survivors.watched(process.pid):
        try:
            yield process
        finally:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # it ended before it had read all of its input
                    process.stdin.close()
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
