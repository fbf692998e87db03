"""Measures how long a client cannot commit when the owner of a journal in an object store is killed or stopped.

Two brokers use the bucket of stored.py: the owner serves, the other waits as a standby with all data; in each round
they change places. A new client with both addresses commits one transaction, beginning when the owner gets the signal.
The time includes the lease (6 s), unless the owner hands the journal over. At the end the journal is restored into a
plain directory.
"""

import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from .. import topics
from ..loads.small import Produce
from ..measured import Measured
from ..peers import peers
from ..peers.names import HANDED_OVER, KILLED
from .sizes import Say, Size, by_figure
from .stored import UNLIMITED, URL, store

TOPIC = "first"
DATA_BYTES = 1_000_000_000
FILL_S = 5.0  # of one window of the load that fills the store
LOAD_S = 8.0  # of small requests before the owner ends, so that there are rounds after the last checkpoint
LONGEST_S = 90.0
SHORTEST_S = 1.0
LOOK_S = 0.02
_HERE = re.compile(r" is here, ([\d.]+) MB")  # in the standby's log, when it has fetched a checkpoint


class Node:
    """One of the two brokers: a directory, a port, and a process that serves or waits."""

    def __init__(self, directory: str, stack: ExitStack) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            self.port = int(listening.getsockname()[1])
        self._directory = directory
        self._stack = stack
        self.ready = threading.Event()
        self._fetched = threading.Condition()
        self._fetched_mb = 0.0  # of the newest checkpoint that the standby has

    @property
    def peer(self) -> peers.Peer:
        """Return the process as a Peer, for loads."""
        return peers.Peer("store", "127.0.0.1", self.port, self.process.pid)

    def start(self) -> None:
        """Start the process, which serves, or waits and fetches what the other one writes."""
        self.ready, self._fetched_mb = threading.Event(), 0.0
        command = [sys.executable, "-m", "fencepost", "serve", "--listen", f"127.0.0.1:{self.port}", "--standby"]
        command += ["--data-dir", self._directory, "--store", URL, *UNLIMITED]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=peers.environment()
        )
        self._stack.enter_context(peers.ended(self.process))
        threading.Thread(target=self._read, args=(self.process, self.ready), daemon=True).start()

    def _read(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        """Read the output of a process to its end. Sets `ready` at its ready line, and notes the size of each fetched
        checkpoint of the other broker.
        """
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready"):
                ready.set()
            if found := _HERE.search(line):
                with self._fetched:
                    self._fetched_mb = float(found[1])
                    self._fetched.notify_all()

    def wait_until_fetched(self, size_bytes: int, timeout_s: float) -> None:
        """Wait until the standby has a checkpoint with this many bytes of data, or until the timeout."""
        with self._fetched:
            self._fetched.wait_for(lambda: self._fetched_mb * 1e6 >= size_bytes, timeout_s)

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the process. After SIGKILL, wait until the process has ended."""
        self.process.send_signal(number)
        if number is signal.SIGKILL:
            self.process.wait()


def takeovers(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure in each round the time to the first commit after the owner was killed, and after it handed the journal
    over; and one restore at the end. Yields a result for kills, with the restore, and one for handovers.
    """
    killed: list[dict[str, float]] = []
    handed_over: list[dict[str, float]] = []
    with store(), tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory, ExitStack() as stack:
        owner, standby = (Node(f"{directory}/{each}", stack) for each in ("a", "b"))
        owner.start()
        _wait(owner.ready)
        topics.create("127.0.0.1", owner.port, TOPIC, 1)
        filled_bytes = _fill(owner, size)
        for number in range(size.rounds):
            say(f"{name} · round {number + 1} of {size.rounds}")
            for how, found in ((signal.SIGKILL, killed), (signal.SIGTERM, handed_over)):
                standby.start()
                # Not checked: a standby that has not fetched everything takes over, too, but later.
                standby.wait_until_fetched(filled_bytes, max(SHORTEST_S, LONGEST_S * size.share))
                Produce(name, 16, 1).window(owner.peer, max(0.5, LOAD_S * size.share))
                began = time.perf_counter()
                owner.end(how)
                _commit(owner, standby)
                found.append({"first_commit_s": time.perf_counter() - began})
                owner.process.wait()
                owner, standby = standby, owner
        s_per_gb = _restore(directory)
    yield Measured(name, "commit", KILLED, by_figure([{**each, "s_per_gb": s_per_gb} for each in killed]))
    yield Measured(name, "commit", HANDED_OVER, by_figure(handed_over))


def _fill(owner: Node, size: Size) -> int:
    """Write DATA_BYTES in large batches, and create the topic that the load of small requests uses. Returns how many
    bytes were written.
    """
    load = Produce("fill", 4, 2, 1000, 100)
    load.prepare(owner.peer)
    written, wanted = 0, size.count(DATA_BYTES)
    while written < wanted:
        written += load.window(owner.peer, max(0.5, FILL_S * size.share)).bytes
    return written


def _commit(*nodes: Node) -> None:
    """Commit one transaction on whichever node serves. Raises RuntimeError after LONGEST_S."""
    from confluent_kafka import KafkaException, Producer

    servers = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    settings = {"bootstrap.servers": servers, "reconnect.backoff.max.ms": 100, "log_level": 0}
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        producer = Producer({**settings, "transactional.id": "first", "transaction.timeout.ms": 60_000})
        try:
            producer.init_transactions(LONGEST_S)
            producer.begin_transaction()
            producer.produce(TOPIC, b"1")
            producer.commit_transaction(LONGEST_S)
        except KafkaException:  # the old owner refused it while it ended
            time.sleep(LOOK_S)
        else:
            return
    raise RuntimeError("nothing was committed")


def _restore(directory: str) -> float:
    """Restore the journal into a plain directory. Returns the seconds that it takes per GB."""
    command = [sys.executable, "-m", "fencepost", "restore", URL, "--data-dir", f"{directory}/restored"]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=peers.environment())
    took_s = time.perf_counter() - began
    size_bytes = sum(each.stat().st_size for each in Path(directory, "restored").rglob("*") if each.is_file())
    return took_s / (size_bytes / 1e9)


def _wait(event: threading.Event) -> None:
    """Wait for an event that a broker's output sets. Raises RuntimeError after LONGEST_S."""
    if not event.wait(LONGEST_S):
        raise RuntimeError("a broker on the store did not become ready")
