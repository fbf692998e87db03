"""The broker is killed inside transactions of each library: what was consumed and what was made of it stay one.

The copier is supervised, as it has to be with any broker: one that ends, or makes no progress, gets a successor with
the same transactional id.
"""

import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from broker_process import broker_process
from library_producers import LIBRARIES, Confluent, copy
from long_runs import first_only
from old_client import Looker, OldClient
from store_brokers import numbers

COPIER = Path(__file__).resolve().parent.parent / "support" / "clients" / "library_copier.py"
COUNT = 100
KILLS = (2, 6)  # at the n-th transaction that was filled
NO_PROGRESS_S = 4
IN_ALL_S = 90


class Supervisor:
    """Keeps a copier going. Each line that it says is one step of progress."""

    def __init__(self, *arguments):
        self.command = [sys.executable, str(COPIER), *map(str, arguments)]
        self.lives = 0
        self.process = None

    def start(self):
        self.lives += 1
        self.lines = queue.SimpleQueue()
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        threading.Thread(target=self.read, args=(self.process.stdout, self.lines), daemon=True).start()

    @staticmethod
    def read(stream, lines):
        with stream:
            for line in stream:
                lines.put(line.split()[0])
        lines.put(None)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def next_word(self):
        """Return the copier's next word; None when it has done all. A successor follows on one that failed or hangs."""
        until = time.monotonic() + IN_ALL_S
        while time.monotonic() < until:
            if self.process is None:
                self.start()
            try:
                word = self.lines.get(timeout=NO_PROGRESS_S)
            except queue.Empty:
                word = "hangs"
            if word is None and self.process.wait() == 0:
                return None
            if word in (None, "hangs"):
                self.kill()
                self.process = None
                continue
            return word
        raise AssertionError("no copier makes progress any more")


@pytest.mark.requirement("S-89", "S-90")
@pytest.mark.parametrize("library", first_only(LIBRARIES))
def test_broker_kills_lose_repeat_and_split_no_transaction_of_a_copier(tmp_path, library):
    with broker_process(str(tmp_path / "data")) as broker:
        with Looker(broker.bootstrap) as look:
            look.topic("source")
            look.topic("target")
        writer = OldClient(broker.bootstrap, "writer")
        writer.init()
        writer.begin()
        for number in range(COUNT):
            writer.send("source", b"%d" % number)
        writer.commit()
        writer.close()
        supervisor = Supervisor(library, broker.bootstrap, "source", "target", "group", "copier", COUNT)
        filled = 0
        try:
            while (word := supervisor.next_word()) is not None:
                filled += word == "open"
                if word == "open" and filled in KILLS:
                    broker.kill()
                    broker.start()
        finally:
            supervisor.kill()
        assert filled > max(KILLS)
        with Looker(broker.bootstrap) as look:
            assert look.committed("target") == [b"<%d>" % number for number in range(COUNT)]
            assert look.offset("group", "source") == COUNT
            assert len(set(look.ends("target"))) == 1


@pytest.mark.requirement("S-68")
def test_an_open_transaction_can_be_continued_and_ended_after_broker_kills(tmp_path):
    """The producer only repeats requests whose answers were lost: it does not begin the transaction again."""
    with broker_process(str(tmp_path / "data")) as broker:
        with Looker(broker.bootstrap) as look:
            look.topic("topic")
        client = OldClient(broker.bootstrap, "client")
        client.init()
        for number in range(2):
            client.begin()
            client.send("topic", b"%d-a" % number)
            broker.kill()
            broker.start()
            client.send("topic", b"%d-b" % number)
            client.send_offset("group", "topic", number)
            broker.kill()
            broker.start()
            if number % 2:
                client.abort()
            else:
                client.commit()
        client.close()
        with Looker(broker.bootstrap) as look:
            assert look.committed("topic") == [b"0-a", b"0-b"]
            assert look.offset("group", "topic") == 0


@pytest.mark.slow
def test_a_producer_of_librdkafka_that_was_idle_during_a_restart_commits_offsets(tmp_path):
    """It waits for the coordinator of the group that it had, without a limit, until the broker wakes it."""
    with broker_process(str(tmp_path)) as broker:
        producer = Confluent(broker.bootstrap, "copier", hangs_s=IN_ALL_S)
        producer.init()
        copy(producer, 1)
        broker.kill()
        broker.start()
        producer.begin()  # a transaction without offsets, so that all is connected again
        producer.send("t", b"2")
        producer.commit()
        copy(producer, 3)
        assert numbers(broker) == [1, 2, 3]
