"""`fencepost health`: whether a broker answers, for health checks of containers and for scripts that wait for it.

The rule: the exit code is 0 or 1, because Docker reserves the others; the output is one line. A broker whose disk is
nearly full does answer, and a restart frees nothing, so the output says so and the exit code stays 0.
"""

from typing import TYPE_CHECKING, Any

import click

from ..effects.counts import count_text
from .arguments.connecting import Target, connecting
from .arguments.ranges import DURATION
from .output.failures import FAILED, Failure
from .output.tables import duration

if TYPE_CHECKING:
    from ..client.admin.admin import Admin

RETRY_S = 0.1
DISKS_S = 1.0  # a health check of a container has five seconds, all in all


@click.command()
@click.option("--wait", type=DURATION, default="0s", metavar="10s", help="Wait up to this time until it is healthy.")
@connecting
def health(to: Target, wait: int) -> None:
    """Exit 0 if the broker answers, 1 if not."""
    try:
        facts = to.run(lambda: _wait_for_answer(to, wait), within_ms=wait + to.timeout_ms)
    except Failure as failure:
        if to.output.json:
            to.output.object({"healthy": False, "cause": failure.message})
        raise Failure(failure.message, failure.hint, FAILED) from None
    brokers = count_text(facts["brokers"], "broker")
    low = "".join(f"; but {each}" for each in facts["low"])
    to.output.result(f"healthy: {to.bootstrap} answers in {duration(facts['answer_ms'])}, {brokers}{low}", facts)


async def _wait_for_answer(to: Target, wait_ms: int) -> dict[str, Any]:
    """Ask the broker until it answers or wait_ms are over. Returns the facts to print."""
    import asyncio
    import time

    from ..client.errors import RetriableError

    until = time.monotonic() + wait_ms / 1000
    while True:
        began = time.monotonic()
        try:
            async with to.admin() as admin:
                cluster = await admin.describe_cluster()
                took_ms = round((time.monotonic() - began) * 1000)
                low = await _low_disks(admin)
            return {"healthy": True, "brokers": len(cluster.nodes), "answer_ms": took_ms, "low": low}
        except RetriableError:
            if time.monotonic() >= until:
                raise
            await asyncio.sleep(RETRY_S)


async def _low_disks(admin: "Admin") -> list[str]:
    """Return a sentence for each disk that is nearly full; none if this login cannot see them.

    Each broker is asked at the address that it advertises, which may not work from inside its container.
    """
    import asyncio

    from ..client.errors import KafkaError
    from .space import low_text

    try:
        async with asyncio.timeout(DISKS_S):
            return [low_text(each) for each in await admin.find_low_log_dirs()]
    except (KafkaError, TimeoutError):
        return []
