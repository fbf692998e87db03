"""A broker whose journal is in an object store that is away: what it says, and that one signal ends it."""

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator

import confluent_kafka
import pytest
from broker_process import BrokerProcess, free_port
from eventually import wait_until
from fencepost.bench.peers.memory_s3 import BUCKET, MemoryS3
from fencepost.cli.output.failures import DENIED, STORE_AWAY
from fencepost.cli.serve import store_away

URL = f"s3://{BUCKET}/journal"
QUICK = ("--store", URL, "-X", "store.lease.ms=600", "-X", "store.heartbeat.ms=150")


@pytest.fixture
def s3(monkeypatch, tmp_path) -> Iterator[MemoryS3]:
    server = MemoryS3()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    yield server
    server.close()


@pytest.fixture
def owner(s3, tmp_path) -> Iterator[BrokerProcess]:
    """A broker that owns the journal in the store."""
    broker = BrokerProcess(str(tmp_path / "owner"), *QUICK)
    broker.start()
    yield broker
    broker.kill()


def waits_to_produce(broker: BrokerProcess) -> confluent_kafka.Producer:
    """Return a producer that waits for the acknowledgement of one record."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 60_000})
    producer.produce("t", b"1")
    producer.flush(2)
    assert len(producer) == 1
    return producer


def ready_of(port: int) -> tuple[int, list[str]]:
    """Return the status and the reasons that /readyz of a console answers."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["reasons"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hangs", pytest.param("refuses", marks=pytest.mark.long)])
def test_one_signal_ends_a_serving_broker_whose_object_store_is_away(how, s3, owner):
    if how == "hangs":
        s3.hang()
    else:
        s3.refuses = ("GET", "PUT")
    _producer = waits_to_produce(owner)
    owner.process.terminate()
    assert owner.ended(store_away.PATIENCE_MS / 1000 + 10) == STORE_AWAY
    said = [line for line in owner.lines if line.startswith("stopped")]
    assert len(said) == 1
    assert f"{URL} does not answer" in said[0]


@pytest.mark.long
def test_one_signal_ends_a_broker_that_waits_for_an_object_store_that_hangs(s3, tmp_path):
    s3.hang()
    command = [sys.executable, "-m", "fencepost", "serve", "--data-dir", str(tmp_path / "data"), *QUICK]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{free_port()}"], stderr=subprocess.PIPE) as waiting:
        # The first request times out within PATIENCE_MS, and the broker, if told to stop, then ends with 0. The second
        # has a longer deadline.
        wait_until(lambda: s3.asked.get("GET") == 2)
        waiting.terminate()
        assert waiting.wait(store_away.PATIENCE_MS / 1000 + 10) == STORE_AWAY
        assert b"does not answer" in waiting.stderr.read()


@pytest.mark.slow
@pytest.mark.parametrize("refused", [("GET", "PUT"), ("PUT",)])
def test_serve_exits_with_cause_and_hint_if_its_object_store_refuses_access(refused, s3, tmp_path):
    s3.refuses = refused
    command = [sys.executable, "-m", "fencepost", "serve", "--data-dir", str(tmp_path / "data"), *QUICK]
    command += ["--listen", f"127.0.0.1:{free_port()}"]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=30)
    said = ended.stderr.splitlines()
    assert (ended.returncode, len(said)) == (DENIED, 2)
    assert "the store does not allow it (the server answered 403, AccessDenied" in said[0]
    assert "need the rights to list, read, write and delete there" in said[1]


@pytest.mark.slow
def test_readyz_is_503_while_a_broker_waits_for_its_store_or_the_store_is_away(s3, owner, tmp_path):
    port = free_port()
    waiting = BrokerProcess(str(tmp_path / "data"), *QUICK, "--http", f"127.0.0.1:{port}")
    command = [sys.executable, "-m", "fencepost", "serve", "--listen", waiting.bootstrap]
    with subprocess.Popen([*command, "--data-dir", waiting.directory, *waiting.options]) as process:
        try:
            wait_until(lambda: answers(port))
            status, reasons = ready_of(port)
            assert status == 503
            assert "until its object store answers, and no other broker owns the journal there" in reasons[1]
            assert owner.stop() == 0
            wait_until(lambda: ready_of(port) == (200, []))
            s3.hang()
            wait_until(lambda: ready_of(port)[0] == 503)
            _, reasons = ready_of(port)
            assert "the object store does not do what the broker asks" in reasons[0]
            process.terminate()
            assert process.wait(20) == STORE_AWAY
        finally:
            process.kill()


def answers(port: int) -> bool:
    """Return whether a console serves at this port."""
    try:
        ready_of(port)
    except OSError:
        return False
    return True
