"""`fencepost group`: consumer groups, their lag, and what blocks them.

The rule: lag is shown twice. Up to the last stable offset: what a read_committed member can read now. Up to the high
watermark: with what open transactions hold back. Both count markers and aborted records.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .any_group import Move, describe_each, lag_form, move_offsets, own_configs, state
from .arguments.altering import alter_settings, changes_of
from .arguments.connecting import Target, connecting
from .arguments.places import PLACE, Places
from .output.failures import NOT_FOUND, Failure
from .output.tables import Column, now_ms, number

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from ..client.admin.values import GroupDescription, GroupListing
    from ..client.values import TopicPartition

TYPES = ("classic", "consumer")
_NO_GROUP = "fencepost group list shows all groups"


@click.group()
def group() -> None:
    """Consumer groups: list, show lag, set offsets, change settings, delete."""


@group.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Stable, Empty, …; Kafka 2.6 or newer.")
@click.option("--type", "types", multiple=True, type=click.Choice(TYPES), help="consumer: the broker assigns.")
@connecting
def list_groups(to: Target, states: Sequence[str], types: Sequence[str]) -> None:
    """All groups."""

    async def work(admin: "Admin") -> "list[GroupListing]":
        return await admin.list_groups(states, types)

    rows = [
        {"group": each.group_id, "state": each.state, "protocol": each.protocol_type, "type": each.group_type}
        for each in to.ask(work)
    ]
    columns = (
        Column("GROUP", "group"),
        Column("STATE", "state", state),
        Column("TYPE", "type"),
        Column("PROTOCOL", "protocol"),
    )
    to.output.rows(rows, columns, "no groups")


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("-m", "--members", is_flag=True, help="Also show its members.")
@connecting
def describe(to: Target, names: Sequence[str], members: bool) -> None:
    """Show a group's lag to the LSO (how far it can read) and to the HW (end of the log), and why they differ."""

    describe_each(to, names, _facts, lambda facts: _show(to, facts, members))


async def _facts(admin: "Admin", name: str) -> dict[str, Any]:
    """Return everything that `group describe` shows of the group. Raises Failure if there is no such group."""
    from .txn.blocking import blocked_facts, leaderless_facts
    from .txn.facts import blockers_or_empty, held_or_empty
    from .txn.held import held_facts
    from .txn.windows import full_windows

    known = (await admin.describe_groups(name)).get(name)
    committed = await admin.list_group_offsets(name)
    # A group of another kind, such as a share group, is listed, and perhaps has offsets, but has another description.
    listed = None if known else next((each for each in await admin.list_groups() if each.group_id == name), None)
    if known is None and listed is None and not committed:
        raise Failure(f"there is no group {name}", _NO_GROUP, NOT_FOUND)
    owners = {tp: each for each in (known.members if known else ()) for tp in each.assignment}
    partitions = sorted({*committed, *owners})
    topics = (await admin.describe_topics()).values()
    there = {tp for each in topics for tp in each.topic_partitions}
    led = {tp for each in topics for tp in each.led}
    rows = await _lags(admin, partitions, led, {tp: at.offset for tp, at in committed.items()})
    for row, tp in zip(rows, partitions, strict=True):
        owner = owners.get(tp)
        row["member"] = owner.client_id if owner else None
        row["host"] = owner.client_host if owner else None
    blocked = [tp for tp, row in zip(partitions, rows, strict=True) if (row["lag_hw"] or 0) > (row["lag_lso"] or 0)]
    blockers = await blockers_or_empty(admin, blocked)
    return {
        "group": name,
        "state": known.state if known else listed.state if listed else "",
        "type": known.group_type if known else listed.group_type if listed else "",
        "epoch": known.epoch if known and known.epoch >= 0 else None,
        "assignor": known.protocol if known else "",
        "coordinator": known.coordinator if known else None,
        "members": _members(known),
        "partitions": rows,
        "lag_lso": sum(row["lag_lso"] or 0 for row in rows),
        "lag_hw": sum(row["lag_hw"] or 0 for row in rows),
        "configs": await own_configs(admin, name),
        "leaderless": [leaderless_facts(tp) for tp in partitions if tp in there and tp not in led],
        "blocked": [blocked_facts(each, now_ms()) for each in blockers],
        "held": [held_facts(each, now_ms()) for each in await held_or_empty(admin, name)],
        "full_windows": await full_windows(admin, [name], all_full=True)
        if listed and listed.group_type == "share"
        else [],
    }


def _members(known: "GroupDescription | None") -> list[dict[str, Any]]:
    """Return the group's members as JSON objects."""
    return [
        {
            "member_id": each.member_id,
            "instance_id": each.group_instance_id,
            "client_id": each.client_id,
            "host": each.client_host,
            "partitions": [str(tp) for tp in each.assignment],
            "epoch": each.epoch if each.epoch >= 0 else None,
            "waits_for": [str(tp) for tp in each.target if tp not in each.assignment],
        }
        for each in (known.members if known else ())
    ]


