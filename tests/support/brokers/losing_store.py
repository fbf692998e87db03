"""Two real brokers on one S3 server behind a proxy that loses answers, and a producer that keeps sending."""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import confluent_kafka
import pytest
from broker_process import BrokerProcess
from losing_proxy import LosingProxy
from s3_servers import opened_store
from store_brokers import until

LOST = 0.02
OPTIONS = (
    "--standby",
    "-X",
    "store.lease.ms=600",
    "-X",
    "store.heartbeat.ms=150",
)  # with 10 rounds a second, the default
PATIENCE_S = 300  # of a standby: on a slow machine MORE takes long
MORE = 20  # records that are acknowledged before the next kill


@contextlib.contextmanager
def losing_store(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> Iterator[tuple[str, LosingProxy]]:
    """Yield the URL of an empty store behind a proxy that loses LOST of its answers, and the proxy."""
    with opened_store(kind, folder, monkeypatch) as url:
        port = urlsplit(os.environ["AWS_ENDPOINT_URL"]).port
        assert port is not None
        with LosingProxy(port, LOST, seed) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
            yield url, proxy


class Sending:
    """One producer that sends numbers in order, until it is ended."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.acked: list[int] = []
        self.failed: list[str] = []
        quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 10, "log_level": 0}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **quick})
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            if self.sent - len(self.acked) < 1000:
                self._producer.produce("t", b"%d" % self.sent, partition=0, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(0.005)
        self._producer.flush(60)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked.append(int(message.value()))

    def more(self) -> None:
        """Wait until MORE more records were acknowledged."""
        wanted = len(self.acked) + MORE
        until(lambda: len(self.acked) >= wanted, f"nothing is acknowledged: {self.failed[:3]}")

    def end(self) -> None:
        """Send no more, and wait for what was sent."""
        self._ends.set()
        self._thread.join()


class Node:
    """One of the two brokers, whichever part it has now."""

    def __init__(self, directory: str, url: str, node: int, program: Sequence[str] = ()) -> None:
        """program: what runs `serve`, as in BrokerProcess."""
        options = ("--store", url, "-X", f"node.id={node}", *OPTIONS)
        self.broker = BrokerProcess(directory, *options, ready_s=PATIENCE_S, program=program)
        self._starting: threading.Thread | None = None

    def begin(self) -> None:
        """Start it, and return once it waits for the owner to be gone, or serves."""
        before = len(self.broker.lines)
        self._starting = threading.Thread(target=self.broker.start)
        self._starting.start()
        said = ("waiting until the owner", "ready")
        until(lambda: any(word in line for line in self.broker.lines[before:] for word in said), "it does not start")

    def wait_until_it_serves(self) -> None:
        assert self._starting is not None
        self._starting.join()
