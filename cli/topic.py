"""`fencepost topic`: topics of any Kafka cluster, their partitions, offsets and settings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..effects.counts import count_text
from .arguments.altering import alter_settings, changes_of, settings_of
from .arguments.connecting import Target, connecting, pairs, partition_of
from .arguments.places import PLACE, Places, resolve
from .arguments.ranges import PARTITIONS
from .output.failures import NOT_FOUND, WRONG_USAGE, Failure
from .output.tables import Column, count, now_ms, number, when
from .output.writing import Cell

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from ..client.admin.values import ConfigEntry, TopicDescription


@click.group()
def topic() -> None:
    """Topics: list, describe, create, change, trim and delete."""


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also internal topics.")
@connecting
def list_topics(to: Target, internal: bool) -> None:
    """List all topics."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        found = await admin.describe_topics()
        return [_summary(each) for each in found.values() if internal or not each.is_internal]

    columns = (Column("TOPIC", "topic"), number("PARTITIONS", "partitions"), number("REPLICAS", "replicas"))
    to.output.rows(to.ask(work), columns, "no topics; fencepost topic create NAME creates one")


def _summary(found: "TopicDescription") -> dict[str, Any]:
    """Return a topic as a row of the list, a JSON object."""
    replicas = len(found.partitions[0].replicas) if found.partitions else 0
    return {
        "topic": found.name,
        "partitions": len(found.partitions),
        "replicas": replicas,
        "internal": found.is_internal,
    }


