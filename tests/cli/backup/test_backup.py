"""`fencepost backup` and `restore` as processes, beside a broker under load; their errors in one line and one hint."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from broker_process import BrokerProcess
from click.testing import CliRunner
from confluent_kafka import Producer
from eventually import wait_until
from fencepost.broker.config.settings import BrokerSettings
from fencepost.cli import main
from left_directory import left_in
from produce_requests import batch, create, produce
from simulated_broker import SimulatedBroker
from two_topic_load import TOPICS, Load, committed_in


def run(*words):
    found = CliRunner().invoke(main, list(map(str, words)))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def refused(*words):
    """Run a command that fails with exit code 1, and return its cause and its hint."""
    found = run(*words)
    assert found.exit_code == 1, found.output
    cause, hint = found.stderr.splitlines()[-2:]
    assert (cause[:7], hint[:6]) == ("error: ", "hint: ")
    return cause[7:], hint[6:]


@pytest.fixture
def broker(tmp_path):
    process = BrokerProcess(str(tmp_path / "data"), "-X", "journal.max.bytes=8388608")
    process.start()
    yield process
    process.kill()


@pytest.mark.slow
def test_backups_of_a_broker_under_load_hold_whole_transactions_in_order(broker, tmp_path):
    run("topic", "create", *TOPICS, "-b", broker.bootstrap)
    load, least = Load(broker), []
    for number in range(2):
        wait_until(lambda begun=load.committed: load.committed > begun + 100)
        least.append(load.committed)
        found = run("backup", broker.directory, tmp_path / f"backup{number}")
        assert found.exit_code == 0, found.output
        assert "beside a running broker" in found.stdout
    load.end()
    for number, before in enumerate(least):
        target = tmp_path / f"restored{number}"
        assert run("restore", tmp_path / f"backup{number}", target).exit_code == 0
        assert run("log", "verify", target).exit_code == 0
        copy = BrokerProcess(str(target))
        copy.start()
        first, second = (committed_in(copy, topic) for topic in TOPICS)
        assert first == second == list(range(len(first)))
        assert before <= len(first) <= load.committed
        again = Producer({"bootstrap.servers": copy.bootstrap, "transactional.id": "load"})
        again.init_transactions(30)
        assert copy.stop() == 0


def test_a_backup_of_a_damaged_directory_copies_the_rest_and_exits_with_1(tmp_path):
    with SimulatedBroker(BrokerSettings(log_dir="/d")) as world:
        for topic in "ab":
            world.ask(create(topic))
            world.ask(produce(topic, batch()))
        world.wait(60)
        directory = left_in(tmp_path / "d", world.disk, "/d")
    assert run("backup", directory, tmp_path / "whole").exit_code == 0
    segment = next(directory.glob("logs/a-0.*/*.log"))
    segment.unlink()
    cause, hint = refused("backup", directory, tmp_path / "rest")
    assert cause == f"{directory} was damaged before: the backup has what could be read"
    assert hint.startswith(f"fencepost log verify {directory} shows more")
    assert run("backup", directory, tmp_path / "again").exit_code == 1
    assert run("restore", "--check", tmp_path / "rest").exit_code == 0
    assert list((tmp_path / "rest").glob("data/logs/b-0.*/*.log"))


@pytest.mark.slow
def test_a_backup_killed_at_any_moment_is_refused_and_the_broker_keeps_running(broker, tmp_path):
    run("topic", "create", "a", "-b", broker.bootstrap)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(30):
        producer.produce("a", b"x" * 900_000, partition=0)
        producer.flush(30)
    outcomes = set()
    for number in range(5):
        target = tmp_path / f"backup{number}"
        process = subprocess.Popen([sys.executable, "-m", "fencepost", "backup", broker.directory, str(target)])
        wait_until(lambda target=target: (target / "data").exists())
        time.sleep(0.02 * number)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (target / "manifest").exists():
            assert run("restore", "--check", target).exit_code == 0
            outcomes.add("whole")
            continue
        outcomes.add("refused")
        cause, _ = refused("restore", target, tmp_path / "copy")
        assert cause == f"{target} is no backup, or one that was cut short: it has no manifest"
        assert not (tmp_path / "copy").exists()
        assert refused("backup", broker.directory, target)[0] == f"{target} is not empty"
    assert "refused" in outcomes
    producer.produce("a", b"more", partition=0)
    assert producer.flush(30) == 0
    assert broker.stop() == 0
    assert run("log", "verify", broker.directory).exit_code == 0


@pytest.mark.slow
def test_ctrl_c_ends_a_backup_and_removes_its_files(broker, tmp_path):
    target = tmp_path / "backup"
    script = (
        "import sys\n"
        "from fencepost.storage.backup import take\n"
        "import os, signal\n"
        "copy = take.copy_judged\n"
        "def late(*args):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return copy(*args)\n"
        "take.copy_judged = late\n"
        "from fencepost.cli import main\n"
        "main()\n"
    )
    process = subprocess.run([sys.executable, "-c", script, "backup", broker.directory, str(target)], check=False)
    assert process.returncode == 130
    assert list(target.iterdir()) == []


@pytest.fixture
def stopped(tmp_path):
    """The data directory of a broker that was stopped."""
    process = BrokerProcess(str(tmp_path / "data"))
    process.start()
    run("topic", "create", "a", "-b", process.bootstrap)
    assert process.stop() == 0
    return tmp_path / "data"


@pytest.mark.slow
def test_a_stopped_broker_is_backed_up_and_restored_only_into_empty_folders(stopped, tmp_path):
    """A damaged backup is found by restore --check, and of it nothing is restored."""
    backup, copy = tmp_path / "backup", tmp_path / "copy"
    found = run("backup", stopped, backup)
    assert re.fullmatch(rf"{backup}: \d+ files, [\d.]+ MB, through unit \d+; no broker ran\n", found.stdout), (
        found.output
    )
    assert refused("backup", stopped, backup) == (
        f"{backup} is not empty", "name a folder that does not exist or is empty",
    )  # fmt: skip
    (tmp_path / "nothing").mkdir()
    assert refused("backup", tmp_path / "nothing", copy) == (
        f"{tmp_path / 'nothing'} has no broker's data", "name the data directory of fencepost serve",
    )  # fmt: skip
    assert refused("backup", stopped, stopped / "backup")[0] == f"{stopped / 'backup'} is inside of {stopped}"
    assert refused("restore", backup, stopped)[0] == f"{stopped} is not empty"
    assert refused("restore", tmp_path, copy)[0].startswith(f"{tmp_path} is no backup")
    assert run("restore", backup).exit_code == 2
    assert ": sound: " in run("restore", "--check", backup).stdout
    assert run("restore", backup, copy).exit_code == 0
    journal = next((backup / "data" / "journal").iterdir())
    content = bytearray(journal.read_bytes())
    content[5000] ^= 1
    journal.write_bytes(content)
    assert refused("restore", "--check", backup)[0].endswith("files damaged")
    cause, hint = refused("restore", backup, tmp_path / "other")
    assert cause == f"{journal} fails its checksum"
    assert "--check" in hint
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.slow
def test_a_backup_to_a_full_disk_prints_one_line_and_leaves_no_files(stopped, tmp_path):
    """The disk is a tmpfs of 8 KiB."""
    volume = tmp_path / "volume"
    volume.mkdir()
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    fencepost = f'"{sys.executable}" -m fencepost'
    script = (
        'mount -t tmpfs -o size=8k tmpfs "$1" || exit 99\n'
        f'{fencepost} backup "$2" "$1/backup"; echo "code $?"; ls -A "$1/backup"'
    )
    found = subprocess.run(
        ["unshare", "--mount", *user, "sh", "-c", script, "sh", volume, stopped],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode == 99:
        pytest.skip("no tmpfs can be mounted here")
    assert found.stdout == "code 1\n", found
    cause, hint = found.stderr.splitlines()
    assert cause.endswith("the disk is full")
    assert hint == "hint: free some space, or name a folder on another disk"
