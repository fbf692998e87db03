"""`fencepost spark list|abort|reset`: lists the sinks of Spark queries, aborts their transactions, resets them."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...effects.counts import count_text
from ..arguments.connecting import Target, connecting
from ..output.failures import CONFLICT, NOT_FOUND, Failure
from ..output.tables import Column, duration, number, when
from ..output.writing import Cell

if TYPE_CHECKING:
    from ...client.net.cluster import Cluster

T = TypeVar("T")

_NO_LEDGER = (
    "on Apache Kafka the sink delivers at least once and keeps nothing at the broker: there is nothing to list or reset"
)
_KNOWN = "fencepost spark list --all shows every sink"


def _run(to: Target, work: "Callable[[Cluster], Coroutine[Any, Any, T]]") -> T:
    """Run `work` with the cluster, within --timeout, and return its result."""
    from ...client.config_names import settings_from
    from ...client.errors import UnsupportedVersionError
    from ...client.net.cluster import Cluster
    from ...client.settings import AdminSettings

    async def with_cluster() -> T:
        """Return the result of `work` on a connected cluster. Raises Failure if the broker has no ledger of sinks."""
        cluster = Cluster(settings_from(AdminSettings, to.config()))
        try:
            await cluster.start()
            return await work(cluster)
        except UnsupportedVersionError as error:
            raise Failure(f"there is no ledger of sinks here: {error}", _NO_LEDGER) from None
        finally:
            await cluster.close()

    return to.run(with_cluster, within_ms=to.timeout_ms)


def facts_of(found: Any) -> dict[str, Any]:
    """Return a ledger key as a JSON object. batch: the last one that was decided; None before the first decision."""
    entry = found.entry
    left = [each.timeout_ms - each.waits_for_ms for each in found.waiting if each.timeout_ms > 0]
    return {
        "sink": found.key,
        "batch": None if entry is None else entry.number,
        "query": None if entry is None else entry.owner,
        "committed": None if entry is None else bool(entry.committed),
        "decided_ms": None if entry is None else entry.decided_ms,
        "waiting": len(found.waiting),
        "waiting_for_batches": sorted({each.number for each in found.waiting}),
        "waits_for_ms": max((each.waits_for_ms for each in found.waiting), default=None),
        "left_ms": min(left, default=None),
    }


async def _one(cluster: "Cluster", sink: str, timeout_ms: int) -> Any:
    """Return the ledger's description of the sink. Raises Failure if there is none."""
    from ...spark.sink import ledger

    (found,) = await ledger.describe_entries(cluster, sink, timeout_ms=timeout_ms)
    if found.entry is None and not found.waiting:
        raise Failure(f"there is no sink {sink}", _KNOWN, NOT_FOUND)
    return found


@click.command("list")
@click.option(
    "--all", "everything", is_flag=True, help="Also show batch writes without a sinkId, and claims of foreachBatch."
)
@connecting
def list_sinks(to: Target, everything: bool) -> None:
    """List each sink: its last batch, its query, and its prepared transactions."""
    from ...spark.sink import ledger
    from ...spark.sink.protocol import CLAIMS, UNNAMED

    async def work(cluster: "Cluster") -> list[dict[str, Any]]:
        """Return the sinks in the ledger as JSON objects, sorted by key. Unless `everything`, batch writes without a
        sinkId and claims of foreachBatch are left out.
        """
        keys = await ledger.describe_entries(cluster, timeout_ms=to.timeout_ms)
        return [
            facts_of(each)
            for each in sorted(keys, key=lambda each: str(each.key))
            if everything or each.waiting or not (each.key.startswith(UNNAMED) or each.key.endswith(CLAIMS))
        ]

    to.output.rows(_run(to, work), _COLUMNS, "no sinks")


def _waiting(ms: int | None) -> str | Cell:
    return "-" if ms is None else Cell(duration(ms), "yellow")


_COLUMNS = (
    Column("SINK", "sink"),
    number("BATCH", "batch"),
    Column("QUERY", "query"),
    Column("DECIDED", "decided_ms", when),
    number("WAITING", "waiting"),
    number("FOR", "waits_for_ms", _waiting),
    number("TIME-LEFT", "left_ms", _waiting),
)


@click.command()
@click.argument("sink", metavar="SINK")
@connecting
def abort(to: Target, sink: str) -> None:
    """Abort the prepared and open transactions of a sink, so that readers continue.

    A running query writes its batch again.
    """
    from ...spark.sink import ledger
    from ...spark.sink.left_open import open_steps
    from ...spark.sink.protocol import Written

    async def work(cluster: "Cluster") -> dict[str, Any]:
        """Abort the sink's prepared and open transactions. Returns the sink as a JSON object, with the ids of the
        transactions that were aborted. Raises Failure if there is no such sink.
        """
        (found,) = await ledger.describe_entries(cluster, sink, timeout_ms=to.timeout_ms)
        waiting = [Written(each.transactional_id, each.producer_id, each.producer_epoch) for each in found.waiting]
        prefix = (await ledger.facts(cluster)).prefix
        steps = open_steps(prefix, sink, lambda number, attempt: True)
        named = await ledger.carry_out(cluster, sink, steps, timeout_ms=to.timeout_ms)
        if found.entry is None and not waiting and not named:
            raise Failure(f"there is no sink {sink}", _KNOWN, NOT_FOUND)
        ended = await ledger.abort(cluster, waiting, timeout_ms=to.timeout_ms)
        unprepared = await ledger.abort(
            cluster, [each for each in named if each not in waiting], timeout_ms=to.timeout_ms
        )
        return {
            **facts_of(found),
            "aborted": [each.transactional_id for each in ended],
            "aborted_open": [each.transactional_id for each in unprepared],
        }

    row = _run(to, work)
    text = f"aborted {count_text(len(row['aborted']), 'transaction')} that waited for sink {sink}"
    if row["aborted_open"]:
        text += f", and {len(row['aborted_open'])} that its tasks had open"
    to.output.result(text, row)


@click.command()
@click.argument("sink", metavar="SINK")
@connecting
def reset(to: Target, sink: str) -> None:
    """Delete a sink's ledger entry: the next query that writes to it owns it.

    Stop the old query for good first: it could write its last batch again.
    """
    from ...spark.sink import ledger
    from ...spark.sink.protocol import CLAIMS

    async def work(cluster: "Cluster") -> dict[str, Any]:
        """Remove the sink's decisions from the ledger, and return what it was before. Raises Failure while
        transactions wait for a decision.
        """
        found = await _one(cluster, sink, to.timeout_ms)
        if found.waiting:
            waiting = count_text(len(found.waiting), "transaction")
            hint = f"stop its query, then run fencepost spark abort {sink}"
            raise Failure(f"{waiting} of sink {sink} wait for a decision", hint, CONFLICT)
        await ledger.forget(cluster, sink, sink + CLAIMS, timeout_ms=to.timeout_ms)
        return {**facts_of(found), "reset": True}

    row = _run(to, work)
    to.output.result(f"sink {sink} is reset: it was at batch {row['batch']} of query {row['query'] or '-'}", row)
