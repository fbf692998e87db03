"""Broker, SDK, plugin and command line with what CPython has on macOS, and no more (tests/like_a_mac)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from long_runs import first_only

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow

IS_ONE = """
import fcntl, os, select, socket, sys
assert sys.platform == "darwin" and fcntl.F_FULLFSYNC
assert not hasattr(os, "fdatasync") and not hasattr(select, "epoll") and not hasattr(socket, "TCP_CONGESTION")
"""

LIVES = """
import sys
from fencepost import Broker, sync
from fencepost.sync import Consumer, Producer

def read(broker, isolation):
    with Consumer(broker.bootstrap_servers, topics=["t"], group_id=isolation, auto_offset_reset="earliest",
                  isolation_level=isolation) as consumer:
        found = [next(consumer).value for _ in range(3)]
        consumer.commit()
        return found

with Broker(sys.argv[1]) as broker:
    with Producer(broker.bootstrap_servers, transactional_id="payments") as producer:
        for size in (10, 40_000, 900_000):  # what is written by one call, by a worker, and in bulk
            with producer.transaction():
                producer.send("t", b"x" * size, partition=0)
    broker.advance(3600)  # to segments, and a checkpoint
    assert list(map(len, read(broker, "read_committed"))) == [10, 40_000, 900_000]
    broker.kill()
    broker.restart()
    assert list(map(len, read(broker, "read_uncommitted"))) == [10, 40_000, 900_000]
with Broker(sys.argv[1]) as broker:
    assert [broker.running, list(broker.failures)] == [True, []]
with Broker() as broker:
    broker.kill()
    broker.restart()
"""

PLAIN = ("-p", "no:cacheprovider", "-p", "no:schemathesis")  # which imports much
TESTS = """
async def test_an_async_client(fp_topic, fp_producer, fp_consumer, fp_broker):
    await fp_producer.send_and_wait(fp_topic, b"42")
    assert [record.value for record in fp_broker.records(fp_topic)] == [b"42"]

def test_a_lost_answer(fp_broker, fp_topic, fp_bootstrap):
    from fencepost.sync import Producer
    with Producer(fp_bootstrap) as producer:
        producer.send_and_wait(fp_topic, b"1")
    fp_broker.kill()
    fp_broker.restart()
    assert [record.value for record in fp_broker.records(fp_topic)] == [b"1"]
"""


@pytest.fixture(params=first_only(["like_a_mac", "like_a_mac:no_uvloop"]), ids=["uvloop", "asyncio"])
def on_a_mac(request, monkeypatch):
    """Every Python that is started from here on."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(HERE / name) for name in request.param.split(":")))
    run("-c", IS_ONE)


def run(*command, given=""):
    done = subprocess.run([sys.executable, *command], input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_linux_calls_a_broker_restarts_with_its_transactions(on_a_mac, tmp_path):
    run("-c", LIVES, str(tmp_path / "data"))


@pytest.mark.parametrize("on_a_mac", ["like_a_mac"], indirect=True)
def test_without_linux_calls_the_pytest_plugin_gives_tests_a_broker(on_a_mac, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    assert "2 passed" in run("-m", "pytest", "-q", *PLAIN, "--rootdir", str(tmp_path), str(tmp_path))


@pytest.mark.parametrize("on_a_mac", ["like_a_mac"], indirect=True)
def test_serve_backup_restart_and_consume_work_without_linux_calls(on_a_mac, tmp_path):
    broker = BrokerProcess(str(tmp_path / "data"))
    fencepost, at = ("-m", "fencepost"), ("-b", broker.bootstrap)
    broker.start()
    try:
        run(*fencepost, "topic", "create", "t", *at)
        run(*fencepost, "produce", "t", *at, given="one\ntwo\n")
        run(*fencepost, "health", *at)
        run(*fencepost, "backup", str(tmp_path / "data"), str(tmp_path / "backup"))
        broker.kill()
        broker.start()
        assert run(*fencepost, "consume", "t", "--exit", *at).split() == ["one", "two"]
        assert broker.stop() == 0
    finally:
        broker.kill()
    run(*fencepost, "log", "verify", str(tmp_path / "data"))
    run(*fencepost, "restore", str(tmp_path / "backup"), str(tmp_path / "restored"))
