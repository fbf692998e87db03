"""`fencepost share-group`: groups whose members receive partitions record by record (KIP-932), and their positions.

The rule: a share group has no committed offsets. All records before its start offset in a partition are done; the lag
counts those that are not done from there to the end of the log.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from .any_group import Move, describe_each, lag_form, move_offsets, own_configs, state
from .arguments.connecting import Target, connecting
from .arguments.places import PLACE, Places
from .output.failures import NOT_FOUND, Failure
from .output.tables import Column, number
from .output.writing import Cell

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from ..client.admin.values import GroupDescription, GroupListing, SharePartitionOffsets
    from ..client.values import TopicPartition

SHARE = "share"


@click.group("share-group")
def share_group() -> None:
    """Share groups (queues): list, show lag, set where they begin, delete."""


@share_group.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Stable or Empty.")
@connecting
def list_groups(to: Target, states: Sequence[str]) -> None:
    """List all share groups."""

    async def work(admin: "Admin") -> "list[GroupListing]":
        return await admin.list_groups(states, [SHARE])

    rows = [{"group": each.group_id, "state": each.state} for each in to.ask(work)]
    to.output.rows(rows, (Column("GROUP", "group"), Column("STATE", "state", state)), "no share groups")


@share_group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("-m", "--members", is_flag=True, help="Also show its members.")
@connecting
def describe(to: Target, names: Sequence[str], members: bool) -> None:
    """Show where a share group stands in each partition, and how much is not done."""

    describe_each(to, names, _facts, lambda facts: _show(to, facts, members))


async def _facts(admin: "Admin", name: str) -> dict[str, Any]:
    """Return everything that `share-group describe` shows of the group."""
    from ..client.admin.offsets import LATEST
    from .txn.windows import full_windows, lacks_memory

    known = await _known(admin, name)
    offsets = await admin.list_share_group_offsets(name)
    partitions = sorted({*offsets, *(tp for each in known.members for tp in each.assignment)})
    led = {tp for each in (await admin.describe_topics()).values() for tp in each.led}
    ends = await admin.ends([tp for tp in partitions if tp in led], LATEST, skip_missing=True)
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "start": offsets[tp].start_offset if tp in offsets else None,
            "hw": ends.get(tp),
            "lag": offsets[tp].lag if tp in offsets else None,
            **_window(offsets.get(tp)),
            "members": sum(tp in each.assignment for each in known.members),
        }
        for tp in partitions
    ]
    return {
        "group": name,
        "state": known.state,
        "type": known.group_type,
        "epoch": known.epoch,
        "assignor": known.protocol,
        "coordinator": known.coordinator,
        "members": _members(known),
        "partitions": rows,
        "lag": sum(offset.lag or 0 for offset in offsets.values()),
        "pending": _pending(offsets),
        "full_windows": await full_windows(admin, [name], all_full=True),
        "lacks_memory": lacks_memory({name: offsets}),
        "configs": await own_configs(admin, name),
    }


def _window(offsets: "SharePartitionOffsets | None") -> dict[str, int | None]:
    """Return how many records are in the window, from the start offset to the last delivered one, and its limit."""
    window = offsets.window if offsets is not None else None
    return {"window": window.size if window else None, "window_limit": window.limit if window else None}


def _window_text(row: Mapping[str, Any]) -> str | Cell:
    """Return a window's size and limit as text, coloured when it is full."""
    if row["window"] is None:
        return "-"
    text = f"{row['window']:,} of {row['window_limit']:,}"
    return Cell(text, "yellow") if row["window"] >= row["window_limit"] else text


def _pending(offsets: "Mapping[TopicPartition, SharePartitionOffsets]") -> list[dict[str, Any]]:
    """Return, for each partition with records that were acknowledged in open transactions, how many these are and
    which transactions.
    """
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "pending": one.window.pending_count,
            "transactions": list(
                dict.fromkeys(each.transactional_id or f"of producer {each.producer_id}" for each in one.window.pending)
            ),
        }
        for tp, one in sorted(offsets.items())
        if one.window is not None and one.window.pending_count
    ]


def _pending_sentence(facts: Mapping[str, Any]) -> str:
    """Return the facts of _pending() about one partition in one sentence."""
    from ..effects.counts import count_text, list_text

    verb = "is" if facts["pending"] == 1 else "are"
    return (
        f"{count_text(facts['pending'], 'record')} of {facts['topic']}-{facts['partition']} {verb} acknowledged in open"
        f" transactions: {list_text(facts['transactions'], 'transaction')}"
    )