async def _lags(
    admin: "Admin",
    partitions: "Sequence[TopicPartition]",
    led: "set[TopicPartition]",
    committed: "dict[TopicPartition, int]",
) -> list[dict[str, Any]]:
    """Return position and lag of each partition as JSON objects. led: the partitions that have a leader."""
    from ..client.admin.offsets import EARLIEST, LATEST

    there = [tp for tp in partitions if tp in led]
    starts, ends = await admin.ends(there, EARLIEST), await admin.ends(there, LATEST)
    stable = await admin.ends(there, LATEST, "read_committed")
    rows: list[dict[str, Any]] = []
    for tp in partitions:
        row: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition, "committed": committed.get(tp)}
        row |= {"lso": stable.get(tp), "hw": ends.get(tp), "lag_lso": None, "lag_hw": None}
        if tp in ends:
            at = max(committed.get(tp, starts[tp]), starts[tp])
            row |= {"lag_lso": max(0, stable[tp] - at), "lag_hw": max(0, ends[tp] - at)}
        rows.append(row)
    return rows


def _show(to: Target, facts: dict[str, Any], members: bool) -> None:
    """Print the group's facts as tables, or as one JSON object."""
    from ..effects.counts import count_text
    from .txn.held import cause_sentence

    members_text = count_text(len(facts["members"]), "member")
    if facts["type"] not in ("", *TYPES):  # its members are described by an API of its own
        members_text = f"of the {facts['type']} protocol"
    epoch = f"epoch {facts['epoch']}" if facts["epoch"] is not None else ""
    parts = [facts["state"] or "offsets only", facts["assignor"], epoch, members_text]
    to.output.heading(f"{facts['group']}: {', '.join(each for each in parts if each)}")
    to.output.rows(facts["partitions"], _COLUMNS, _NO_OFFSETS.get(facts["type"], "nothing committed, nothing assigned"))
    if len(facts["partitions"]) > 1:
        to.output.line(f"in all: {facts['lag_lso']:,} to the LSO, {facts['lag_hw']:,} to the HW")
    for each in (*facts["leaderless"], *facts["blocked"], *facts["held"], *facts["full_windows"]):
        to.output.line(cause_sentence(each))
    for setting, value in facts["configs"].items():
        to.output.line(f"{setting}={value}")
    if members and facts["members"]:
        to.output.line()
        to.output.rows(facts["members"], _MEMBERS if facts["epoch"] is None else _NEWER_MEMBERS)


_NO_OFFSETS = {
    "share": "it commits no offsets: fencepost share-group describe -m shows where it stands, and its members"
}
_COLUMNS = (
    Column("TOPIC", "topic"),
    number("PARTITION", "partition"),
    number("COMMITTED", "committed"),
    number("LSO", "lso"),
    number("HW", "hw"),
    number("LAG-LSO", "lag_lso", lag_form("cyan")),
    number("LAG-HW", "lag_hw", lag_form("yellow")),
    Column("MEMBER", "member"),
    Column("HOST", "host"),
)
_MEMBERS = (
    Column("MEMBER", "member_id"),
    Column("INSTANCE", "instance_id"),
    Column("CLIENT", "client_id"),
    Column("HOST", "host"),
    Column("PARTITIONS", "partitions"),
)
_NEWER_MEMBERS = (*_MEMBERS, number("EPOCH", "epoch"), Column("WAITS-FOR", "waits_for"))


@group.command()
@click.argument("name", metavar="GROUP")
@click.option(
    "-t", "--topic", "topics", multiple=True, metavar="TOPIC[:PARTITION]", help="[default: all with committed offsets]"
)
@click.option(
    "--to", "place", type=PLACE, required=True, metavar="PLACE", help="start, end, an offset, @-5m, 0:42,1:end"
)
@click.option("--dry-run", is_flag=True, help="Only show the new offsets.")
@connecting
def seek(to: Target, name: str, topics: Sequence[str], place: Places, dry_run: bool) -> None:
    """Set the committed offsets of a group without members; a group that does not exist is created."""

    async def committed(admin: "Admin") -> "dict[TopicPartition, int]":
        return {tp: at.offset for tp, at in (await admin.list_group_offsets(name)).items()}

    move_offsets(
        to,
        Move(topics, place, dry_run, none=f"group {name} has no committed offsets"),
        committed,
        lambda admin, offsets: admin.alter_group_offsets(name, offsets),
    )


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@connecting
def delete(to: Target, names: Sequence[str]) -> None:
    """Delete groups without members, and their committed offsets."""

    async def work(admin: "Admin") -> None:
        """Delete the groups."""
        await admin.delete_groups(list(dict.fromkeys(names)))

    to.ask(work)
    for each in dict.fromkeys(names):
        to.output.result(f"{each} deleted", {"group": each, "deleted": True})


@group.command()
@click.argument("name", metavar="GROUP")
@changes_of("group")
@connecting
def alter(to: Target, name: str, configs: Sequence[str], deleted: Sequence[str], dry_run: bool) -> None:
    """Change settings of a group whose broker assigns; it need not exist.

    consumer.session.timeout.ms, consumer.heartbeat.interval.ms, consumer.assignment.interval.ms; of a share group
    share.auto.offset.reset, share.record.lock.duration.ms and more: docs/settings.md
    """
    alter_settings(to, "group", name, configs, deleted, dry_run)
