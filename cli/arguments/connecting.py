"""The options of commands that talk to a broker (-b, --user, -X, --timeout, …), and how such a command runs and ends.

The rule: nothing of the SDK is imported before a command runs. A command that only uses Admin ends within --timeout,
whatever the broker does; Ctrl-C ends any command without a traceback; an error is one line with the cause and one with
a hint.
"""

import functools
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..output.failures import NOT_FOUND, TIMED_OUT, WRONG_USAGE, Failure
from ..output.tables import Output, duration
from .login import BOOTSTRAP, login_options, login_properties
from .ranges import DURATION

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.consumer.consumer import Consumer
    from ...client.producer.producer import Producer
    from ...client.settings import ConnectionSettings
    from ...client.share.consumer import ShareConsumer
    from ...client.values import TopicPartition

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
GRACE_MS = 1000  # beyond --timeout: the SDK times out at --timeout too, and its error names the cause

BOOTSTRAP_VARIABLE = "FENCEPOST_BOOTSTRAP"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT = "10s"
_NO_ANSWER = "a broker of the cluster does not answer; fencepost doctor {} shows which step fails"


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a command talks to. properties: of the client, by their Kafka names; they may contain
    passwords.
    """

    bootstrap: str
    properties: tuple[tuple[str, str], ...] = field(repr=False)
    timeout_ms: int
    output: Output

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the argument of from_config(): these settings, then `more`, then those of -X, which takes
        precedence.
        """
        given = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "fencepost-cli",
            "default.api.timeout.ms": self.timeout_ms,
            "request.timeout.ms": self.timeout_ms,
            "socket.connection.setup.timeout.ms": self.timeout_ms,
        }
        return given | {name.replace("_", "."): value for name, value in more.items()} | dict(self.properties)

    def admin(self, kind: "type[ConnectionSettings] | None" = None) -> "Admin":
        """Return an Admin. kind: the class of settings that -X may contain; Admin uses only its own part of them."""
        from dataclasses import fields

        from ...client.admin.admin import Admin
        from ...client.config_names import settings_from
        from ...client.settings import AdminSettings, ConnectionSettings

        if kind is None:
            return Admin.from_config(self.config())
        given = settings_from(kind, self.config())
        return Admin.of(AdminSettings(**{each.name: getattr(given, each.name) for each in fields(ConnectionSettings)}))

    def producer(self, **more: Any) -> "Producer":
        """Return a producer for the broker that the options name. more: further settings by Kafka's names."""
        from ...client.producer.producer import Producer

        return Producer.from_config(self.config(max_block_ms=self.timeout_ms, **more))

    def consumer(self, **more: Any) -> "Consumer":
        """Return a consumer for the broker that the options name. more: further settings by Kafka's names."""
        from ...client.consumer.consumer import Consumer

        return Consumer.from_config(self.config(**more))

    def share_consumer(self, **more: Any) -> "ShareConsumer":
        """Return a share consumer for the broker that the options name. more: further settings by Kafka's names."""
        from ...client.share.consumer import ShareConsumer

        return ShareConsumer.from_config(self.config(**more))

    def ask(self, work: "Callable[[Admin], Coroutine[Any, Any, T]]") -> T:
        """Run `work` with an Admin, within --timeout, and return its result. Raises Failure."""

        async def with_admin() -> T:
            async with self.admin() as admin:
                return await work(admin)

        return self.run(with_admin, within_ms=self.timeout_ms)

    def run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        within_ms: int | None = None,
        interrupted: Callable[[], None] | None = None,
    ) -> T:
        """Run the coroutine on a new event loop, and return its result. Raises Failure for an error of the SDK or the
        system, and if the work takes longer than within_ms; click's Exit after Ctrl-C. interrupted: called before that.
        """
        import asyncio

        from ...client.errors import KafkaError
        from ..output.interruption import INTERRUPTED, Interruption
        from ..output.refusals import refusal

        async def bounded() -> T:
            """Await the command's work. Raises TimeoutError after within_ms and GRACE_MS."""
            async with asyncio.timeout(None if within_ms is None else (within_ms + GRACE_MS) / 1000):
                return await work()

        with Interruption() as interruption:
            try:
                return interruption.run(bounded())
            except KafkaError as error:
                raise refusal(error, self.bootstrap) from None
            except TimeoutError:
                cause = f"no answer from {self.bootstrap} within {duration(within_ms or self.timeout_ms)}"
                raise Failure(cause, _NO_ANSWER.format(self.bootstrap), TIMED_OUT) from None
            except OSError as error:
                raise _system_failure(error) from None
            except KeyboardInterrupt:
                if interrupted is not None:
                    interrupted()
                raise click.exceptions.Exit(INTERRUPTED) from None


