"""Messages to the service manager: none unless it asks for them, and an error does not stop the process."""

import os
import socket

import pytest
from fencepost.effects.systemd import ALIVE, READY, ServiceManager


@pytest.fixture
def manager(request, tmp_path):
    """A socket like systemd's, and its address as NOTIFY_SOCKET has it."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@fencepost-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(address.replace("@", "\0", 1))
        bound.setblocking(False)
        yield bound, address


@pytest.mark.parametrize("manager", ["path", "abstract"], indirect=True)
def test_service_manager_notifications_arrive_one_by_one(manager):
    bound, address = manager
    ours = ServiceManager({"NOTIFY_SOCKET": address})
    ours.notify(READY)
    ours.notify(ALIVE)
    assert [bound.recv(100), bound.recv(100)] == [b"READY=1", b"WATCHDOG=1"]


@pytest.mark.parametrize("address", ["", "nowhere", "/there/is/none", "@nobody-listens-here", "/" + "long" * 100])
def test_a_service_manager_that_cannot_be_reached_raises_nothing(address):
    ServiceManager({"NOTIFY_SOCKET": address}).notify(READY)


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid() + 1)}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_interval_is_half_of_the_service_managers_timeout(environment, interval_s):
    assert ServiceManager(environment).alive_interval_s == interval_s
