"""CPU time of all threads of a process and its memory, as the kernel counts them. Linux only.

CPU time, of kernel and user in nanoseconds, differs by some 10 % between repetitions, while wall-clock rates on a
machine with other load differ by a factor of 2. So ratios of CPU time per request are the reliable figures.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """What the kernel counted for one process. cpu_ns: CPU time of all its threads, also those that have ended;
    rss_bytes: its memory in RAM.
    """

    cpu_ns: int
    rss_bytes: int

    def since(self, before: "Usage") -> "Usage":
        """Return the CPU time between an earlier reading and this one, with this one's memory."""
        return Usage(self.cpu_ns - before.cpu_ns, self.rss_bytes)


def usage(pid: int) -> Usage:
    """Return CPU time and memory of a process now. Raises: OSError if it has ended."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(time.clock_gettime_ns(_cpu_clock(pid)), pages * os.sysconf("SC_PAGE_SIZE"))


def _cpu_clock(pid: int) -> int:
    """Return the id of the clock that counts a process's CPU time, as clock_getcpuclockid(3) does.

    It includes threads that ended, which the sum over /proc/PID/task loses: a JVM starts and ends compiler threads as
    it needs them.
    """
    return (~pid << 3) | 2


def listener_pid(port: int) -> int | None:
    """Return the id of the process on this machine that listens on a TCP port; None if there is none or it cannot be
    seen.
    """
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
    """Return the names of the sockets that listen on this TCP port, as links in /proc/PID/fd show them."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and int(columns[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{columns[9]}]")
    return inodes
