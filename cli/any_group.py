"""What the commands of consumer groups and of share groups have in common: what they ask, and how they show it."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .arguments.connecting import Target, partition_of
from .arguments.places import Places, resolve
from .output.failures import NOT_FOUND, Failure
from .output.tables import Column, Form, count, now_ms, number
from .output.writing import Cell

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from ..client.values import TopicPartition


class Move(NamedTuple):
    """Where a group is to go on. topics: TOPIC or TOPIC:PARTITION; if there are none, all in which it has an offset.
    none: the message if it has an offset nowhere.
    """

    topics: Sequence[str]
    place: Places
    dry_run: bool
    none: str


_MOVED = (
    Column("TOPIC", "topic"),
    number("PARTITION", "partition"),
    number("BEFORE", "before"),
    number("AFTER", "after"),
)


def state(name: str | None) -> str | Cell:
    """Return a group's state as text, coloured for the terminal."""
    colours = {"Stable": "green", "Dead": "red"}
    moving = {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
    return Cell(name or "-", "yellow" if name in moving else colours.get(name or ""))


def lag_form(colour: str) -> Form:
    """Return a function that formats a lag as text, coloured if it is not 0."""

    def form(value: int | None) -> str | Cell:
        return Cell(count(value), colour) if value else count(value)

    return form


async def own_configs(admin: "Admin", name: str) -> dict[str, str | None]:
    """Return the settings that are set for this group itself; none if the broker has no such settings or does not
    show them.
    """
    from ..client.errors import KafkaError

    try:
        found = (await admin.describe_configs(groups=name)).get(name, [])
    except KafkaError:
        return {}
    return {each.name: each.value for each in found if each.source == "group"}


def describe_each(
    to: Target,
    names: Sequence[str],
    facts_of: "Callable[[Admin, str], Awaitable[dict[str, Any]]]",
    show: Callable[[dict[str, Any]], None],
) -> None:
    """Show each group once: as one JSON object, or by `show`, with an empty line between two."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        return [await facts_of(admin, each) for each in dict.fromkeys(names)]

    for i, facts in enumerate(to.ask(work)):
        if to.output.json:
            to.output.object(facts)
            continue
        if i:
            to.output.line()
        show(facts)


def move_offsets(
    to: Target,
    move: Move,
    read: "Callable[[Admin], Awaitable[dict[TopicPartition, int]]]",
    write: "Callable[[Admin, dict[TopicPartition, int]], Coroutine[Any, Any, None]]",
) -> None:
    """Set a group's offsets, unless dry_run, and print the old and the new one of each partition. read, write: return
    and set its offsets.
    """
    wanted = [partition_of(each) for each in move.topics]

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        before = await read(admin)
        partitions = await _partitions_named(admin, wanted) if wanted else sorted(before)
        if not partitions:
            raise Failure(move.none, "give its topics with -t TOPIC", NOT_FOUND)
        after = await resolve(admin, partitions, move.place, now_ms())
        if not move.dry_run:
            await write(admin, after)
        return [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "before": before.get(tp),
                "after": at,
                "moved": not move.dry_run,
            }
            for tp, at in sorted(after.items())
        ]

    to.output.rows(to.ask(work), _MOVED)
    if move.dry_run:
        to.output.remark("nothing was changed")


async def _partitions_named(admin: "Admin", wanted: Sequence[tuple[str, int | None]]) -> "list[TopicPartition]":
    """Return the partitions that are named as TOPIC or TOPIC:PARTITION, sorted. Raises UnknownTopicError."""
    found = await admin.describe_topics(dict.fromkeys(topic for topic, _ in wanted))
    return sorted(
        {tp for topic, partition in wanted for tp in found[topic].topic_partitions if partition in (None, tp.partition)}
    )
