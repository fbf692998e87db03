"""Apache Kafka as a process that tests kill and start again on the same data and the same port.

The benchmarks' peer runs it: Maven resolves its jars into the user's cache. Without a JDK or Maven, tests are skipped.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.bench.peers import apache

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:admin",
}
"""Settings of a Kafka that has rules of access, and lets everybody do what no rule is about."""
BACK_SOON = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""A broker that was killed is let in again when the session of its last life has ended: 9 s by default."""


class KafkaProcess:
    """One node with a directory and a port, and the process that runs it now, if any: used like BrokerProcess."""

    def __init__(self, directory: Path, **settings: str) -> None:
        """settings: more lines of server.properties. Skips the test where Kafka cannot run."""
        if absent := apache.absence():
            pytest.skip(f"NO APACHE KAFKA: {absent}")
        libraries = apache.jars()
        if libraries is None:
            pytest.skip("NO APACHE KAFKA: Maven could not resolve its jars")
        directory.mkdir()
        self._directory, self._libraries = directory, libraries
        self._port = apache.prepare(directory, libraries, flush=False)
        with (directory / "server.properties").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in (BACK_SOON | settings).items())
        self.process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the process, and return when it answers."""
        self.process = apache.start(self._directory, self._libraries)
        apache.wait_until_ready(self.process, self._port, self._directory)

    def kill(self) -> None:
        """Send SIGKILL: nothing is flushed, and clients are not told."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)


@contextlib.contextmanager
def kafka_process(directory: Path, **settings: str) -> Iterator[KafkaProcess]:
    """Start a Kafka for the block, and end it after."""
    kafka = KafkaProcess(directory, **settings)
    try:
        kafka.start()
        yield kafka
    finally:
        if kafka.process is not None:
            kafka.kill()
