"""`fencepost mirror status`: how far the mirror is, and what it has stopped."""

import asyncio
from typing import TYPE_CHECKING

from ..output.failures import NOT_FOUND, Failure
from ..output.tables import Column, count, duration, number
from ..output.writing import Cell
from .sides import Both

if TYPE_CHECKING:
    from ...client.mirror.status import Look

_COLOURS = {"stopped": "red", "copied": "green", "waiting": "yellow"}


def show_status(to: Both, every_ms: int) -> None:
    """Print a line for each topic, and one for each partition that has stopped, or waits for its leader at the source.
    Raises Failure if nothing is mirrored.
    """
    from ...client.mirror.status import topics_of

    before, after = to.target.run(lambda: _look_twice(to, every_ms))
    if not after.positions:
        raise Failure(
            f"the target has no mirror {to.name}, or it has copied nothing yet",
            "fencepost mirror begins it; --name says which one is meant",
            NOT_FOUND,
        )
    found = topics_of(before, after, every_ms / 1000)
    rows = [
        {
            "topic": each.topic,
            "state": each.state,
            "partitions": each.partitions,
            "lag": each.lag,
            "rate": round(each.rate, 1),
            "left_ms": None if each.left_s is None else round(1000 * each.left_s),
            "stopped": {str(partition): why for partition, why in each.stopped.items()},
            "unavailable": {str(partition): why for partition, why in each.unavailable.items()},
        }
        for each in found
    ]
    if to.output.json:
        to.output.object({"mirror": to.name, "tasks": dict(after.tasks), "topics": rows})
        return
    to.output.rows(rows, _COLUMNS)
    for each in found:
        for partition, why in each.stopped.items():
            to.output.line(f"{each.topic}-{partition} has stopped: {why}")
        for partition, why in each.unavailable.items():
            to.output.line(f"{each.topic}-{partition} waits for the source: {why}")
    tasks = ", ".join(f"{name} ({partitions} partitions)" for name, partitions in sorted(after.tasks.items()))
    to.output.remark(f"tasks: {tasks}" if tasks else "no task runs: fencepost mirror starts one")


async def _look_twice(to: Both, every_ms: int) -> "tuple[Look, Look]":
    from ...client.mirror.cutover.looking import Looking
    from ...client.mirror.status import gather

    async with to.admins() as (source, target):
        looking = Looking(source, target, to.name, "")
        before = await gather(looking)
        await asyncio.sleep(every_ms / 1000)
        return before, await gather(looking)


def _state(name: str) -> Cell:
    return Cell(name, _COLOURS.get(name))


_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("STATE", "state", _state),
    number("PARTITIONS", "partitions", count),
    number("LAG", "lag", count),
    number("RATE/S", "rate"),
    number("LEFT", "left_ms", duration),
)
