"""The files that deploy a broker, run without systemd and Docker: their commands, settings and messages."""

import configparser
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from deployment_files import DATA, DEPLOY, HUNG_S, ROOT, address_of, list_after


def started(words: list[str], data: Path, **environment: str) -> subprocess.Popen[str]:
    """Start `fencepost` with these arguments, but with free ports and `data` as its data directory."""
    changed = [
        re.sub(r"(0\.0\.0\.0|127\.0\.0\.1):909\d", "127.0.0.1:0", word.replace(DATA, str(data))) for word in words
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "fencepost", *changed],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


@pytest.mark.slow
def test_systemd_is_notified_when_the_broker_is_ready_alive_and_stopping(tmp_path):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "fencepost.service")
    assert unit["Service"]["Type"] == "notify"
    settings = tmp_path / "fencepost.toml"
    settings.write_text('listeners = "127.0.0.1:0"\n')
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/fencepost")
    words = [word.replace("/etc/fencepost/fencepost.toml", str(settings)) for word in words]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(HUNG_S)
        broker = started(words, tmp_path / "data", NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="100000")
        try:
            address_of(broker)
            assert [manager.recv(100) for _ in range(4)] == [b"READY=1", *[b"WATCHDOG=1"] * 3]
            broker.send_signal(signal.SIGTERM)
            while (message := manager.recv(100)) == b"WATCHDOG=1":
                pass
            assert message == b"STOPPING=1"
            assert broker.wait(HUNG_S) == 0
        finally:
            broker.kill()
            broker.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("file", ["Dockerfile", "docs/deploy/compose.yaml"])
def test_the_health_check_of_the_container_succeeds_while_it_serves(tmp_path, file):
    image, text = (ROOT / "Dockerfile").read_text(), (ROOT / file).read_text()
    assert list_after("ENTRYPOINT", image) == ["fencepost"]
    assert re.search(r"FENCEPOST_BOOTSTRAP[=:] *\"?127\.0\.0\.1:909[23]", text)
    if file == "Dockerfile":
        words, check = list_after("CMD", image), list_after(re.search(r"HEALTHCHECK .* CMD", image)[0], image)
    else:
        words, (_, *check) = list_after("command:", text), list_after("test:", text)
    broker = started(words, tmp_path / "data")
    try:
        address = address_of(broker)
        assert check.pop(0) == "fencepost"
        health = [sys.executable, "-m", "fencepost", *check]
        asked = {**os.environ, "FENCEPOST_BOOTSTRAP": address}
        assert subprocess.run(health, env=asked, capture_output=True, timeout=HUNG_S).returncode == 0
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(HUNG_S) == 0
        assert subprocess.run(health, env=asked, capture_output=True, timeout=HUNG_S).returncode == 1
    finally:
        broker.kill()
        broker.communicate()
