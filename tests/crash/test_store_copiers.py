"""Copiers of unchanged libraries through failovers of a store: each goes on by itself after each of them.

Whoever copies commits the offsets in a producer's transaction. If a copier stands still, what is known of that is put
into a folder, and printed: its stacks, its library's log, its group, transaction and topic, the store and the brokers.
FAILOVERS says how often the owner is killed, SEED which answers of the store are lost.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from losing_store import Node, Sending, losing_store
from store_brokers import numbers, wait_for_name

COPIER = Path(__file__).resolve().parent.parent / "support" / "clients" / "lone_copier.py"
FAILOVERS = int(os.environ.get("FAILOVERS", "10"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1 << 31)
KINDS = ("classic", "consumer", "aiokafka")
STANDS_S = 120  # more than a transaction's timeout, a session and a call of a library together
PRINTED = 150  # lines of a log
CLI_S = 60


class Copier:
    """One copier, in a process."""

    def __init__(self, kind: str, bootstrap: str, folder: Path) -> None:
        self.name = f"copier-{kind}"
        self.copied = 0
        self.said: list[str] = []
        self.log = folder / f"{self.name}.log"
        command = [sys.executable, str(COPIER), kind, bootstrap, "t", self.name, self.name]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.said.append(line)
                word, number, *_ = line.split()
                if word == "committed":
                    self.copied = int(number)

    def goes_on(self) -> float | None:
        """Wait until it has copied more. Returns how many seconds that took; None if it has not for STANDS_S."""
        before, began = self.copied, time.monotonic()
        while self.copied == before:
            if time.monotonic() - began > STANDS_S:
                return None
            time.sleep(0.05)
        return time.monotonic() - began

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def tell(copier: Copier, nodes: list[Node], url: str, folder: Path) -> str:
    """Put what is known of a copier that stands still into the folder. Returns that, with only the ends of logs."""
    bootstrap = ",".join(node.broker.bootstrap for node in nodes)
    copier.process.send_signal(signal.SIGUSR1)  # its stacks go into its log
    asked = {
        "why-blocked": ("txn", "why-blocked", "-b", bootstrap),
        "group": ("group", "describe", copier.name, "-m", "-b", bootstrap),
        "transaction": ("txn", "describe", copier.name, "-b", bootstrap),
        "topic": ("topic", "describe", "t", "-b", bootstrap),
        "store": ("store", "status", url),
    }
    found = {"said": "".join(copier.said)}
    for what, arguments in asked.items():
        command = [sys.executable, "-m", "fencepost", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=CLI_S, check=False)
            found[what] = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            found[what] = f"no answer within {CLI_S} s\n"
    for node in nodes:
        if node.broker.process is not None and node.broker.process.poll() is None:
            node.broker.process.send_signal(signal.SIGABRT)  # its stacks are its last lines
            node.broker.process.wait()
        found[f"broker {node.broker.bootstrap}"] = "".join(node.broker.lines)
    found["log"] = copier.log.read_text(errors="replace")
    for what, text in found.items():
        (folder / f"{copier.name} {what.replace(':', ' ')}").write_text(text)
    ends = {what: "".join(text.splitlines(keepends=True)[-PRINTED:]) for what, text in found.items()}
    return "\n".join(f"---- {what}\n{text}" for what, text in ends.items())


@pytest.fixture(params=["seaweedfs", "versitygw"])
def url(request, tmp_path, monkeypatch):
    with losing_store(request.param, tmp_path, monkeypatch, SEED) as (found, _):
        yield found


@pytest.mark.slow
@pytest.mark.long
def test_each_copier_goes_on_after_each_kill_of_the_owner_and_copies_all_once(url, tmp_path):
    dumping = (sys.executable, "-X", "faulthandler", "-m", "fencepost")
    owner, other = nodes = [Node(str(tmp_path / f"node{number}"), url, number, dumping) for number in (1, 2)]
    owner.begin()
    owner.wait_until_it_serves()
    other.begin()
    wait_for_name(other.broker, owner.broker)  # aiokafka goes only to brokers of which Metadata told it
    bootstrap = f"{owner.broker.bootstrap},{other.broker.bootstrap}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic("t", 1), *(NewTopic(f"copier-{kind}", 1) for kind in KINDS)]).values():
        made.result(60)
    sending = Sending(bootstrap)
    copiers = [Copier(kind, bootstrap, tmp_path) for kind in KINDS]
    longest = dict.fromkeys(KINDS, 0.0)
    done = 0
    try:
        for done in range(FAILOVERS + 1):
            for kind, copier in zip(KINDS, copiers, strict=True):
                took_s = copier.goes_on()
                if took_s is None:
                    raise AssertionError(
                        f"{copier.name} stands still after {done} kills:\n" + tell(copier, nodes, url, tmp_path)
                    )
                longest[kind] = max(longest[kind], took_s)
            if done < FAILOVERS:
                sending.more()
                owner.broker.kill()
                other.wait_until_it_serves()
                owner, other = other, owner
                if done + 1 < FAILOVERS:
                    other.begin()
        sending.end()
        for copier in copiers:
            copier.end()
            found = numbers(owner.broker, topic=copier.name)
            assert found == list(range(len(found)))
            assert len(found) >= copier.copied
    finally:
        print(f"seed {SEED}: {done} kills, {sending.sent} records, longest waits in s: {longest}")
        for copier in copiers:
            copier.end()
            print(copier.name, copier.copied, *(line for line in copier.said if line.startswith("raised")))
        sending.end()
        for node in nodes:
            if node.broker.process is not None:
                node.broker.kill()
