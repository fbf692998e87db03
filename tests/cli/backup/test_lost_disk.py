"""The disk of a broker is lost under load: its backup has all that was shipped, and only whole transactions."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from click.testing import CliRunner
from confluent_kafka import Producer
from eventually import wait_until
from fencepost.cli import main
from s3_servers import STORES, opened_store
from two_topic_load import TOPICS, Load, committed_in


def run(*words):
    found = CliRunner().invoke(main, list(map(str, words)))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def facts(*words):
    found = run(*words, "-o", "json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout.splitlines()[-1])


def rounds_in(url):
    return _status(url).get("rounds", 0)


def points_in(url):
    return _status(url).get("points", 0)


def newest_ms_in(url):
    """Return the newest moment (wall time) that can be restored; 0 if there is none."""
    return _status(url).get("newest_ms") or 0


def _status(url):
    found = run("store", "status", url, "-o", "json")
    return json.loads(found.stdout) if found.exit_code == 0 else {}


def check_what_is_restored(url, directory, load):
    """Restore and serve: both topics have the same transactions, without a gap, all that were answered by then."""
    moment_ms = facts("restore", url, "--data-dir", directory)["moment_ms"]
    assert run("log", "verify", directory).exit_code == 0
    copy = BrokerProcess(str(directory))
    copy.start()
    try:
        first, second = (committed_in(copy, topic) for topic in TOPICS)
        assert first == second == list(range(len(first)))
        covered = [number for number, answered_ms in enumerate(load.answered_ms) if answered_ms < moment_ms]
        # One more, if the answer to a commit was lost when the broker was killed.
        assert len(covered) <= len(first) <= load.committed + 1
        again = Producer({"bootstrap.servers": copy.bootstrap, "transactional.id": "load"})
        again.init_transactions(30)
    finally:
        assert copy.stop() == 0
    return len(first)


@pytest.fixture(params=STORES)
def url(request, tmp_path, monkeypatch):
    with opened_store(request.param, tmp_path, monkeypatch) as found:
        yield found


@pytest.mark.slow
def test_after_a_lost_disk_the_backup_restores_only_whole_transactions(url, tmp_path):
    broker = BrokerProcess(
        str(tmp_path / "data"), "-X", "journal.max.bytes=8388608", "--backup", url, "--backup-every", "200ms"
    )
    broker.start()
    for topic in TOPICS:
        assert run("topic", "create", topic, "-b", broker.bootstrap).exit_code == 0
    load = Load(broker)
    wait_until(lambda: load.committed > 50 and rounds_in(url) > 2)
    begun = load.committed
    wait_until(lambda: load.committed > begun + 50 and newest_ms_in(url) > load.answered_ms[begun - 1])
    load.end(joins=False)
    broker.kill()  # with its follower: the machine is gone
    shutil.rmtree(tmp_path / "data")
    assert check_what_is_restored(url, tmp_path / "restored", load) >= begun
    assert run("store", "verify", url).exit_code == 0


@pytest.mark.slow
def test_a_broker_backs_up_all_committed_records_before_a_stop_ends_it(tmp_path):
    url = f"file://{tmp_path / 'store'}"
    broker = BrokerProcess(str(tmp_path / "data"), "--backup", url)
    broker.start()
    for topic in TOPICS:
        assert run("topic", "create", topic, "-b", broker.bootstrap).exit_code == 0
    load = Load(broker)
    wait_until(lambda: points_in(url) > 0)  # else all may be in the first point, and no rounds come
    begun = load.committed
    wait_until(lambda: load.committed > begun + 20)
    load.end()
    assert broker.stop() == 0
    assert rounds_in(url) > 0
    shutil.rmtree(tmp_path / "data")
    assert check_what_is_restored(url, tmp_path / "restored", load) == load.committed


@pytest.mark.long
def test_after_12_killed_followers_the_backup_restores_whole_transactions(url, tmp_path):
    """Each `backup --follow` is killed at another moment and replaced; the broker is killed at the end. The restored
    records are compared with those that were committed.
    """
    directory = tmp_path / "data"
    broker = BrokerProcess(str(directory), "-X", "journal.max.bytes=8388608")
    broker.start()
    for topic in TOPICS:
        assert run("topic", "create", topic, "-b", broker.bootstrap).exit_code == 0
    load = Load(broker)
    for number in range(12):
        begun = load.committed
        command = [sys.executable, "-m", "fencepost", "backup", "--follow", "--every", "100ms", "--take-over"]
        with open(tmp_path / f"follower{number}", "wb") as log:
            process = subprocess.Popen([*command, str(directory), url], stdout=log, stderr=log)
        wait_until(lambda begun=begun: load.committed > begun + 40)
        if number > 2:  # the first three may be killed before the first point is complete, the others are not
            wait_until(lambda number=number: b"loss window" in Path(tmp_path / f"follower{number}").read_bytes())
        process.kill()
        process.wait()
    load.end()
    broker.kill()
    assert run("store", "verify", url).exit_code == 0
    # The last follower told of a loss window, so it had a point, which it began to read after its start.
    assert check_what_is_restored(url, tmp_path / "restored", load) >= begun
