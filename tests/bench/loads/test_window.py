"""Histograms of latencies, the readings of a window, and the wait until the disk has nothing left to write."""

import os
import subprocess
import sys

import pytest
from fencepost.bench.loads.window import Books, Latencies
from fencepost.bench.peers import disk
from fencepost.bench.peers.peers import Peer

MEMINFO = """MemTotal:       24684084 kB
Dirty:              1536 kB
Writeback:           512 kB
WritebackTmp:       9999 kB
"""


def test_histogram_percentiles_are_exact_to_one_thousandth():
    latencies = Latencies()
    for value in range(1, 10_001):
        latencies.record_us(value)
    assert latencies.count == 10_000
    assert latencies.percentile_ms(0.5) == pytest.approx(5.0, rel=0.001)
    assert latencies.percentile_ms(0.999) == pytest.approx(9.99, rel=0.001)


def test_values_outside_the_histogram_count_in_its_first_or_last_bucket():
    latencies = Latencies()
    latencies.record_us(0)
    latencies.record_us(0.4)
    latencies.record_us(3_600_000_000)
    assert latencies.count == 3
    assert latencies.percentile_ms(0.5) == 0.001
    assert latencies.percentile_ms(1.0) == pytest.approx(60_000, rel=0.001)


def test_percentiles_of_an_empty_histogram_are_0():
    assert Latencies().percentile_ms(0.99) == 0


def test_histograms_survive_text_encoding_and_can_be_added():
    one, other = Latencies(), Latencies()
    one.record_us(100, 3)
    other.record_us(900)
    there = Latencies.decode(one.encode())
    there.add(other)
    assert there.count == 4
    assert there.percentile_ms(0.5) == pytest.approx(0.1, rel=0.001)
    assert there.percentile_ms(1.0) == pytest.approx(0.9, rel=0.001)
    assert Latencies.decode(Latencies().encode()).count == 0


def test_cpu_time_of_the_broker_and_of_the_client_is_counted_separately():
    busy = "import sys\nprint(flush=True)\ninput()\nfor i in range(2_000_000): pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdin is not None
        assert broker.stdout is not None
        broker.stdout.readline()
        books = Books(Peer("busy", "nowhere", 1, broker.pid))
        books.begin()
        broker.stdin.write(b"\n")
        broker.stdin.flush()
        broker.stdout.readline()
        books.end()
        sample = books.sample(10, 1000, Latencies())
        reported = books.sample(10, 1000, Latencies(), seconds=2.0, client_cpu_ns=3_000_000_000)
        broker.communicate(b"\n")
    assert sample.cpu_ns > 1_000_000
    assert sample.rss_bytes > 1_000_000
    assert sample.client_share < sample.cpu_ns / 1e9 / sample.seconds  # this process waited
    assert (reported.seconds, reported.client_share) == (2.0, 1.5)


def test_cpu_time_of_an_ended_child_process_is_part_of_the_client_share():
    books = Books(Peer("me", "nowhere", 1, os.getpid()))
    books.begin()
    subprocess.run([sys.executable, "-c", "for i in range(3_000_000): pass"], check=True)
    books.end()
    sample = books.sample(1, 0, Latencies())
    assert sample.client_share * sample.seconds * 1e9 > 10_000_000  # ns: three million turns of a loop take longer


def test_unwritten_returns_the_sum_of_dirty_and_writeback_bytes_in_meminfo():
    assert disk.unwritten(MEMINFO) == 2048 * 1024
    assert disk.unwritten("") == 0


def test_wait_until_quiet_returns_at_its_timeout_or_when_nothing_is_unwritten(monkeypatch):
    monkeypatch.setattr(disk, "unwritten", lambda text: 1 << 30)
    monkeypatch.setattr(disk.os, "sync", lambda: None)
    assert disk.wait_until_quiet(timeout_s=0.0) < 5
    monkeypatch.setattr(disk, "unwritten", lambda text: 0)
    assert disk.wait_until_quiet(timeout_s=3600.0) < 60


def test_discards_sums_the_completed_discards_of_all_devices_in_diskstats():
    rows = " 254 0 vda 1 2 3 4 5 6 7 8 0 9 10 21 12 13 14 15 16\n   8 0 sda 1 2 3 4 5 6 7 8 0 9 10 4 12 13 14 15 16\n"
    assert disk.discards(rows) == 25
    assert disk.discards("   8 0 sda 1 2 3 4 5 6 7 8 0 9 10\n") == 0  # a kernel that does not count them


def test_wait_until_freed_returns_only_after_the_deleted_topics_folder_is_removed(tmp_path, monkeypatch):
    folder = tmp_path / "logs" / "own-0.7"
    folder.mkdir(parents=True)
    looks: list[int] = []
    there_at_sync: list[bool] = []
    monkeypatch.setattr(disk.os, "sync", lambda: there_at_sync.append(folder.exists()))

    def remove_after_two_looks(seconds: float) -> None:
        looks.append(1)
        if len(looks) == 2:
            folder.rmdir()

    monkeypatch.setattr(disk.time, "sleep", remove_after_two_looks)
    monkeypatch.setattr(disk, "STILL_S", 0.0)
    assert disk.wait_until_freed(str(tmp_path), "own")
    assert len(looks) == 2
    assert there_at_sync == [False]
    folder.mkdir()
    assert not disk.wait_until_freed(str(tmp_path), "own", timeout_s=0.0)
    assert disk.wait_until_freed(str(tmp_path), "another", timeout_s=0.0)
    assert disk.wait_until_freed("", "own", timeout_s=0.0)  # a server without files


def test_waiting_for_the_disk_lasts_until_no_more_blocks_are_discarded(monkeypatch):
    monkeypatch.setattr(disk.os, "sync", lambda: None)
    monkeypatch.setattr(disk.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(disk.time, "perf_counter", iter(range(10_000)).__next__)
    monkeypatch.setattr(disk, "STILL_S", 3)
    ended = iter(range(1000))
    monkeypatch.setattr(disk, "discards", lambda text: min(next(ended), 20))
    assert not disk.wait_until_freed("", "own", timeout_s=10)
    assert disk.wait_until_freed("", "own", timeout_s=1000)
    assert next(ended) > 20  # it has read the number until it stayed at 20
