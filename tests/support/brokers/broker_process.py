"""`fencepost serve` as a process that tests start, kill and start again on the same data and the same port."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

READY_S = 30


class BrokerProcess:
    """A data directory and a port, and the `fencepost serve` process that serves them now, if any."""

    def __init__(
        self,
        directory: str,
        *options: str,
        port: int | None = None,
        program: Sequence[str] = (),
        ready_s: float = READY_S,
    ) -> None:
        """program: what runs `serve` and its options; by default, fencepost. ready_s: how long start() waits for it."""
        self.ready_s = ready_s
        self.program = program or (sys.executable, "-m", "fencepost")
        self.directory = directory
        self.port = port or free_port()
        self.options = options
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process, and return when it has printed its ready line."""
        command = [*self.program, "serve", "--listen", self.bootstrap]
        command += ["--data-dir", self.directory, *self.options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        began = len(self.lines)
        ready = threading.Event()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, ready), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()
        in_time = ready.wait(self.ready_s)
        if not any(line.startswith("ready") for line in self.lines[began:]):
            if in_time:
                self.ended()
            self.kill()
            raise AssertionError("ended before it was ready:\n" + "".join(self.lines[began:]))

    def _read(self, stream, ready: threading.Event) -> None:
        with contextlib.suppress(ValueError), stream:
            for line in stream:
                self.lines.append(line)
                if line.startswith("ready"):
                    ready.set()
        ready.set()  # the end of a stream: nothing more will come

    def kill(self) -> None:
        """Send SIGKILL: nothing is flushed, and clients are not told."""
        assert self.process is not None
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # with what it runs under, if another program started it
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(20)

    def ended(self, within_s: float = 20) -> int:
        """Wait for a process that ends by itself, and return its exit code."""
        assert self.process is not None
        code = self.process.wait(within_s)
        for reader in self._readers:
            reader.join(within_s)
        return code


@contextlib.contextmanager
def broker_process(directory: str, *options: str) -> Iterator[BrokerProcess]:
    """Start a broker for the block, and end it after."""
    broker = BrokerProcess(directory, *options)
    broker.start()
    try:
        yield broker
    finally:
        if broker.process is not None and broker.process.poll() is None:
            broker.stop()


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
