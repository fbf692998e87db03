"""The options of commands that talk to both clusters of a mirror: `--from`, `--to`, and `-X from.NAME=VALUE`.

The rule: a setting for both is given once (`-X NAME=VALUE`); one for a single side begins with that side's name.
"""

import functools
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..arguments.connecting import DEFAULT_TIMEOUT, Target, pairs
from ..arguments.ranges import DURATION
from ..output.failures import WRONG_USAGE, Failure
from ..output.tables import Output

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.producer.producer import Producer

F = TypeVar("F", bound=Callable[..., Any])

FROM_VARIABLE, TO_VARIABLE = "FENCEPOST_MIRROR_FROM", "FENCEPOST_MIRROR_TO"
DEFAULT_NAME = "default"  # client.mirror.names has it; nothing of the SDK is imported before a command runs


def check_expression(option: str, text: str, example: str) -> None:
    """Raise Failure if the text given for an option is not a regular expression. example: one that is."""
    try:
        re.compile(text)
    except re.error as error:
        raise Failure(
            f"{option} {text} is not a regular expression: {error}", f"for example {example!r}", WRONG_USAGE
        ) from None


@dataclass(frozen=True, slots=True)
class Both:
    """Source and target of a mirror. name: of the mirror."""

    name: str
    source: Target
    target: Target
    output: Output

    @asynccontextmanager
    async def admins(self) -> "AsyncIterator[tuple[Admin, Admin]]":
        """Within the block, have an Admin of the source and one of the target open. Yields both."""
        from ...client.admin.admin import Admin
        from ...client.config_names import part_for
        from ...client.settings import AdminSettings

        made = [Admin.from_config(part_for(AdminSettings, each.config())) for each in (self.source, self.target)]
        try:
            await _start(made[0], self.source.bootstrap, "--from")
            await _start(made[1], self.target.bootstrap, "--to")
            yield made[0], made[1]
        finally:
            for each in made:
                await each.close()

    def producer(self, transactional_id: str) -> "Producer":
        """Return the producer of a cutover, which writes to the target."""
        from ...client.config_names import part_for
        from ...client.mirror.cutover.record import PRODUCER_CONFIG
        from ...client.producer.producer import Producer
        from ...client.settings import ProducerSettings

        config = self.target.config(max_block_ms=self.target.timeout_ms)
        given = {**part_for(ProducerSettings, config), **PRODUCER_CONFIG, "transactional.id": transactional_id}
        return Producer.from_config(given)


async def _start(admin: "Admin", bootstrap: str, option: str) -> None:
    """Connect to one side. Raises Failure, whose hint names that side's address and option."""
    from ...client.errors import KafkaError
    from ..output.refusals import refusal

    try:
        await admin.start()
    except KafkaError as error:
        failure = refusal(error, bootstrap)
        failure.hint = failure.hint.replace("-b HOST:PORT", f"{option} HOST:PORT")
        raise failure from None


_OPTIONS = (
    click.option(
        "--from", "source", metavar="HOST:PORT", envvar=FROM_VARIABLE, required=True,
        help=f"The source, or several of its brokers. Also ${FROM_VARIABLE}.",
    ),
    click.option(
        "--to", "target", metavar="HOST:PORT", envvar=TO_VARIABLE, required=True,
        help=f"The target, or several of its brokers. Also ${TO_VARIABLE}.",
    ),
    click.option("--name", default=DEFAULT_NAME, show_default=True, help="The mirror, where a target has several."),
    click.option(
        "-X", "properties", metavar="[from.|to.]NAME=VALUE", multiple=True,
        help="A client property, by its Kafka name; of one side or of both.",
    ),
    click.option(
        "--timeout", "timeout_ms", type=DURATION, default=DEFAULT_TIMEOUT, show_default=True,
        help="How long to wait for an answer.",
    ),
    click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
        help="json: one JSON object on each line.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print only the result, no remarks."),
)  # fmt: skip


def both_sides(command: F) -> F:
    """Add the options of a command that talks to both clusters; it gets a Both as its first argument."""

    @functools.wraps(command)
    def connected(
        source: str, target: str, name: str, properties: Sequence[str], timeout_ms: int, output: str, quiet: bool,
        **rest: Any,
    ) -> Any:  # fmt: skip
        if "NO_COLOR" in os.environ:
            click.get_current_context().color = False
        name.encode()  # raises the error that main explains, before anything is done
        shown = Output(json=output == "json", quiet=quiet)
        given = pairs(properties)
        both = Both(
            name,
            Target(source, properties_of("from", given), timeout_ms, shown),
            Target(target, properties_of("to", given), timeout_ms, shown),
            shown,
        )
        return command(both, **rest)

    for option in reversed(_OPTIONS):
        connected = option(connected)
    return connected  # type: ignore[return-value]


def properties_of(side: str, given: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the client properties of one side, "from" or "to": first the properties for both sides, then its own."""
    common = [(name, value) for name, value in given if not name.startswith(("from.", "to."))]
    own = [(name.removeprefix(f"{side}."), value) for name, value in given if name.startswith(f"{side}.")]
    return (*common, *own)
