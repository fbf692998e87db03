"""`fencepost health`: whether a broker answers, for health checks of containers and scripts that wait for it.

The rule: the exit code is 0 or 1, because Docker reserves the others; the output is one line.
"""

import click

from ..effects.counts import count_text
from .arguments.connecting import Target, connecting
from .arguments.ranges import DURATION
from .output.failures import FAILED, Failure
from .output.tables import duration

RETRY_S = 0.1


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
    to.output.result(f"healthy: {to.bootstrap} answers in {duration(facts['answer_ms'])}, {brokers}", facts)


async def _wait_for_answer(to: Target, wait_ms: int) -> dict[str, int]:
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
            return {"healthy": True, "brokers": len(cluster.nodes), "answer_ms": took_ms}
        except RetriableError:
            if time.monotonic() >= until:
                raise
            await asyncio.sleep(RETRY_S)
