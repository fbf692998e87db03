"""Runs a command about users and rules on a data directory whose broker is down (--data-dir).

The rule: a whole broker opens the directory, as at its start: it locks and recovers the directory, and changes it by
the same requests and the same log. It listens on no socket: this process reaches it through a network in memory.
"""

import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..arguments.connecting import Target
from ..output.failures import NOT_FOUND, WRONG_USAGE, Failure

if TYPE_CHECKING:
    from ...client.admin.admin import Admin

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_HOST, _PORT = "localhost", 9092  # of the network in memory

data_dir = click.option(
    "--data-dir", metavar="DIR", default=None, help="Work on this data directory while its broker is down."
)


def ask(
    to: Target, directory: str | None, work: "Callable[[Admin], Coroutine[Any, Any, T]]", *, may_create: bool = False
) -> T:
    """Run `work` with an Admin of the broker (directory: None) or of this data directory, and return its result.
    may_create: the directory may be new. Raises Failure.
    """
    if directory is None:
        return to.ask(work)
    _check(directory, may_create)
    return to.run(lambda: _with_broker(directory, to.timeout_ms, work))


def _check(directory: str, may_create: bool) -> None:
    """Raise Failure if --data-dir is given together with -b, or if the directory has no data and may not be created."""
    source = click.get_current_context().get_parameter_source("bootstrap")
    if source is click.core.ParameterSource.COMMANDLINE:
        raise Failure(
            "-b and --data-dir cannot be used together",
            "-b changes a running broker, --data-dir the data directory of one that is down",
            WRONG_USAGE,
        )
    if not directory:
        raise Failure("--data-dir is empty", "give it a value, or leave it out to ask a running broker", WRONG_USAGE)
    if not may_create and not os.path.isdir(directory):
        raise Failure(f"{directory}: there is no such directory", "--data-dir is that of fencepost serve", NOT_FOUND)


async def _with_broker(directory: str, timeout_ms: int, work: "Callable[[Admin], Coroutine[Any, Any, T]]") -> T:
    """Start a broker on the data directory, reachable in memory only, and return what `work` returns with an Admin
    that is connected to it. Raises Failure if it does not start.
    """
    from ...broker.broker import Broker
    from ...broker.config.security_settings import STANDARD_AUTHORIZER
    from ...broker.config.settings import BrokerSettings
    from ...client.admin.admin import Admin
    from ...client.net.environment import Environment
    from ...client.settings import admin_settings
    from ...effects.clock import SystemClock
    from ...effects.rng import SystemRng
    from ...effects.simulated.net import SimulatedNet
    from ..serve.starting import explain_failure

    net = SimulatedNet(seed=0)
    settings = BrokerSettings(
        log_dir=directory,
        listeners=(f"{_HOST}:{_PORT}",),
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:ANONYMOUS",
    )
    broker = Broker(settings, net=net)
    try:
        await broker.start()
    except Exception as error:
        failure = explain_failure(error, settings)
        if failure is None:
            raise
        raise _while_it_runs(failure, directory) from None
    try:
        environment = Environment(SystemClock(), SystemRng(), net)
        asked = admin_settings(f"{_HOST}:{_PORT}", default_api_timeout_ms=timeout_ms)
        async with Admin.of(asked, environment) as admin:
            return await work(admin)
    finally:
        await broker.stop()


def _while_it_runs(failure: Failure, directory: str) -> Failure:
    """Return the failure, with the hint to use the running broker if the directory is in use."""
    if "is in use by" not in failure.message:
        return failure
    hint = "a broker runs on it: ask that one (-b HOST:PORT instead of --data-dir), or stop it first"
    return Failure(failure.message, hint, failure.code)
