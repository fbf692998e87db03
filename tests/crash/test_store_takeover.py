"""Real brokers on one store, a directory or an S3 server: one is killed or stopped, one with an empty disk goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest
from broker_process import BrokerProcess, free_port
from s3_servers import STORES, opened_store

import fencepost

QUICK = ("-X", "store.lease.ms=600", "-X", "store.heartbeat.ms=150", "-X", "store.puts.per.second=1000")


@pytest.fixture(params=STORES)
def url(request, tmp_path, monkeypatch):
    with opened_store(request.param, tmp_path, monkeypatch) as found:
        yield found


def serve(url: str, directory: Path) -> BrokerProcess:
    """Return a started broker with a disk of its own."""
    broker = BrokerProcess(str(directory), "--store", url, *QUICK)
    broker.start()
    return broker


async def send(broker: BrokerProcess, first: int, count: int) -> None:
    """Produce numbers, each acknowledged before the next is sent."""
    async with fencepost.Producer(broker.bootstrap) as producer:
        for number in range(first, first + count):
            await producer.send("t", b"%d" % number)
            await producer.flush()


def numbers(broker: BrokerProcess) -> list[int]:
    """Read partition 0 of topic t to its end, and return the numbers."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "r",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(int(message.value()))
    consumer.close()
    return found


@pytest.mark.slow
async def test_a_broker_with_an_empty_disk_serves_the_records_its_killed_predecessor_acked(url, tmp_path):
    first = serve(url, tmp_path / "first")
    await send(first, 0, 50)
    first.kill()
    second = serve(url, tmp_path / "second")
    try:
        assert numbers(second) == list(range(50))
        await send(second, 50, 10)
        assert numbers(second) == list(range(60))
    finally:
        assert second.stop() == 0


@pytest.mark.slow
async def test_a_paused_broker_whose_store_was_taken_over_meanwhile_exits_with_71(url, tmp_path):
    first = serve(url, tmp_path / "first")
    await send(first, 0, 20)
    os.kill(first.process.pid, signal.SIGSTOP)
    second = serve(url, tmp_path / "second")
    os.kill(first.process.pid, signal.SIGCONT)
    try:
        assert first.ended() == 71
        assert any("was ended at round" in line for line in first.lines)
        assert numbers(second) == list(range(20))
    finally:
        assert second.stop() == 0


@pytest.mark.slow
def test_a_standby_broker_that_waits_for_its_store_exits_with_0_on_sigterm(url, tmp_path):
    first = serve(url, tmp_path / "first")
    command = [sys.executable, "-m", "fencepost", "serve", "--store", url, "--standby"]
    command += ["--data-dir", str(tmp_path / "second"), "--listen", f"127.0.0.1:{free_port()}"]
    try:
        with subprocess.Popen([*command, "-X", "store.lease.ms=60000"], stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            assert "waiting until the owner" in waiting.stderr.readline()
            waiting.terminate()
            assert waiting.wait(20) == 0
    finally:
        assert first.stop() == 0
