"""Kafka's own Java clients in one JVM, told what to do line by line (tests/interop/java).

Their jars are Maven's: `make java-clients` resolves them by their coordinates into Maven's own local repository and
leaves the class path beside the virtual environment's installation. Without it, or without a JDK, tests are skipped.
"""

import itertools
import json
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "interop" / "java" / "Clients.java"
CLASS_PATH = Path(sys.prefix) / "java-clients.classpath"
OPTIONS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"]
OPTIONS += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
ANSWER_S = 30


class JavaError(Exception):
    """An exception in a Java client: its class's name, and that of its cause."""

    def __init__(self, kind: str, detail: str, under: str) -> None:
        super().__init__(f"{kind}: {detail}" + (f" (caused by {under})" if under else ""))
        self.kinds = {kind, under} - {""}


class ToolEnded(Exception):
    """A command-line tool ended with this exit code."""

    def __init__(self, code: str, printed: str) -> None:
        super().__init__(f"exit code {code}: {printed}")
        self.printed = printed


class Call:
    """A call of a Java client that has not returned yet."""

    def __init__(self, jvm: "JavaClients") -> None:
        self._jvm = jvm
        self._answer: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()

    def answered(self, answer: dict[str, str]) -> None:
        self._answer.put(answer)

    def result(self, within_s: float = ANSWER_S) -> dict[str, str]:
        """Wait for the call and return its result. Raises JavaError."""
        try:
            answer = self._answer.get(timeout=within_s)
        except queue.Empty:
            raise AssertionError(f"a Java client is still in its call after {within_s} s") from None
        if "error" in answer:
            raise JavaError(answer["error"], answer["detail"], answer["under"])
        return answer


class JavaClient:
    """One producer or consumer in the JVM."""

    def __init__(self, jvm: "JavaClients", name: str) -> None:
        self._jvm = jvm
        self.name = name

    def start(self, what: str, **arguments: Any) -> Call:
        """Begin a call. Calls of one client are carried out one after the other."""
        return self._jvm.start(self.name, what, arguments)

    def do(self, what: str, **arguments: Any) -> dict[str, str]:
        """Make a call and return its result."""
        return self.start(what, **arguments).result()

    def send(self, topic: str, *values: str, partition: int = 0) -> list[int]:
        """Send records, wait until all are acknowledged, and return their offsets."""
        return _numbers(self.do("send", topic=topic, partition=partition, values=",".join(values))["offsets"])

    def poll(self, ms: int = 500) -> list[str]:
        """Poll once and return the values."""
        return [value for value in self.do("poll", ms=ms)["values"].split(",") if value]


class JavaProducer:
    """A Java producer with the methods of the Python libraries' producers (library_producers)."""

    def __init__(self, jvm: "JavaClients", bootstrap: str, transactional_id: str) -> None:
        self._producer = jvm.producer(bootstrap, transactional_id)

    def init(self) -> None:
        self._producer.do("init")

    def begin(self) -> None:
        self._producer.do("begin")

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.send(topic, value.decode(), partition=partition)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        self._producer.do("sendOffsets", group=group, topic=topic, partition=0, offset=offset)

    def commit(self) -> None:
        self._producer.do("commit")

    def abort(self) -> None:
        self._producer.do("abort")

    def close(self) -> None:
        self._producer.do("close")


class JavaClients:
    """A JVM that runs for the `with` block."""

    def __init__(self, classes: Path) -> None:
        """classes: a folder to compile into."""
        self._classes = classes
        self._calls: dict[str, Call] = {}
        self._names = (f"client-{number}" for number in itertools.count())
        self._numbers = itertools.count(1)

    def __enter__(self) -> "JavaClients":
        jars = jars_or_skip()
        subprocess.run(["javac", "-cp", jars, "-d", str(self._classes), str(SOURCE)], check=True)
        command = ["java", *OPTIONS, "-cp", f"{self._classes}:{jars}", "Clients"]
        self._jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = self._calls["ready"] = Call(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        ready.result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._jvm.stdin is not None
        self._jvm.stdin.close()
        try:
            self._jvm.wait(10)
        except subprocess.TimeoutExpired:
            self._jvm.kill()
            self._jvm.wait()
        self._reader.join()
        assert self._jvm.stdout is not None
        self._jvm.stdout.close()

    def producer(self, bootstrap: str, transactional_id: str, **settings: Any) -> JavaClient:
        """Return a transactional producer. Its settings have `_` for `.`."""
        settings = {"transactional_id": transactional_id, "max_block_ms": 20_000, "linger_ms": 0, **settings}
        return self._client("producer", bootstrap, settings)

    def consumer(self, bootstrap: str, group: str, **settings: Any) -> JavaClient:
        """Return a read_committed consumer that begins at the first offset and commits only when it is told."""
        fixed = {"isolation_level": "read_committed", "enable_auto_commit": "false", "auto_offset_reset": "earliest"}
        return self._client("consumer", bootstrap, {"group_id": group, **fixed, **settings})

    def tool(self, name: str, bootstrap: str, arguments: str) -> str:
        """Run one of Kafka's command-line tools, and return what it prints. name: its class below
        org.apache.kafka.tools.

        Raises ToolEnded if it ends with another exit code than 0. Where its jars are not there, the test is skipped.
        """
        if "kafka-tools" not in CLASS_PATH.read_text():
            pytest.skip("NO JAVA TOOLS: `make java-clients` resolves them with Maven")
        words = f"--bootstrap-server {bootstrap} {arguments}"
        answer = JavaClient(self, "tools").start("tool", tool=name, arguments=words).result(2 * ANSWER_S)
        if int(answer.get("exit", 0)):
            raise ToolEnded(answer["exit"], answer["out"])
        return answer["out"]

    def _client(self, kind: str, bootstrap: str, settings: dict[str, Any]) -> JavaClient:
        client = JavaClient(self, next(self._names))
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        client.do(
            kind, **{"bootstrap.servers": bootstrap, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20, **dotted}
        )
        return client

    def start(self, client: str, what: str, arguments: dict[str, Any]) -> Call:
        """Begin a call of the client of this name."""
        number = str(next(self._numbers))
        call = self._calls[number] = Call(self)
        line = {"call": number, "client": client, "do": what, **{k: str(v) for k, v in arguments.items()}}
        assert self._jvm.stdin is not None
        self._jvm.stdin.write(json.dumps(line) + "\n")
        self._jvm.stdin.flush()
        return call

    def _read(self) -> None:
        assert self._jvm.stdout is not None
        for line in self._jvm.stdout:
            answer = json.loads(line)
            self._calls.pop(answer["call"]).answered(answer)


def jars_or_skip() -> str:
    """Return the class path of the jars; without them, skip the test and say what to do."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            pytest.skip(f"NO JDK ({tool}): nothing here speaks the newest transaction protocol, TV2 is NOT proven")
    jars = CLASS_PATH.read_text().strip() if CLASS_PATH.exists() else ""
    if not jars or not all(Path(jar).exists() for jar in jars.split(":")):
        pytest.skip("NO JAVA CLIENT, TV2 is NOT proven: `make java-clients` resolves it with Maven")
    return jars


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