@topic.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-p", "--partitions", type=PARTITIONS, default=None, help="[default: the broker's num.partitions]")
@click.option("-r", "--replicas", type=click.IntRange(1, 32_767), default=None, help="[default: the broker's]")
@settings_of("topic")
@click.option("--if-not-exists", is_flag=True, help="Leave an existing topic unchanged, without an error.")
@click.option("--dry-run", is_flag=True, help="Let the broker only validate it.")
@connecting
def create(
    to: Target,
    names: Sequence[str],
    partitions: int | None,
    replicas: int | None,
    configs: Sequence[str],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    settings = dict(pairs(configs, "-c"))

    async def work(admin: "Admin") -> list[str]:
        """Create the topics, with --if-not-exists only those that do not exist, and return their names."""
        from ..client.admin.values import NewTopic

        existing = set(await admin.list_topics(internal=True)) if if_not_exists else set()
        new = [NewTopic(each, partitions or -1, replicas or -1, settings) for each in names if each not in existing]
        if new:
            await admin.create_topics(new, validate_only=dry_run)
        return [each.name for each in new]

    made = to.ask(work)
    for name in names:
        word = "would be created" if dry_run else "created" if name in made else "exists already"
        to.output.result(f"{name} {word}", {"topic": name, "created": name in made and not dry_run})


@topic.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-a", "--all-configs", is_flag=True, help="Also show settings of the broker and defaults.")
@connecting
def describe(to: Target, names: Sequence[str], all_configs: bool) -> None:
    """Show partitions, offsets and settings.

    START is the first offset, OLDEST the timestamp of the first record, and HW the high watermark. Readers with
    read_committed read up to LSO, the last stable offset: it is below HW while a transaction is open. OPEN is the
    difference of HW and LSO.
    """

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Return the facts and settings of each topic."""
        found = await admin.describe_topics(names)
        configs = await admin.describe_configs(topics=names)
        return [await _facts(admin, found[each], configs.get(each, [])) for each in dict.fromkeys(names)]

    for i, facts in enumerate(to.ask(work)):
        _show(to, facts, all_configs, first=i == 0)


async def _facts(admin: "Admin", found: "TopicDescription", configs: "list[ConfigEntry]") -> dict[str, Any]:
    """Return everything that `topic describe` shows of the topic."""
    from ..client.admin.offsets import EARLIEST, LATEST

    starts, ends = await admin.ends(found.led, EARLIEST), await admin.ends(found.led, LATEST)
    stable = await admin.ends(found.led, LATEST, "read_committed")
    first = await admin.list_offsets(dict.fromkeys(found.led, 0))
    rows = []
    for tp, each in zip(found.topic_partitions, found.partitions, strict=True):
        row = {"partition": each.partition, "leader": each.leader, "replicas": each.replicas, "isr": each.isr}
        if tp in ends:
            row |= {"start": starts[tp], "lso": stable[tp], "hw": ends[tp], "open": ends[tp] - stable[tp]}
            row["oldest_ms"] = first[tp].timestamp_ms if first[tp].offset >= 0 else None
        rows.append(row)
    return {
        **_summary(found),
        "topic_id": found.topic_id.hex(),
        "offsets": rows,
        "configs": {each.name: {"value": each.value, "source": each.source} for each in configs},
    }


def _show(to: Target, facts: dict[str, Any], all_configs: bool, *, first: bool) -> None:
    """Print the topic's facts as tables, or as one JSON object."""
    if to.output.json:
        to.output.object(facts)
        return
    if not first:
        to.output.line()
    replicas = count_text(facts["replicas"], "replica")
    to.output.heading(f"{facts['topic']}: {count_text(facts['partitions'], 'partition')}, {replicas}")
    to.output.rows(facts["offsets"], _OFFSETS)
    shown = [
        {"name": name, **each} for name, each in facts["configs"].items() if all_configs or each["source"] == "topic"
    ]
    if shown:
        to.output.line()
        to.output.rows(shown, (Column("SETTING", "name"), Column("VALUE", "value"), Column("FROM", "source")))


def _leader(node: int) -> str | Cell:
    return str(node) if node >= 0 else Cell("none", "red")


def _open(records: int | None) -> str | Cell:
    return Cell(count(records), "yellow") if records else count(records)


_OFFSETS = (
    number("PARTITION", "partition"),
    number("LEADER", "leader", _leader),
    Column("REPLICAS", "replicas"),
    Column("ISR", "isr"),
    number("START", "start"),
    number("LSO", "lso"),
    number("HW", "hw"),
    number("OPEN", "open", _open),
    Column("OLDEST", "oldest_ms", when),
)


@topic.command()
@click.argument("name", metavar="TOPIC")
@changes_of("topic")
@connecting
def alter(to: Target, name: str, configs: Sequence[str], deleted: Sequence[str], dry_run: bool) -> None:
    """Change settings; all others keep their values."""
    alter_settings(to, "topic", name, configs, deleted, dry_run)


@topic.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="No error if the topic does not exist.")
@connecting
def delete(to: Target, names: Sequence[str], if_exists: bool) -> None:
    """Delete topics and all their records."""

    async def work(admin: "Admin") -> list[str]:
        """Delete the topics, with --if-exists only those that exist, and return their names."""
        existing = set(await admin.list_topics(internal=True)) if if_exists else set(names)
        deleted = [each for each in names if each in existing]
        if deleted:
            await admin.delete_topics(deleted)
        return deleted

    deleted = to.ask(work)
    for name in names:
        word = "deleted" if name in deleted else "does not exist"
        to.output.result(f"{name} {word}", {"topic": name, "deleted": name in deleted})


@topic.command()
@click.argument("where", metavar="TOPIC[:PARTITION]")
@click.option("--before", "before", type=PLACE, required=True, metavar="PLACE", help="end, an offset, @-7d, 0:42,1:end")
@connecting
def trim(to: Target, where: str, before: Places) -> None:
    """Delete the records before a position: an offset, a time, or the end."""
    name, partition = partition_of(where)

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Delete the records before the given position in the topic's partitions. Returns the changes. Raises
        Failure if there is no such partition.
        """
        found = (await admin.describe_topics(name))[name].topic_partitions
        wanted = [each for each in found if partition in (None, each.partition)]
        if not wanted:
            raise Failure(
                f"topic {name} has no partition {partition}", "fencepost topic describe shows them", NOT_FOUND
            )
        offsets = await resolve(admin, wanted, before, now_ms())
        starts = await admin.delete_records(offsets)
        return [{"topic": each.topic, "partition": each.partition, "start": at} for each, at in sorted(starts.items())]

    columns = (Column("TOPIC", "topic"), number("PARTITION", "partition"), number("START", "start"))
    to.output.rows(to.ask(work), columns)


@topic.command("add-partitions")
@click.argument("name", metavar="TOPIC")
@click.option("-n", "--num", "more", type=PARTITIONS, default=None, help="Add N partitions.")
@click.option("--to", "total", type=PARTITIONS, default=None, help="Add partitions until there are N.")
@connecting
def add_partitions(to: Target, name: str, more: int | None, total: int | None) -> None:
    """Add partitions to a topic. New records of a key may go to another partition."""
    if (more is None) == (total is None):
        raise Failure(
            "exactly one of --num and --to is required",
            "--num N adds N partitions, --to N adds partitions until there are N",
            WRONG_USAGE,
        )

    async def work(admin: "Admin") -> int:
        """Set the topic's number of partitions, and return it."""
        existing = len((await admin.describe_topics(name))[name].partitions)
        wanted = total if total is not None else existing + (more or 0)
        await admin.create_partitions({name: wanted})
        return wanted

    partitions = to.ask(work)
    to.output.result(f"{name} has {count_text(partitions, 'partition')}", {"topic": name, "partitions": partitions})