def _system_failure(error: OSError) -> Exception:
    """Return the failure to show for an error of the operating system. A BrokenPipeError is returned unchanged: it
    ends the command without a message.
    """
    from ...effects.threads import CannotStartThread

    if isinstance(error, BrokenPipeError | CannotStartThread):
        return error
    cause = f"{error.filename or 'input or output'}: {error.strerror or error}"
    return Failure(cause, "check the file that this command reads or writes")


def connecting(command: F) -> F:
    """Add the options of a connection to a command; it gets a Target as its first argument."""
    return _connecting(command, password_stdin=True)


def connecting_with_own_password(command: F) -> F:
    """Like connecting(), for a command that reads another password than that of its login from standard input."""
    return _connecting(command, password_stdin=False)


def _connecting(command: F, *, password_stdin: bool) -> F:
    """Wrap a command so that it gets one Target in place of all options about connection, login and output."""

    @functools.wraps(command)
    def connected(
        bootstrap: str, properties: Sequence[str], timeout_ms: int, output: str, quiet: bool, **rest: Any
    ) -> Any:
        if "NO_COLOR" in os.environ:
            click.get_current_context().color = False
        shown = Output(json=output == "json", quiet=quiet)
        login = {name: rest.pop(name) for name in list(rest) if name.startswith("login_")}
        try:
            found = login_properties(**login)
            where = bootstrap_of(bootstrap, found.pop(BOOTSTRAP, bootstrap))
            given = tuple((found | dict(pairs(properties))).items())
            return command(Target(where, given, timeout_ms, shown), **rest)
        except OSError as error:  # the result cannot be written
            raise _system_failure(error) from None

    for option in reversed((_BOOTSTRAP, *login_options(password_stdin=password_stdin), *_OPTIONS)):
        connected = option(connected)
    return connected  # type: ignore[return-value]


def bootstrap_of(given: str, of_file: str) -> str:
    """Return the broker's address: from -b or the environment, else from --client-config (`of_file`)."""
    source = click.get_current_context().get_parameter_source("bootstrap")
    return of_file if source is click.core.ParameterSource.DEFAULT else given


_BOOTSTRAP = click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT",
    envvar=BOOTSTRAP_VARIABLE,
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    help=f"The broker, or several separated by commas. Also ${BOOTSTRAP_VARIABLE}.",
)
_OPTIONS = (
    click.option("-X", "properties", metavar="NAME=VALUE", multiple=True, help="A client property, by its Kafka name."),
    click.option(
        "--timeout",
        "timeout_ms",
        type=DURATION,
        default=DEFAULT_TIMEOUT,
        show_default=True,
        help="How long to wait for an answer.",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="json: one JSON object on each line.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print only the result, no remarks."),
)


def pairs(given: Sequence[str], what: str = "-X") -> tuple[tuple[str, str], ...]:
    """Parse each NAME=VALUE to (name, value). Raises Failure."""
    found = []
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise Failure(f"{what} {each} is not NAME=VALUE", f"write {what} NAME=VALUE", WRONG_USAGE)
        found.append((name.strip(), value))
    return tuple(found)


def partition_of(text: str) -> tuple[str, int | None]:
    """Parse TOPIC:P to (topic, partition), and TOPIC to (topic, None). Raises Failure for a colon without a number."""
    name, colon, digits = text.rpartition(":")
    if not colon:
        return text, None
    if not name or not digits.isascii() or not digits.isdigit():
        raise Failure(f"{text!r} is not TOPIC or TOPIC:PARTITION", "write orders, or orders:0", WRONG_USAGE)
    return name, int(digits)


async def partitions_of(admin: "Admin", wheres: Sequence[str]) -> "list[TopicPartition]":
    """Return the partitions of each TOPIC or TOPIC:P; if none is given, all that have a leader. Raises Failure for a
    partition that does not exist.
    """
    wanted = [partition_of(each) for each in wheres]
    topics = await admin.describe_topics([name for name, _ in wanted] if wanted else None)
    found: list[TopicPartition] = []
    for name, partition in wanted or [(name, None) for name in topics]:
        those = [tp for tp in topics[name].topic_partitions if partition in (None, tp.partition)]
        if not wanted:
            those = topics[name].led
        elif not those:
            raise Failure(
                f"topic {name} has no partition {partition}", f"fencepost topic describe {name} shows them", NOT_FOUND
            )
        found += those
    return found
