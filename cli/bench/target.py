"""The broker that a load is for, and how it logs in: -b, --user, --tls… and --client-config as in other commands.

The rule: without a login, topics are prepared by plain requests, so that any broker or mock will do.
"""

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..arguments.connecting import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, bootstrap_of
from ..arguments.login import BOOTSTRAP, login_options, login_properties

if TYPE_CHECKING:
    from ...bench.login import Login
    from ...bench.small import Connect

F = TypeVar("F", bound=Callable[..., Any])

_BOOTSTRAP = click.option(
    "-b",
    "--bootstrap",
    envvar=BOOTSTRAP_VARIABLE,
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    help=f"HOST:PORT. Also ${BOOTSTRAP_VARIABLE}.",
)


class LoadTarget:
    """One broker. properties: of the login, by their Kafka names; they may contain passwords."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        """Check the address and the login. Raises NotAnAddress, InvalidConfigurationError."""
        from ...bench import topics

        self.bootstrap = bootstrap
        self.host, self.port = topics.address(bootstrap)
        self.properties = dict(properties)
        self._login: Login | None = None
        if properties:
            from ...bench import login

            found = login.Login(bootstrap, properties)
            self._login = found if found.is_needed else None

    @property
    def connect(self) -> "Connect":
        """A function that opens a connection ready for requests, with the login if there is one."""
        from ...bench import small

        return small.connect_plainly if self._login is None else self._login.connect

    def for_librdkafka(self) -> dict[str, str]:
        """Return librdkafka's properties for the same login."""
        return {} if self._login is None else self._login.for_librdkafka()

    def topic(self, name: str | None, partitions: int) -> AbstractContextManager[str]:
        """Yield the given topic, or a new one that is deleted at the end. Raises NoTopic, OSError, KafkaError."""
        from ...bench import topics

        if self._login is not None:
            return self._login.topic(name, partitions)
        return topics.topic(self.host, self.port, name, partitions)

    def check_exists(self, name: str) -> None:
        """Check that the topic exists. Raises NoTopic if not; OSError, KafkaError."""
        from ...bench import topics

        if self._login is not None:
            self._login.check_exists(name)
        else:
            topics.check_exists(self.host, self.port, name)


def connecting_loads(command: F) -> F:
    """Add -b and the options of the login to a command; it gets a LoadTarget as `to`."""

    @functools.wraps(command)
    def connected(*arguments: Any, bootstrap: str, **rest: Any) -> Any:
        """Call the command with the target that the options of the connection describe."""
        login = {name: rest.pop(name) for name in list(rest) if name.startswith("login_")}
        found = login_properties(**login)
        where = bootstrap_of(bootstrap, found.pop(BOOTSTRAP, bootstrap))
        found.pop("client.id", None)
        return command(*arguments, to=LoadTarget(where, found), **rest)

    for option in reversed((_BOOTSTRAP, *login_options())):
        connected = option(connected)
    return cast("F", connected)
