"""Histograms of latencies, the books of a window, and a disk with nothing left to write."""

import os
import subprocess
import sys

import pytest
from fencepost.bench.contest import disk
from fencepost.bench.loads.window import Books, Latencies
from fencepost.bench.peers.peers import Peer

MEMINFO = """MemTotal:       24684084 kB
Dirty:              1536 kB
Writeback:           512 kB
WritebackTmp:       9999 kB
"""


def test_percentiles_are_those_of_the_values_within_a_thousandth():
    latencies = Latencies()
    for value in range(1, 10_001):
        latencies.record_us(value)
    assert latencies.count == 10_000
    assert latencies.percentile_ms(0.5) == pytest.approx(5.0, rel=0.002)
    assert latencies.percentile_ms(0.999) == pytest.approx(9.99, rel=0.002)


def test_values_beyond_the_ends_count_as_the_ends():
    latencies = Latencies()
    latencies.record_us(0)
    latencies.record_us(0.4)
    latencies.record_us(3_600_000_000)
    assert latencies.count == 3
    assert latencies.percentile_ms(0.5) == 0.001
    assert latencies.percentile_ms(1.0) == pytest.approx(60_000, rel=0.001)


def test_no_values_have_no_percentiles():
    assert Latencies().percentile_ms(0.99) == 0


def test_histograms_travel_as_text_and_add_up():
    one, other = Latencies(), Latencies()
    one.record_us(100, 3)
    other.record_us(900)
    there = Latencies.decode(one.encode())
    there.add(other)
    assert there.count == 4
    assert there.percentile_ms(0.5) == pytest.approx(0.1, rel=0.001)
    assert there.percentile_ms(1.0) == pytest.approx(0.9, rel=0.001)
    assert Latencies.decode(Latencies().encode()).count == 0


def test_books_tell_the_broker_from_the_client():
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


def test_a_child_that_ended_in_the_window_is_the_clients():
    books = Books(Peer("me", "nowhere", 1, os.getpid()))
    books.begin()
    subprocess.run([sys.executable, "-c", "for i in range(3_000_000): pass"], check=True)
    books.end()
    sample = books.sample(1, 0, Latencies())
    assert sample.client_share * sample.seconds * 1e9 > 10_000_000


def test_dirty_and_writeback_are_what_waits_to_be_written():
    assert disk.unwritten(MEMINFO) == 2048 * 1024
    assert disk.unwritten("") == 0


def test_a_quiet_disk_is_waited_for_no_longer_than_asked(monkeypatch):
    monkeypatch.setattr(disk, "unwritten", lambda text: 1 << 30)
    monkeypatch.setattr(disk.os, "sync", lambda: None)
    assert disk.quiet_disk(timeout_s=0.0) < 5
    monkeypatch.setattr(disk, "unwritten", lambda text: 0)
    assert disk.quiet_disk(timeout_s=3600.0) < 60
