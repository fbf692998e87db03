"""CPU time and memory of a process: of all its threads, also those that have ended."""

import os
import threading
import time

import pytest
from fencepost.bench import accounting

BURNT_S = 0.05


def burn() -> None:
    until = time.thread_time() + BURNT_S
    while time.thread_time() < until:
        pass


def test_the_cpu_time_of_an_ended_thread_is_still_counted():
    before = accounting.usage(os.getpid())
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()
    assert accounting.usage(os.getpid()).since(before).cpu_ns >= BURNT_S * 1e9


def test_rss_bytes_grows_with_the_memory_in_use():
    before = accounting.usage(os.getpid()).rss_bytes
    block = bytearray(b"." * (64 << 20))
    assert accounting.usage(os.getpid()).rss_bytes - before > len(block) // 2


def test_usage_of_process_0_raises_os_error():
    with pytest.raises(OSError):
        accounting.usage(0)
