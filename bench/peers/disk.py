"""Waits until the disk under the brokers has nothing left to write or to discard.

Otherwise the kernel would write what one broker did not sync, or free what another one deleted, while a third is
measured. A file system that is mounted with `discard` tells the device which blocks are free: of some gigabytes that
takes a second, and every sync waits for it.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

QUIET_BYTES = 16 << 20
LOOK_S = 0.05
PATIENCE_S = 30.0
DELETED_WITHIN_S = 10.0
STILL_S = 0.3  # after this long without a discard, none are left


def unwritten(meminfo: str) -> int:
    """Return how many bytes wait to be written (Dirty and Writeback). meminfo: the text of /proc/meminfo."""
    rows = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    return sum(1024 * int(rows[name].split()[0]) for name in ("Dirty", "Writeback") if name in rows)


def discards(diskstats: str) -> int:
    """Return how many discards (of freed blocks) all devices have completed. diskstats: the text of /proc/diskstats;
    Linux before 4.18 does not tell.
    """
    rows = [line.split() for line in diskstats.splitlines()]
    return sum(int(row[14]) for row in rows if len(row) > 14)


def wait_until_quiet(limit_bytes: int = QUIET_BYTES, timeout_s: float = PATIENCE_S) -> float:
    """Sync, then wait until fewer than limit_bytes are left to write. Returns the seconds it took: more than timeout_s
    if it waited in vain.
    """
    began = time.perf_counter()
    os.sync()
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        _wait_until(lambda: unwritten(meminfo.read_text()) < limit_bytes, timeout_s)
    return time.perf_counter() - began


def wait_until_freed(directory: str, topic: str, timeout_s: float = DELETED_WITHIN_S) -> bool:
    """Wait until a deleted topic has no folder below a broker's directory, and the devices discard no more of its
    blocks. Each for timeout_s at most. Returns whether both came true.
    """
    gone = _wait_until(lambda: not _has_folder(directory, topic), timeout_s)
    os.sync()  # the file system commits the removal, and then discards the freed blocks
    return _wait_until_still(timeout_s) and gone


def _has_folder(directory: str, topic: str) -> bool:
    """Return whether there is a folder below the directory with the topic in its name."""
    return any(topic in name for _, names, _ in os.walk(directory) for name in names)


def _wait_until_still(timeout_s: float) -> bool:
    """Wait until no discard was completed for STILL_S. Returns whether that came true within timeout_s."""
    diskstats = Path("/proc/diskstats")
    if not diskstats.exists():
        return True
    seen, since = discards(diskstats.read_text()), time.perf_counter()

    def is_still() -> bool:
        """Return whether no discard was completed for STILL_S."""
        nonlocal seen, since
        now = discards(diskstats.read_text())
        if now != seen:
            seen, since = now, time.perf_counter()
        return time.perf_counter() - since >= STILL_S

    return _wait_until(is_still, timeout_s)


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Check the condition every LOOK_S until it is true. Returns False if it is not within timeout_s."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > timeout_s:
            return False
        time.sleep(LOOK_S)
    return True
