"""The disk under the brokers, and whether it has nothing left to write.

Otherwise the kernel would write what one broker did not sync while another one is measured.
"""

import os
import time
from pathlib import Path

QUIET_BYTES = 16 << 20
LOOK_S = 0.05
PATIENCE_S = 30.0


def unwritten(meminfo: str) -> int:
    """Bytes that wait to be written (Dirty and Writeback), from the text of /proc/meminfo."""
    rows = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    return sum(1024 * int(rows[name].split()[0]) for name in ("Dirty", "Writeback") if name in rows)


def quiet_disk(limit_bytes: int = QUIET_BYTES, timeout_s: float = PATIENCE_S) -> float:
    """Sync, then wait until less than the limit is left to write. Returns: the seconds it took, more than the
    limit of time in vain.
    """
    began = time.perf_counter()
    os.sync()
    meminfo = Path("/proc/meminfo")
    while meminfo.exists() and unwritten(meminfo.read_text()) >= limit_bytes:
        if time.perf_counter() - began > timeout_s:
            break
        time.sleep(LOOK_S)
    return time.perf_counter() - began
