"""Messages to the service manager (systemd) that started the process: ready, stopping, still alive.

Without NOTIFY_SOCKET in the environment nothing is sent. A message that cannot be sent is dropped, because the process
works without the manager. Source: sd_notify(3) of systemd.
"""

import os
import socket
from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"
ABSTRACT = "@"  # a name of Linux' abstract namespace begins with a zero byte, written so


class ServiceManager:
    """The service manager named in the environment; if there is none, messages are dropped."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.alive_interval_s = _half_of_watchdog_s(environment)

    def notify(self, message: str) -> None:
        """Send one message: READY, STOPPING or ALIVE. A failure is ignored."""
        if not self._address.startswith(("/", ABSTRACT)):
            return
        address = self._address
        if address.startswith(ABSTRACT):
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.setblocking(False)
                manager.sendto(message.encode(), address)
        except OSError:
            pass


def _half_of_watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Return how often, in seconds, to send ALIVE: half the manager's limit. None if it expects no such messages."""
    pid, interval_us = environment.get("WATCHDOG_PID"), environment.get("WATCHDOG_USEC", "")
    if (pid is not None and pid != str(os.getpid())) or not interval_us.isdecimal() or int(interval_us) == 0:
        return None
    return int(interval_us) / 2_000_000
