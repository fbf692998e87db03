"""The console of `fencepost serve --http`: a child process of lower priority, started again when it ends.

The rule: it is a client like any other, so it may die, hang or run out of memory, and the broker does not notice; and
it ends with the broker, however that ends: its standard input is a pipe from here. cli/console/beside.py explains why
it is a process.
"""

import asyncio
import contextlib
import errno
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ...broker.config.settings import BrokerSettings
from ...console.settings import BadAddress, ConsoleSettings
from ...effects.threads import MORE_THREADS
from ..arguments.login import CONFIG_VARIABLE, PASSWORD_VARIABLE, USER_VARIABLE
from ..console.options import address, token_of
from ..output.extras import require
from ..output.failures import REFUSED_BY_SYSTEM, WRONG_USAGE, Failure
from ..output.writing import show

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
ENDING_S = 0.5  # once the broker has stopped
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The options --http…, as given."""

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

    def command(self, bootstrap: str, *, insecure: bool) -> list[str]:
        """The child's command line. A token and a password stay in their files.

        -P: else Python would import modules from the working directory, where others may have written some.
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
        for name in self.hosts:
            command += ["--http-host", name]
        return [*command, *([] if self.read_only else ["--allow-changes"]), *(["--insecure"] if insecure else [])]


def _plain_listener(settings: BrokerSettings) -> int | None:
    """The number of the first listener without TLS and login."""
    listeners = enumerate(settings.served_listeners)
    return next((i for i, each in listeners if not each.uses_tls and not each.asks_for_login), None)


def bootstrap_of(settings: BrokerSettings, addresses: Sequence[tuple[str, int]]) -> str:
    """Where the console connects to: a listener without TLS and login, if there is one."""
    host, port = addresses[_plain_listener(settings) or 0]
    host = _EVERYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def run_console(command: Sequence[str]) -> None:
    """Run the console until cancelled. If it ends, start it again, each time after a longer pause.

    Cancelled, it waits for the console to end; cancelled again, it kills it.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        began_s = time.monotonic()
        ended = await _run_once(command)
        if time.monotonic() - began_s > LONGEST_PAUSE_S:
            pause_s = FIRST_PAUSE_S
        with contextlib.suppress(OSError):  # nobody reads it
            show(f"warning: the console {ended}; again in {pause_s:.0f} s", err=True)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def _run_once(command: Sequence[str]) -> str:
    """Run the console until it ends. Returns how it ended, in words."""
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, env=_environment())
    except OSError as error:  # no descriptor, memory or process is left for it, which may change
        more = f" ({MORE_THREADS})" if error.errno == errno.EAGAIN else ""
        return f"cannot be started: {(error.strerror or str(error)).lower()}{more}"
    try:
        code = await process.wait()
    finally:
        await _end(process)
    return f"has ended with exit code {code}" + (f" ({MORE_THREADS})" if code == REFUSED_BY_SYSTEM else "")


def _environment() -> dict[str, str]:
    """Return our environment without the login of other commands: the console's is in --http-client-config."""
    others = (USER_VARIABLE, PASSWORD_VARIABLE, CONFIG_VARIABLE)
    return {name: text for name, text in os.environ.items() if name not in others}


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its standard input, which ends it. If this is cancelled before it has ended, kill it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def end_console(running: "asyncio.Task[None]") -> None:
    """Wait a little for a cancelled run_console task, then kill the console. It has nothing to save."""
    await asyncio.wait([running], timeout=ENDING_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
