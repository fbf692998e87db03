"""Kills at a step of the sink: of Spark's driver, of a Python worker or of the broker, when a certain request passes.

The requests pass through a proxy, so a kill happens before the broker has received the request, or after it has
answered and before the answer has arrived. /proc tells which worker has the connection of the request.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from chaos_proxy import REPLY, REQUEST, ChaosProxy, Cut, Frame, Link, Rule

INIT_PRODUCER_ID, PRODUCE, PREPARE_TXN, END_TXNS = 22, 0, 20000, 20001
STEPS = {"InitProducerId": INIT_PRODUCER_ID, "Produce": PRODUCE, "PrepareTxn": PREPARE_TXN, "EndTxns": END_TXNS}
SIDES = {"before": REQUEST, "after": REPLY}


class Kill(Rule):
    """A proxy rule that calls `deed` when the nth such frame passes, and then drops the frame and the connection."""

    def __init__(self, proxy: ChaosProxy, step: str, side: str, nth: int, deed: Callable[[int], None]) -> None:
        """deed: called with the port of the client whose frame it is."""
        super().__init__(proxy, SIDES[side], [STEPS[step]], None)
        self._left = nth
        self._deed = deed
        self._over = threading.Event()
        self.done = 0
        self.failed: Exception | None = None

    def chosen(self) -> bool:
        self._left -= 1
        return self._left == 0

    async def apply(self, frame: Frame, link: Link) -> None:
        port = link.client.writer.get_extra_info("peername")[1]
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._deed, port)
            self.done += 1
        except Exception as problem:
            self.failed = problem
        self._over.set()
        raise Cut

    def check(self, within_s: float = 30) -> None:
        """Check that the kill has happened. Waits up to within_s: a process may be seen to end before `done` is set."""
        assert self._over.wait(within_s), "nobody was killed"
        assert (self.done, self.failed) == (1, None)


def kill_at(proxy: ChaosProxy, step: str, side: str, nth: int, deed: Callable[[int], None]) -> Kill:
    """Call `deed` at the nth request of this step from now on (1 is the next). side: "before" the broker sees the
    request, or "after" it has answered.
    """
    rule = Kill(proxy, step, side, nth, deed)
    proxy.rules = [*proxy.rules, rule]
    return rule


def kill_worker(port: int) -> None:
    """Send SIGKILL to the Python process that has this local port."""
    os.kill(owner_of(port), signal.SIGKILL)


def kill_driver(pid: int) -> None:
    """Send SIGKILL to a driver and its JVM. Its Python workers end by themselves, a little later."""
    javas = [each for each in descendants(pid) if _name_of(each) == "java"]
    for each in (*javas, pid):
        os.kill(each, signal.SIGKILL)


def owner_of(port: int) -> int:
    """Return the id of the process whose loopback connection has this local port."""
    wanted = f"0100007F:{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == wanted and fields[9] != "0":
            return _with_socket(f"socket:[{fields[9]}]")
    raise LookupError(f"nobody has port {port}")


def _with_socket(link: str) -> int:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if any(os.readlink(each) == link for each in (folder / "fd").iterdir()):
                    return int(folder.name)
            except OSError:  # it has ended, or belongs to another user
                continue
    raise LookupError(f"nobody has {link}")


def descendants(pid: int) -> list[int]:
    """Return the ids of its child processes, of their children, and so on."""
    found = []
    for folder in Path("/proc").glob(f"{pid}/task/*/children"):
        for child in map(int, folder.read_text().split()):
            found += [child, *descendants(child)]
    return found


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def gone(pid: int, within_s: float = 30) -> bool:
    """Return whether the process ends by itself within within_s."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.05)
    return False
