"""`fencepost clients`: who is connected to a fencepost broker, and how much each of them sends and reads.

The rule: Kafka has no API for this, so for another broker the command fails and says so.
"""

from typing import TYPE_CHECKING

import click

from .arguments.connecting import Target, connecting
from .output.failures import Failure
from .output.tables import Column, duration, number

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from ..client.admin.values import ClientDescription

_COLUMNS = (
    Column("CLIENT-ID", "client_id"),
    Column("SOFTWARE", "software"),
    Column("HOST", "host"),
    Column("LISTENER", "listener"),
    Column("PRINCIPAL", "principal"),
    number("CONNECTIONS", "connections"),
    number("REQUESTS", "requests"),
    number("BYTES-IN", "bytes_in"),
    number("BYTES-OUT", "bytes_out"),
    number("IDLE", "idle_ms", duration),
)


@click.command()
@connecting
def clients(to: Target) -> None:
    """Show who is connected: client id, software, address, user, bytes and requests. Of fencepost brokers only."""
    from ..client.errors import UnsupportedVersionError

    async def work(admin: "Admin") -> "list[ClientDescription]":
        """Return the connected clients. Raises Failure if the broker is not fencepost."""
        try:
            return await admin.describe_clients()
        except UnsupportedVersionError:
            cause = f"{to.bootstrap} does not tell who is connected"
            raise Failure(cause, "only a fencepost broker does; Kafka has no such API") from None

    to.output.rows([each._asdict() for each in to.ask(work)], _COLUMNS, "no clients")
