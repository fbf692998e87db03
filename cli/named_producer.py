"""`fencepost named-producer`: producers that number their records themselves, and how far each has come.

The rule: one row for each partition to which a name has written, with the highest sequence in its log: a record that is
sent again at or below it is a duplicate, as long as the name exists. Kafka has no such producers.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .arguments.connecting import Target, connecting
from .output.failures import NOT_FOUND, Failure
from .output.tables import Column, count, number

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from ..client.admin.values import NamedProducerDescription


@click.group("named-producer")
def named_producer() -> None:
    """Named producers: how far each is in its partitions, remove. Of fencepost brokers only."""


@named_producer.command("list")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only what they have written to these.")
@connecting
def list_names(to: Target, names: Sequence[str], topics: Sequence[str]) -> None:
    """List names, the highest sequence of each in each partition, and who may write under it."""

    async def work(admin: "Admin") -> "dict[str, NamedProducerDescription]":
        return await _described(admin, names)

    rows = [row for name, found in sorted(to.ask(work).items()) for row in _rows(name, found, topics)]
    to.output.rows(rows, _COLUMNS, "no named producers" + (f" of {', '.join(topics)}" if topics else ""))


async def _described(admin: "Admin", names: Sequence[str]) -> "dict[str, NamedProducerDescription]":
    """Return these named producers, or all. Raises Failure for one that does not exist."""
    known = await admin.describe_named_producers()
    for name in names:
        if name not in known:
            raise Failure(f"there is no named producer {name}", "fencepost named-producer list shows all", NOT_FOUND)
    return {name: known[name] for name in names} if names else known


def _rows(name: str, found: "NamedProducerDescription", topics: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each partition of a name; one row without a partition if the name has written nothing."""
    facts = {"name": name, "epoch": found.epoch, "owner": found.owner}
    rows = [
        facts | {"topic": tp.topic, "partition": tp.partition, "highest": highest}
        for tp, highest in sorted(found.highest.items())
        if not topics or tp.topic in topics
    ]
    return rows or ([] if topics else [facts | {"topic": None, "partition": None, "highest": None}])


_COLUMNS = (
    Column("NAME", "name"),
    Column("TOPIC", "topic"),
    number("PARTITION", "partition"),
    number("HIGHEST", "highest", count),
    number("EPOCH", "epoch"),
    Column("OWNER", "owner"),
)


@named_producer.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@connecting
def rm(to: Target, names: Sequence[str]) -> None:
    """Remove names. Their records stay; the broker forgets their sequences, so a record sent again is written twice."""

    async def work(admin: "Admin") -> None:
        """Check that the names exist, and remove them."""
        await _described(admin, names)
        await admin.remove_named_producers(list(dict.fromkeys(names)))

    to.ask(work)
    for name in dict.fromkeys(names):
        to.output.result(f"{name} removed", {"name": name, "removed": True})
