"""A data directory that is moved, removed or replaced under the broker that serves from it, with real processes."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

pytestmark = pytest.mark.slow

RECORDS = 300
HALTED = 70  # the exit code of `serve` when its directory was moved or removed
OFTEN = ("-X", "log.checkpoint.interval.ms=200")


class Place:
    """The directory DIR, and the brokers that are started on it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "data"
        self.moved = folder / "data.old"
        self.started: list[BrokerProcess] = []

    def serve(self, path: Path | None = None) -> BrokerProcess:
        broker = BrokerProcess(str(path or self.path), *OFTEN)
        self.started.append(broker)
        broker.start()
        return broker


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for broker in made.started:
        broker.kill()


def fill(broker: BrokerProcess, count: int, word: str) -> None:
    """Write records "WORD 0", "WORD 1", …, and return when all are acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "delivery.timeout.ms": 20_000})
    for number in range(count):
        producer.produce("t", f"{word} {number}", on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(30) == 0
    assert not failed


def read(broker: BrokerProcess) -> list[str]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[str] = []
    try:
        while (message := consumer.poll(20)) is not None and message.error() is None:
            found.append(message.value().decode())
    except KafkaException as error:
        raise AssertionError(found) from error
    finally:
        consumer.close()
    return found


def says_moved(broker: BrokerProcess, place: Place) -> bool:
    broker.ended()
    error = f"error: the broker halted: {place.path} was moved, removed or replaced"
    hints = [line for line in broker.lines if line.startswith("hint: stop a broker before its data directory is moved")]
    assert not any("Traceback" in line for line in broker.lines), broker.lines
    return any(line.startswith(error) for line in broker.lines) and len(hints) == 1


def test_stopping_a_broker_whose_directory_was_moved_leaves_the_new_brokers_files(place: Place) -> None:
    old = place.serve()
    fill(old, 5, "old")
    place.path.rename(place.moved)
    new = place.serve()
    fill(new, RECORDS, "new")
    assert old.stop() == HALTED
    assert says_moved(old, place)
    new.kill()
    assert read(place.serve()) == [f"new {number}" for number in range(RECORDS)]
    assert read(place.serve(place.moved)) == [f"old {number}" for number in range(5)]


def test_a_busy_broker_whose_directory_was_moved_halts_and_logs_the_reason(place: Place) -> None:
    old = place.serve()
    fill(old, 5, "old")
    place.path.rename(place.moved)
    producer = Producer({"bootstrap.servers": old.bootstrap, "delivery.timeout.ms": 20_000})
    acknowledged: list[str] = []
    producer.produce("t", "late", on_delivery=lambda error, _: None if error else acknowledged.append("late"))
    producer.poll(0)
    assert old.ended() == HALTED
    producer.poll(0)
    assert says_moved(old, place)
    found = read(place.serve(place.moved))
    assert found[:5] == [f"old {number}" for number in range(5)]
    assert found[5:] in (acknowledged, ["late"]), "it may have been written without an acknowledgement"
    producer.purge()


def test_a_broker_whose_directory_was_removed_halts_and_creates_no_new_one(place: Place) -> None:
    old = place.serve()
    fill(old, 5, "old")
    while place.path.exists():  # the broker may create a file while it is removed
        shutil.rmtree(place.path, ignore_errors=True)
    assert old.stop() == HALTED
    assert says_moved(old, place)
    assert not place.path.exists()


def test_a_restored_directory_is_unchanged_when_the_old_broker_stops_later(place: Place, tmp_path: Path) -> None:
    old = place.serve()
    fill(old, 5, "old")
    backup = str(tmp_path / "backup")
    fencepost("backup", str(place.path), backup)
    fill(old, 5, "later")
    place.path.rename(place.moved)
    fencepost("restore", backup, str(place.path))
    kept = {path: path.read_bytes() for path in place.path.rglob("*") if path.is_file()}
    assert old.stop() == HALTED
    assert {path: path.read_bytes() for path in place.path.rglob("*") if path.is_file()} == kept
    assert read(place.serve()) == [f"old {number}" for number in range(5)]


def test_a_moved_directory_cannot_be_served_by_a_second_broker_beside_the_first(place: Place) -> None:
    old = place.serve()
    fill(old, 5, "old")
    assert old.process is not None
    old.process.send_signal(signal.SIGSTOP)  # else it notices, and ends
    place.path.rename(place.moved)
    with pytest.raises(AssertionError, match="is in use by process"):
        place.serve(place.moved)
    place.moved.rename(place.path)
    old.process.send_signal(signal.SIGCONT)
    assert read(old) == [f"old {number}" for number in range(5)]
    assert old.stop() == 0


def test_a_broker_whose_data_directory_symlink_was_changed_exits_with_70(place: Place, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for each in (one, two):
        each.mkdir()
    place.path.symlink_to(one)
    old = place.serve()
    fill(old, 5, "old")
    os.symlink(two, tmp_path / "link")
    os.replace(tmp_path / "link", place.path)
    assert old.stop() == HALTED
    assert says_moved(old, place)
    assert list(two.iterdir()) == []


def fencepost(*arguments: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "fencepost", *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
