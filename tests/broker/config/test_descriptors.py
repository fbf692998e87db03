"""Clients cannot take the descriptors that the broker's own files need."""

import contextlib
import resource
import socket
import subprocess
import sys
import time

import pytest
from broker_process import BrokerProcess
from fencepost.broker.config.descriptors import LEAST_DESCRIPTORS, LEAST_OPEN_FILES, shares
from fencepost.broker.config.settings import BrokerSettings
from fencepost.cli.serve.serving import _within_descriptors
from fencepost.storage.log.open_files import most_lent
from produce_requests import answers, batch, create, produce
from wire_client import Closed, WireClient

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("descriptors", [LEAST_DESCRIPTORS, 256, 1024, 4096, 65536, 1 << 20])
def test_shares_of_the_descriptor_limit_leave_some_to_accept_and_refuse_clients(descriptors):
    """Segment files, client connections and the listen backlog each get a share of the process's descriptors."""
    found = shares(descriptors, 1024, 10_000)
    assert LEAST_OPEN_FILES <= found.open_files <= 1024
    assert found.connections >= 64
    assert min(found.backlog, found.half_sent, most_lent(found.open_files)) >= 3
    for_clients = min(found.connections, 10_000) + found.backlog + found.half_sent
    assert found.open_files + most_lent(found.open_files) + for_clients + 20 < descriptors


@pytest.mark.parametrize(
    ("descriptors", "given", "expected"),
    [(1024, None, 256), (8192, None, 1024), (20_000, None, 5000), (1 << 20, None, 8192), (1 << 20, "2000", 2000)],
)
def test_max_open_files_defaults_to_a_share_of_the_descriptors(descriptors, given, expected, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (descriptors, descriptors))
    settings = BrokerSettings() if given is None else BrokerSettings(max_open_files=int(given))
    found, most = _within_descriptors(settings)
    assert most is not None
    assert (found.max_open_files, most.open_files) == (expected, expected)


@pytest.fixture
def small_process(tmp_path):
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); "
    limited += "from fencepost.cli import main; main(prog_name='fencepost')"
    options = ("-X", "log.checkpoint.interval.ms=100")
    broker = BrokerProcess(str(tmp_path / "d"), *options, program=(sys.executable, "-c", limited))
    broker.start()
    yield broker
    broker.kill()


def refused_somebody(process: BrokerProcess) -> bool:
    """Return whether the broker has logged that it refused a connection because its open files allow no more. The
    clients themselves cannot tell a refusal from a full backlog.
    """
    return any("as many as its open files allow" in line for line in process.lines)


def test_produce_still_works_when_more_clients_connect_than_there_are_descriptors(small_process):
    """Clients beyond the limit are closed, a log line says so once, and later ones are served."""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 600
    with contextlib.ExitStack() as crowd, WireClient("127.0.0.1", small_process.port) as client:
        client.call(create("t", 20))
        for number in range(400):
            one = crowd.enter_context(socket.socket())
            one.setblocking(False)  # if the backlog is full, the kernel repeats the connect a second later
            one.connect_ex(("127.0.0.1", small_process.port))
            if number % 16 == 15:
                time.sleep(0.005)  # gives the broker time to accept them; nothing depends on how long
        # Produce until the broker has refused a connection, 30 s at most, and for 1.5 s in any case.
        began, sent = time.monotonic(), 0
        while time.monotonic() - began < (1.5 if refused_somebody(small_process) else 30):
            assert answers(client.call(produce("t", batch(value=bytes(100_000)), partition=sent % 20)))[0][0] == 0
            sent += 1
        client.call(create("another", 4))
        assert answers(client.call(produce("another", batch()))) == [(0, 0)]
    with contextlib.suppress(Closed), WireClient("127.0.0.1", small_process.port) as later:
        assert answers(later.call(produce("another", batch()))) == [(0, 1)]
    assert small_process.stop() == 0
    said = "".join(small_process.lines)
    assert said.count("max.connections); raise the limit") == 1
    assert "as many as its open files allow" in said
    assert "Too many open files" not in said
    assert "Traceback" not in said


def test_serve_with_a_limit_of_100_descriptors_exits_with_1_and_a_hint(tmp_path):
    limit = (100, 100)
    found = subprocess.run(
        [sys.executable, "-m", "fencepost", "serve", "--data-dir", str(tmp_path / "d"), "--listen", "127.0.0.1:0"],
        capture_output=True, text=True, timeout=20,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
    )  # fmt: skip
    assert found.returncode == 1
    cause, hint = found.stderr.splitlines()
    assert cause.startswith("error: this process may open only 100 files")
    assert hint.startswith("hint: raise the limit")
