"""Real brokers on one store: a standby takes over from one that is killed, paused or stopped; clients just go on."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import confluent_kafka
import pytest
from broker_process import BrokerProcess
from s3_servers import STORES, opened_store
from store_brokers import TAKEN_OVER, numbers, until, wait_for_name

import fencepost

QUICK = ("-X", "store.heartbeat.ms=150", "-X", "store.puts.per.second=1000")
# Of an owner that is to be killed nobody may take over before, though the machine is busy; SIGTERM must not need it.
LEASE_MS = {"SIGKILL": 3_000, "SIGSTOP": 600, "SIGTERM": 60_000}
ADOPTED = 20


@pytest.fixture(params=STORES)
def url(request, tmp_path, monkeypatch):
    with opened_store(request.param, tmp_path, monkeypatch) as found:
        yield found


def adopted_owner(url: str, directory: Path) -> BrokerProcess:
    """Return an owner that has put a directory with some records into the store, so that there is a checkpoint at
    once.
    """
    alone = BrokerProcess(str(directory))
    alone.start()

    async def send() -> None:
        async with fencepost.Producer(alone.bootstrap) as producer:
            for number in range(ADOPTED):
                await producer.send("t", b"%d" % number)

    asyncio.run(send())
    assert alone.stop() == 0
    owner = BrokerProcess(str(directory), "--store", url, "-X", "store.lease.ms=600", *QUICK)
    owner.start()
    return owner


class Producing:
    """A client that sends numbers, one after the other, until it is ended.

    If it was told of one broker only, it has to keep what Metadata named: by default librdkafka goes back to its
    bootstrap servers once all brokers are down.
    """

    def __init__(self, *brokers: BrokerProcess) -> None:
        self.acked: list[int] = []
        self.failed: list[str] = []
        self.sent = ADOPTED
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": ",".join(broker.bootstrap for broker in brokers),
                "metadata.recovery.strategy": "none" if len(brokers) == 1 else "rebootstrap",
                "reconnect.backoff.max.ms": 500,
                "enable.idempotence": True,
            }
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            self._producer.produce("t", b"%d" % self.sent, partition=0, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0.002)
        self._producer.flush(60)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked.append(int(message.value()))

    def more(self) -> None:
        """Wait until 50 more records were acknowledged."""
        before = len(self.acked)
        until(lambda: len(self.acked) >= before + 50, f"nothing is acknowledged: {self.failed[:3]}")

    def end(self) -> None:
        """Send no more, and wait for what was sent."""
        self._ends.set()
        self._thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "bootstrap"),
    [
        ("SIGKILL", "owner"),
        *(pytest.param(one, "owner and standby", marks=pytest.mark.long) for one in ("SIGKILL", "SIGSTOP", "SIGTERM")),
        *(pytest.param(one, "owner", marks=pytest.mark.long) for one in ("SIGSTOP", "SIGTERM")),
    ],
)
def test_a_producer_continues_at_the_standby_when_the_owner_stops_and_loses_nothing(url, how, bootstrap, tmp_path):
    first = adopted_owner(url, tmp_path / "first")
    lease = f"store.lease.ms={LEASE_MS[how]}"
    second = BrokerProcess(
        str(tmp_path / "second"), "--store", url, "--standby", "-X", lease, "-X", "node.id=2", *QUICK
    )
    starting = threading.Thread(target=second.start)
    starting.start()
    until(lambda: any(" is here, " in line for line in second.lines), "the standby has fetched nothing")
    wait_for_name(second, first)
    producing = Producing(first) if bootstrap == "owner" else Producing(first, second)
    try:
        producing.more()
        os.kill(first.process.pid, signal.Signals[how])
        starting.join()
        if how == "SIGSTOP":
            os.kill(first.process.pid, signal.SIGCONT)
        assert first.ended() == {"SIGKILL": -signal.SIGKILL, "SIGSTOP": TAKEN_OVER, "SIGTERM": 0}[how]
        producing.more()
    finally:
        producing.end()
        first.kill()
    try:
        assert not producing.failed
        assert producing.acked == list(range(ADOPTED, producing.sent))
        assert numbers(second) == list(range(producing.sent))
    finally:
        assert second.stop() == 0
