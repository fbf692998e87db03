"""`fencepost console`: the web console of any Kafka, until a signal ends it.

The rule: it only reads unless --allow-changes is given, it serves only this machine unless a token is set, and its
login to the broker decides what it may do there.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..arguments.connecting import Target, connecting
from ..output.extras import require
from ..output.failures import REFUSED_BY_SYSTEM, WRONG_USAGE, Failure
from ..output.writing import flush, log_to_standard_error, show
from .options import DEFAULT_ADDRESS, address, token_of

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.consumer.consumer import Consumer
    from ...console.settings import ConsoleSettings

READ_ONLY_HINT = "start it with --allow-changes"


@click.command()
@click.option("--http", default=DEFAULT_ADDRESS, show_default=True, metavar="HOST:PORT", help="Where to serve it.")
@click.option("--http-token-file", metavar="FILE", help="Ask for the token in this file: needed for other machines.")
@click.option("--http-host", multiple=True, metavar="NAME", help="A name by which browsers may call it.")
@click.option("--allow-changes", is_flag=True, help="Allow to abort and fence transactions.")
@click.option("--insecure", is_flag=True, help="Serve other machines without a token.")
@click.option("--beside-broker", is_flag=True, hidden=True)
@click.option("--broker-waits", default="", hidden=True)
@connecting
def console(
    to: Target,
    http: str,
    http_token_file: str | None,
    http_host: Sequence[str],
    allow_changes: bool,
    insecure: bool,
    beside_broker: bool,
    broker_waits: str,
) -> None:
    """Serve the web console of a cluster until Ctrl-C.

    Topics, groups, transactions and who is blocked by which; a REST API (/openapi.json) and metrics for Prometheus
    (/metrics).
    """
    require("fencepost console", "aiohttp", "prometheus_client")
    from ... import __version__
    from ...console.settings import BadAddress, ConsoleSettings

    host, port = address(http)
    settings = ConsoleSettings(
        host,
        port,
        to.bootstrap,
        __version__,
        token=token_of(http_token_file),
        hosts=http_host,
        insecure=insecure,
        changes_allowed=allow_changes,
        changes_hint=READ_ONLY_HINT,
        waits_for=broker_waits,
    )
    try:
        settings.check()
    except BadAddress as error:
        raise Failure(str(error), error.hint, WRONG_USAGE) from None
    to.run(lambda: _serve(to, settings, beside_broker))


async def _serve(to: Target, settings: "ConsoleSettings", beside_broker: bool) -> None:
    """Serve the console until a signal; beside a broker, until standard input ends. Raises Failure."""
    import asyncio

    from ...console.serving.server import Console, serve
    from ...console.settings import BadAddress
    from .beside import end_with_standard_input, give_way

    log_to_standard_error()
    ended = asyncio.Event()
    if beside_broker:
        give_way()
        if settings.waits_for:  # perhaps for hours: the client need not log each time that the broker does not answer
            logging.getLogger("fencepost").setLevel(logging.WARNING)
        end_with_standard_input(ended)
    else:
        async with to.admin() as admin:  # a wrong address or login is reported here, and not in a browser
            await admin.describe_cluster()

    def new_admin() -> "Admin":
        return to.admin()

    def new_consumer() -> "Consumer":
        return to.consumer()

    def ready(url: str) -> None:
        """Print the console's address and whether changes are allowed."""
        change = "changes are allowed" if settings.changes_allowed else "read-only"
        show(f"console    {url} of {to.bootstrap}, {change}")
        flush()

    try:
        await serve(Console(settings, new_admin, new_consumer), ready, ended)
    except BadAddress as error:
        raise Failure(str(error), error.hint, REFUSED_BY_SYSTEM) from None
