"""Two real brokers on one S3 server whose answers are lost now and then: the owner is killed or paused again and again.

KILLS and ZOMBIES say how often (100 each by default), SEED which answers are lost. One producer goes on through all.
"""

import os
import random
import signal
import threading
from urllib.parse import urlsplit

import confluent_kafka
import pytest
from broker_process import BrokerProcess
from losing_proxy import LosingProxy
from s3_servers import opened_store
from store_brokers import numbers, until

KILLS, ZOMBIES = (int(os.environ.get(name, "100")) for name in ("KILLS", "ZOMBIES"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1 << 31)
LOST = 0.02
LEASE = "store.lease.ms=600"
OPTIONS = ("--standby", "-X", LEASE, "-X", "store.heartbeat.ms=150")  # with 10 rounds a second, the default
PATIENCE_S = 300  # of a standby: on a slow machine MORE takes long
TAKEN_OVER = 71  # the exit code of `serve` when another broker owns the store
MORE = 20  # records that are acknowledged before the next kill


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

    def __init__(self, directory: str, url: str, node: int) -> None:
        self.broker = BrokerProcess(directory, "--store", url, "-X", f"node.id={node}", *OPTIONS, ready_s=PATIENCE_S)
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


@pytest.fixture(params=["seaweedfs", "versitygw"])
def losing(request, tmp_path, monkeypatch):
    """The URL of a store behind a proxy that loses answers, and the proxy."""
    with opened_store(request.param, tmp_path, monkeypatch) as url:
        port = urlsplit(os.environ["AWS_ENDPOINT_URL"]).port
        assert port is not None
        with LosingProxy(port, LOST, SEED) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
            yield url, proxy


@pytest.mark.slow
@pytest.mark.long
def test_each_record_is_there_once_after_many_kills_and_pauses_of_owners(losing, tmp_path):
    url, proxy = losing
    rng = random.Random(SEED)
    faults = [signal.SIGKILL] * KILLS + [signal.SIGSTOP] * ZOMBIES
    rng.shuffle(faults)
    owner, other = (Node(str(tmp_path / f"node{number}"), url, number) for number in (1, 2))
    owner.begin()
    owner.wait_until_it_serves()
    sending = Sending(f"{owner.broker.bootstrap},{other.broker.bootstrap}")
    done = dict.fromkeys((signal.SIGKILL, signal.SIGSTOP), 0)
    try:
        for fault in faults:
            other.begin()
            sending.more()
            os.kill(owner.broker.process.pid, fault)
            other.wait_until_it_serves()
            if fault == signal.SIGSTOP:
                os.kill(owner.broker.process.pid, signal.SIGCONT)
            assert owner.broker.ended() == (TAKEN_OVER if fault == signal.SIGSTOP else -signal.SIGKILL)
            done[fault] += 1
            owner, other = other, owner
        sending.more()
        sending.end()
        assert not sending.failed
        assert sending.acked == list(range(sending.sent))
        assert numbers(owner.broker) == list(range(sending.sent))
        assert proxy.lost or not faults
    finally:
        sending.end()
        kills, zombies = done.values()
        for node in (owner, other):
            print(f"node {node.broker.options[3]}:", *node.broker.lines[-10:], sep="\n  ")
        print(f"seed {SEED}: {kills} kills, {zombies} zombies, {sending.sent} records, {proxy.lost} answers lost")
        for node in (owner, other):
            if node.broker.process is not None:
                node.broker.kill()
