"""The programs in examples/ do what they say, killed in between."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from broker_process import broker_process
from confluent_kafka import Consumer, Producer, TopicPartition
from eventually import wait_until

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
WITHIN_S = 120
pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path):
    with broker_process(str(tmp_path / "data"), "-X", "group.initial.rebalance.delay.ms=0") as running:
        yield running


def send(broker, topic, *records):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for key, value in records:
        producer.produce(topic, value, key=key)
    assert producer.flush(30) == 0


def committed(broker, topic):
    """(key, value) of what a read_committed reader gets."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "look", "log_level": 0})
    place = TopicPartition(topic, 0, 0)
    found = []
    if topic in reader.list_topics(timeout=30).topics:
        _, end = reader.get_watermark_offsets(place, timeout=30)
        reader.assign([place])
        deadline = time.monotonic() + 5  # an open transaction holds back what is after it
        while reader.position([place])[0].offset < end and time.monotonic() < deadline:
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                found.append((message.key(), message.value()))
    reader.close()
    return found


class Running:
    """An example as a process."""

    def __init__(self, name, broker):
        words = [sys.executable, str(EXAMPLES / name), broker.bootstrap]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """As kill -9."""
        self._process.kill()
        _, given = self._process.communicate()
        assert b"Traceback" not in given, given.decode()


@pytest.mark.parametrize("name", ["exactly_once.py", "exactly_once_confluent.py", "work_queue.py"])
def test_each_invoice_example_killed_three_times_writes_one_invoice_per_order(name, broker):
    wanted = Counter()
    for turn in range(3):
        orders = [b"%d" % number for number in range(turn * 100, turn * 100 + 100)]
        wanted.update(b"invoice for order " + order for order in orders)
        with Running(name, broker):
            send(broker, "orders", *[(b"alice", order) for order in orders])
            wait_until(lambda: committed(broker, "invoices"), within_s=WITHIN_S)
    with Running(name, broker):
        wait_until(lambda: len(committed(broker, "invoices")) >= wanted.total(), within_s=WITHIN_S)
        assert Counter(value for _, value in committed(broker, "invoices")) == wanted


@pytest.mark.long
def test_the_totals_example_killed_and_restarted_adds_each_payment_once(broker):
    payments = [(b"alice", b"5"), (b"bob", b"7"), (b"alice", b"1")]
    for turn in (1, 2):
        with Running("totals.py", broker):
            send(broker, "payments", *payments)
            totals = {b"alice": b"%d" % (6 * turn), b"bob": b"%d" % (7 * turn)}
            wait_until(lambda totals=totals: dict(committed(broker, "totals")) == totals, within_s=WITHIN_S)


def test_the_three_tests_of_the_example_test_file_pass(tmp_path):
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
        str(EXAMPLES / "test_orders.py"),
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
