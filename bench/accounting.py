"""What a process cost, from the kernel's own books: run time over all its threads, and memory. Linux only.

Run time counts kernel and user time in nanoseconds and repeats within some 10 %, where wall-clock rates on a shared
machine move by 2x; so ratios of CPU per request are the figures to trust.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """A reading of one process. cpu_ns: run time of all threads it ever had; rss_bytes: memory in RAM."""

    cpu_ns: int
    rss_bytes: int

    def since(self, before: "Usage") -> "Usage":
        """CPU between two readings, memory as of the later."""
        return Usage(self.cpu_ns - before.cpu_ns, self.rss_bytes)


def usage(pid: int) -> Usage:
    """Read the books of a process. Raises: OSError for one that is gone."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(time.clock_gettime_ns(_cpu_clock(pid)), pages * os.sysconf("SC_PAGE_SIZE"))


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, as clock_getcpuclockid(3) names it.

    It keeps the time of threads that ended, which the sum over /proc/PID/task loses: a JVM starts and ends compilers
    as it needs them.
    """
    return (~pid << 3) | 2


def listener_pid(port: int) -> int | None:
    """The process of this machine that listens on a TCP port, or None if it cannot be seen."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            targets = {os.readlink(fd) for fd in (process / "fd").iterdir()}
        except (PermissionError, FileNotFoundError):
            continue
        if targets & inodes:
            return int(process.name)
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and int(columns[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{columns[9]}]")
    return inodes
