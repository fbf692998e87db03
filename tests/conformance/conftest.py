"""Brokers to run the scenarios against: one process of fencepost for each file in brokers/, on a free port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
READY = re.compile(r"ready\b.*?([\w.\[\]:]+):(\d+)")
START_SECONDS = 20


@pytest.fixture(scope="session")
def broker_for(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[str, int]]]:
    """A function that returns the address of a broker of a kind, and starts the broker at its first call."""
    running: dict[str, tuple[subprocess.Popen[str], tuple[str, int]]] = {}

    def address(kind: str) -> tuple[str, int]:
        if kind not in running:
            running[kind] = _start(kind, tmp_path_factory.mktemp(kind))
        return running[kind][1]

    if "CONFORMANCE_BROKER" in os.environ:  # any broker, by hand: HOST:PORT
        host, _, port = os.environ["CONFORMANCE_BROKER"].rpartition(":")
        yield lambda kind: (host, int(port))
        return
    yield address
    for process, _ in running.values():
        process.terminate()
    for process, _ in running.values():
        process.wait(10)
        if process.stdout:
            process.stdout.close()


def _start(kind: str, directory: Path) -> tuple[subprocess.Popen[str], tuple[str, int]]:
    config = directory / "fencepost.toml"
    config.write_text(_as_toml((HERE / "brokers" / f"{kind}.properties").read_text()))
    command = [
        sys.executable,
        "-m",
        "fencepost",
        "serve",
        "--ephemeral",
        "--listen",
        "127.0.0.1:0",
        "--config",
        str(config),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=directory)
    assert process.stdout is not None
    watchdog = threading.Timer(START_SECONDS, process.kill)
    watchdog.start()
    for line in process.stdout:
        if found := READY.match(line):
            watchdog.cancel()
            return process, (found[1], int(found[2]))
    raise RuntimeError(f"fencepost serve ended with {process.wait()} before it was ready")


def _as_toml(properties: str) -> str:
    """Convert Kafka's properties to TOML: numbers and booleans stay bare, other values and all names are quoted."""
    lines = []
    for line in properties.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            bare = re.fullmatch(r"-?\d+|true|false", value)
            lines.append(f'"{name}" = {value if bare else repr(value)}')
    return "\n".join(lines) + "\n"
