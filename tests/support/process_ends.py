"""Whether a process ended."""

import time
from pathlib import Path


def gone(pid: int) -> bool:
    """Return whether the process has ended; waits ten seconds for it."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False
