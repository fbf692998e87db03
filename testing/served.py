"""The brokers that fixtures return: an embedded one with assertions and faults, or an external one.

The rule: with an external broker, a test that needs an embedded one (faults, time, kill) is skipped.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from ..broker.broker import Serve
from ..broker.embedded.broker import Broker, Setting
from ..broker.embedded.rights import Rule
from ..broker.net.connection import Connection
from ..protocol.apis import APIS
from ..protocol.errors import MalformedFrame
from ..protocol.headers import read_request_header
from ..protocol.primitives import Readable
from .asking import CLIENT_ID, Login
from .assertions import Asserting
from .faults import Faults

EMBEDDED_ONLY = frozenset(
    [
        "add_acls",
        "add_user",
        "advance",
        "client_config",
        "clock",
        "disk",
        "failures",
        "faults",
        "halted",
        "inside",
        "intercept",
        "kill",
        "pause",
        "paused",
        "port",
        "remove_acls",
        "remove_user",
        "restart",
        "resume",
        "running",
    ]
)
REMEMBERED = 60  # requests
OWN_USER = "fencepost-testing"
HEADER_BYTES = 300


class ObservedBroker(Asserting, Broker):
    """An embedded broker with assertions and faults, which stores the last requests for failure reports."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        users: Mapping[str, str] | None = None,
        super_users: str | Sequence[str] | None = None,
        acls: Iterable[Rule] | None = None,
        **settings: Setting,
    ) -> None:
        """Take Broker()'s arguments. If there are users, add a super user, as whom assertions and fixtures log in.
        Raises ValueError for super_users or acls without users.
        """
        if users is not None:
            self._login = OWN_USER, os.urandom(16).hex()
            users = dict([*users.items(), self._login])
            if super_users is not None or acls is not None:
                super_users = _with_own_user(super_users)
        elif super_users is not None or acls is not None:
            raise ValueError("access control lists need users: without logins all clients are the same")
        super().__init__(data_dir, host=host, port=port, users=users, super_users=super_users, acls=acls, **settings)
        self._recent: deque[tuple[float, str, bytes]] = deque(maxlen=REMEMBERED)
        self._known_failures = 0
        self.faults = Faults(self)
        self.intercept(None)

    def verify(self) -> None:
        """Raise AssertionError for a requested fault that did not fire, and for a bug in the broker."""
        found, self._known_failures = self.failures[self._known_failures :], len(self.failures)
        assert not found, f"a bug in the broker: {found}"
        self.faults.verify()

    def reset(self) -> None:
        """Prepare the broker for the next test: running, without faults, with the machine's wall clock and the
        original rights. Topics are not deleted.
        """
        self.faults.clear()
        self.clock.set_wall_right()
        if self.paused:
            self.resume()
        if not self.running:
            self.restart()
        self.restore_rights()

    def intercept(self, between: Callable[[Serve], Serve] | None) -> None:
        """Replace the function that serves requests by what `between` makes of it; None: restore it. Requests are
        stored for failure reports in any case.
        """
        super().intercept(lambda serve: self._remembering(serve if between is None else between(serve)))

    def _remembering(self, serve: Serve) -> Serve:
        """Return a function that stores the beginning of each request for failure reports, then serves it."""
        remember = self._recent.append

        def remembered(connection: Connection, frame: Readable) -> None:
            """Store the time, client and first bytes of the request, then serve it."""
            remember((time.time(), connection.client_host, bytes(frame[:HEADER_BYTES])))
            serve(connection, frame)

        return remembered

    def login_of(self, user: str | None) -> Login | None:
        """Return the (name, password) with which the fixtures' clients log in; None if the broker needs no login.

        user: None for the super user. Raises ValueError for an unknown user.
        """
        if user is None:
            return self._login
        return user, self.client_config(user)["sasl.password"]

    @property
    def answers(self) -> bool:
        """Return whether the broker answers requests now."""
        return self.running and not self.paused

    def fault_lines(self) -> list[str]:
        """Return one line for each fault, for failure reports."""
        return list(map(repr, self.faults.all))

    def recent_requests(self) -> list[str]:
        """Return one line for each of the last requests, oldest first, without those that assertions of this class
        sent.
        """
        return [line for entry in list(self._recent) if (line := _line_of(*entry))]


def _line_of(at: float, host: str, beginning: bytes) -> str:
    """Return the line about one request for failure reports; empty if an assertion sent it or if it cannot be
    decoded. at: seconds since 1970. beginning: its first bytes.
    """
    try:
        header = read_request_header(beginning)
    except MalformedFrame:
        return ""
    if header.client_id == CLIENT_ID:
        return ""
    name = APIS[header.api_key].name if header.api_key in APIS else f"API {header.api_key}"
    clock = time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at * 1000) % 1000:03d}"
    return f"{clock}  {name} v{header.api_version}  #{header.correlation_id}  {header.client_id}"


def _with_own_user(super_users: str | Sequence[str] | None) -> str | list[str]:
    """Return the super users with the plugin's own one added."""
    if isinstance(super_users, str):
        return f"{super_users};User:{OWN_USER}"
    return [*(super_users or ()), OWN_USER]


class ExternalBroker(Asserting):
    """An external Kafka broker, for the same tests."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    @property
    def bootstrap_servers(self) -> str:
        return self._bootstrap_servers

    def __repr__(self) -> str:
        return f"<{self.bootstrap_servers}, which runs elsewhere>"

    answers = True

    def login_of(self, user: str | None) -> Login | None:
        """Return None: the fixtures have no login here. Skips a test that asks for a user."""
        if user is not None:
            _skip("client_config")
        return None

    def fault_lines(self) -> list[str]:
        """Return no lines: an external broker has no faults."""
        return []

    def recent_requests(self) -> list[str]:
        """Return no lines: the requests of an external broker are not known."""
        return []

    def verify(self) -> None:
        """Do nothing: an external broker has no faults."""

    def reset(self) -> None:
        """Do nothing: an external broker is not reset."""

    def __getattr__(self, name: str) -> Any:
        """Skip the test if only an embedded broker has this attribute. Raises AttributeError for any other one."""
        if name in EMBEDDED_ONLY:
            _skip(name)
        raise AttributeError(name)


def _skip(name: str) -> NoReturn:
    """Skip the test, since it uses an attribute that only an embedded broker has."""
    import pytest

    pytest.skip(f"fp_broker.{name} needs the embedded broker, not --fencepost-external")