async def _known(admin: "Admin", name: str) -> "GroupDescription":
    """Return the description of the share group. Raises Failure if there is none."""
    found = (await admin.describe_share_groups(name)).get(name)
    if found is None:
        raise Failure(f"there is no share group {name}", "fencepost share-group list shows all share groups", NOT_FOUND)
    return found


def _members(known: "GroupDescription") -> list[dict[str, Any]]:
    """Return the share group's members as JSON objects."""
    return [
        {
            "member_id": each.member_id,
            "client_id": each.client_id,
            "host": each.client_host,
            "epoch": each.epoch,
            "partitions": [str(tp) for tp in each.assignment],
        }
        for each in known.members
    ]


def _show(to: Target, facts: dict[str, Any], members: bool) -> None:
    """Print a share group: its state, partitions, and what fills a window; with `members`, its members too."""
    from ..effects.counts import count_text
    from .txn.windows import memory_sentence, window_sentence

    parts = [facts["state"], f"epoch {facts['epoch']}", count_text(len(facts["members"]), "member")]
    to.output.heading(f"{facts['group']}: {', '.join(parts)}")
    rows = [{**row, "in_window": row} for row in facts["partitions"]]
    to.output.rows(rows, _COLUMNS, "it has no offsets: nobody has read with it")
    if len(facts["partitions"]) > 1:
        to.output.line(f"in all: {facts['lag']:,} not done")
    for each in facts["pending"]:
        to.output.line(_pending_sentence(each))
    for each in facts["full_windows"]:
        to.output.line(window_sentence(each))
    for each in facts["lacks_memory"]:
        to.output.line(memory_sentence(each))
    for setting, value in facts["configs"].items():
        to.output.line(f"{setting}={value}")
    if members and facts["members"]:
        to.output.line()
        to.output.rows(facts["members"], _MEMBERS)


_COLUMNS = (
    Column("TOPIC", "topic"),
    number("PARTITION", "partition"),
    number("START", "start"),
    number("HW", "hw"),
    number("LAG", "lag", lag_form("cyan")),
    number("WINDOW", "in_window", _window_text),
    number("MEMBERS", "members"),
)
_MEMBERS = (
    Column("MEMBER", "member_id"),
    Column("CLIENT", "client_id"),
    Column("HOST", "host"),
    number("EPOCH", "epoch"),
    Column("PARTITIONS", "partitions"),
)


@share_group.command()
@click.argument("name", metavar="GROUP")
@click.option(
    "-t", "--topic", "topics", multiple=True, metavar="TOPIC[:PARTITION]", help="[default: all that it has read]"
)
@click.option(
    "--to", "place", type=PLACE, required=True, metavar="PLACE", help="start, end, an offset, @-5m, 0:42,1:end"
)
@click.option("--dry-run", is_flag=True, help="Only show the new offsets.")
@connecting
def reset(to: Target, name: str, topics: Sequence[str], place: Places, dry_run: bool) -> None:
    """Set the start offsets of a share group without members; a group that does not exist is created."""

    async def starts(admin: "Admin") -> "dict[TopicPartition, int]":
        return {tp: at.start_offset for tp, at in (await admin.list_share_group_offsets(name)).items()}

    move_offsets(
        to,
        Move(topics, place, dry_run, none=f"share group {name} has read nothing"),
        starts,
        lambda admin, offsets: admin.alter_share_group_offsets(name, offsets),
    )


@share_group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only forget where it stands in these.")
@connecting
def delete(to: Target, names: Sequence[str], topics: Sequence[str]) -> None:
    """Delete share groups without members, or only where they stand in some topics."""

    async def work(admin: "Admin") -> None:
        """Delete the groups, or, with topics, their offsets in these."""
        for each in dict.fromkeys(names):
            await _known(admin, each)
            if topics:
                await admin.delete_share_group_offsets(each, dict.fromkeys(topics))
            else:
                await admin.delete_groups(each)

    to.ask(work)
    of_topics = f" in {', '.join(topics)}" if topics else ""
    for each in dict.fromkeys(names):
        to.output.result(f"{each} deleted{of_topics}", {"group": each, "topics": list(topics), "deleted": True})
