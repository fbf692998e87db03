"""The console of `fencepost serve --http`: a child process of lower priority, which is a client like any other.

cli/console/beside.py explains why it is a process, children.py how it ends.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ...broker.config.settings import BrokerSettings
from ...console.settings import BadAddress, ConsoleSettings
from ..console.options import address, token_of
from ..output.extras import require
from ..output.failures import WRONG_USAGE, Failure
from .children import end_child, run_child

ENDING_S = 0.5  # once the broker has stopped
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The options --http…, with the values that were given."""

    http: str
    token_file: str | None = None
    hosts: Sequence[str] = ()
    client_config: str | None = None
    read_only: bool = False

    def check(self, settings: BrokerSettings, *, insecure: bool) -> None:
        """Raise Failure, before the broker starts, if the console may not serve at this address or lacks a login."""
        require("fencepost serve --http", "aiohttp", "prometheus_client")
        host, port = address(self.http)
        try:
            ConsoleSettings(host, port, "", "", token=token_of(self.token_file), insecure=insecure).check()
        except BadAddress as error:
            raise Failure(str(error), error.hint, WRONG_USAGE) from None
        if self.client_config is None and _plain_listener(settings) is None:
            raise Failure(
                "every listener asks for TLS or a login, and the console has none",
                "--http-client-config FILE has the properties it connects with; or add a listener on 127.0.0.1 for it",
                WRONG_USAGE,
            )

    def command(self, bootstrap: str, *, insecure: bool, waits_for: str = "") -> list[str]:
        """Return the command line of the console's process. A token and a password stay in their files. waits_for: what
        the broker may wait for before it listens; shown by /readyz.

        Without -P Python would import modules from the working directory, where others may have written some.
        """
        command = [
            sys.executable,
            "-P",
            "-m",
            "fencepost",
            "console",
            "--beside-broker",
            "-b",
            bootstrap,
            "--http",
            self.http,
        ]
        command += ["--http-token-file", self.token_file] if self.token_file is not None else []
        command += ["--client-config", self.client_config] if self.client_config is not None else []
        command += ["--broker-waits", waits_for] if waits_for else []
        for name in self.hosts:
            command += ["--http-host", name]
        return [*command, *([] if self.read_only else ["--allow-changes"]), *(["--insecure"] if insecure else [])]


def _plain_listener(settings: BrokerSettings) -> int | None:
    """Return the index of the first listener without TLS and login; None if there is none."""
    listeners = enumerate(settings.served_listeners)
    return next((i for i, each in listeners if not each.uses_tls and not each.asks_for_login), None)


def known_addresses(settings: BrokerSettings) -> list[tuple[str, int]] | None:
    """Return the addresses on which the broker will listen; None if the operating system will choose a port."""
    addresses = [(each.host, each.port) for each in settings.served_listeners]
    return None if any(port == 0 for _, port in addresses) else addresses


def bootstrap_of(settings: BrokerSettings, addresses: Sequence[tuple[str, int]]) -> str:
    """Return the broker's address for the console: that of a listener without TLS and login, if there is one."""
    host, port = addresses[_plain_listener(settings) or 0]
    host = _EVERYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def run_console(command: Sequence[str]) -> None:
    """Run the console until cancelled, as run_child() does."""
    await run_child("the console", command)


async def end_console(running: "asyncio.Task[None]") -> None:
    """End a run_console task. A console that does not end in time is killed; it has nothing to save."""
    await end_child(running, ENDING_S)
