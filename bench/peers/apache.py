"""Runs Apache Kafka as a peer: its jars by Maven coordinates (kafka/pom.xml), and one node on loopback.

Its settings are its defaults, except for those that one node alone needs: replication factors of 1, no wait for the
first members of a group, and no topics except those that were asked for. The JVM gets Kafka's default options.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ...protocol.messages.cluster import MetadataRequest
from ..wire import Wire

VERSION = "4.3.1"  # as in the pom
OLDEST_JAVA = 17
CLUSTER = "ZmVuY2Vwb3N0LWJlbmNoIQ"  # base64 of 16 bytes, its id
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
READY_S = 60
MAVEN_S = 600
JVM = (  # bin/kafka-server-start.sh and kafka-run-class.sh of the release
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def absence() -> str | None:
    """Return why Kafka cannot run on this machine; None if it can."""
    if shutil.which("java") is None:
        return f"no JDK ≥ {OLDEST_JAVA}"
    printed = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    if (version := java_version(printed)) is None or version < OLDEST_JAVA:
        return f"no JDK ≥ {OLDEST_JAVA} (found {version})"
    if not _complete(_cache()) and shutil.which("mvn") is None:
        return "no Maven"
    return None


def java_version(printed: str) -> int | None:
    """Return the major version in the output of `java -version`: 17; 8 for the older form 1.8; None if there
    is none.
    """
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(found.group(1)) if found else None


def jars() -> Path | None:
    """Return the folder of Kafka's jars in the user's cache. Maven downloads them the first time. None, with a printed
    reason, if that failed.
    """
    cache = _cache()
    if _complete(cache):
        return cache
    print(f"resolving Apache Kafka {VERSION} by Maven into {cache} …", file=sys.stderr, flush=True)
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as fresh:
        folder = Path(fresh) / "jars"
        pom = Path(__file__).parent / "kafka" / "pom.xml"
        command = ["mvn", "-q", "-B", "-f", str(pom), COPY, f"-DoutputDirectory={folder}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_S, check=False)
        except subprocess.TimeoutExpired:
            print(f"Maven was not done after {MAVEN_S} s", file=sys.stderr)
            return None
        if done.returncode or not _complete(folder):
            print((done.stdout + done.stderr)[-2000:], file=sys.stderr)
            return None
        try:
            folder.rename(cache)
        except OSError:  # another run was there first
            return cache if _complete(cache) else None
    return cache


def prepare(directory: Path, libraries: Path, *, flush: bool) -> int:
    """Write the settings of a node and format its log directory. Returns the port that it will listen on.

    flush: it syncs every message before it answers. Raises: RuntimeError with the output of the formatting.
    """
    port, controller = _free_ports()
    settings = directory / "server.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in _settings(directory, port, controller, flush)))
    tool = ["java", "-cp", f"{libraries}/*", "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Kafka's log directory could not be formatted: {(done.stdout + done.stderr)[-1000:]}")
    return port


def start(directory: Path, libraries: Path) -> "subprocess.Popen[str]":
    """Start the node that prepare() has set up. Its output goes to server.log."""
    command = ["java", *JVM, "-cp", f"{libraries}/*", "kafka.Kafka", str(directory / "server.properties")]
    with (directory / "server.log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, text=True, cwd=directory)


def wait_until_ready(process: "subprocess.Popen[str]", port: int, directory: Path) -> None:
    """Wait until the node lists itself in its metadata. Raises: RuntimeError with the end of its log after READY_S, or
    if it ended.
    """
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            wire = Wire("127.0.0.1", port, 5.0)
            try:
                if wire.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), 4).brokers:
                    return
            finally:
                wire.close()
        except OSError:
            pass
        time.sleep(0.02)
    output = (directory / "server.log").read_text()[-1000:]
    raise RuntimeError(f"Kafka did not become ready in {READY_S} s: {output}")


def _settings(directory: Path, port: int, controller: int, flush: bool) -> list[tuple[str, object]]:
    """Return (name, value) of each setting of the node. controller: the port of its controller."""
    settings: list[tuple[str, object]] = [
        ("process.roles", "broker,controller"),
        ("node.id", 1),
        ("controller.quorum.voters", f"1@127.0.0.1:{controller}"),
        ("listeners", f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"),
        ("advertised.listeners", f"PLAINTEXT://127.0.0.1:{port}"),
        ("controller.listener.names", "CONTROLLER"),
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
        ("log.dirs", directory / "logs"),
        ("offsets.topic.replication.factor", 1),
        ("transaction.state.log.replication.factor", 1),
        ("transaction.state.log.min.isr", 1),
        ("share.coordinator.state.topic.replication.factor", 1),
        ("share.coordinator.state.topic.min.isr", 1),
        ("group.initial.rebalance.delay.ms", 0),
        ("auto.create.topics.enable", "false"),
        ("log.segment.delete.delay.ms", 100),  # short, because the next window waits until the files are removed
    ]
    if flush:
        settings.append(("log.flush.interval.messages", 1))
    return settings


def _cache() -> Path:
    """Return the folder for the jars of this version in the user's cache."""
    above = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return above / "fencepost" / f"kafka-{VERSION}"


def _complete(folder: Path) -> bool:
    """Return whether the folder has Kafka's jars."""
    return (folder / f"kafka_2.13-{VERSION}.jar").exists()


def _free_ports() -> tuple[int, int]:
    """Return two TCP ports that were free a moment ago, since Kafka cannot choose its own."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
