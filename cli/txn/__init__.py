"""`fencepost txn`: open transactions and which readers they block; aborts hanging ones, and ends those that wait for
a database.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..arguments.connecting import Target, connecting, partition_of, partitions_of
from ..arguments.ranges import DURATION
from ..output.failures import CONFLICT, NOT_FOUND, WRONG_USAGE, Failure
from ..output.tables import Column, duration, now_ms, number, when
from ..output.writing import Cell
from .blocking import blocked_facts, leaderless_facts
from .facts import (
    age,
    facts_of,
    open_now,
    owner_text,
    owners_or_empty,
    prepared_or_empty,
    refuse_held,
    state,
    wait_text,
)

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.values import HeldOffsets
    from ...client.values import TopicPartition

_NONE_OPEN = "no transactions are open"
WATCHED_SINCE_MS = 10_000
"""How long a transaction has waited before `resolve --watch` ends it: living producers end theirs within that."""
_NO_ID = "fencepost txn list --all shows all known ids"


@click.group()
def txn() -> None:
    """Transactions: which are open, whom they block, and how to end them."""


@txn.command("list")
@click.option("--all", "everything", is_flag=True, help="Also ids whose last transaction has ended.")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Ongoing, PrepareCommit, CompleteAbort, …")
@click.option("--older-than", type=DURATION, default=None, help="Only transactions open for longer.")
@connecting
def list_transactions(to: Target, everything: bool, states: Sequence[str], older_than: int | None) -> None:
    """List open transactions, the oldest first."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Return the open transactions as JSON objects. With --all or --state, return the newest transaction of each
        transactional id, even if it has ended; with --state, only of ids in one of these states.
        """
        if not everything and not states:
            return await open_now(admin)
        listed = await admin.list_transactions(states=states)
        described = await admin.describe_transactions(each.transactional_id for each in listed)
        decisions = await prepared_or_empty(admin)
        return [facts_of(each, now_ms(), decisions) for each in described.values()]

    rows = to.ask(work)
    if older_than is not None:
        rows = [row for row in rows if row["age_ms"] is not None and row["age_ms"] > older_than]
    shown = rows if to.output.json else [{**row, "age": row} for row in rows]
    to.output.rows(shown, _COLUMNS, "no such transactions" if everything or states else _NONE_OPEN)


_COLUMNS = (
    Column("TRANSACTIONAL-ID", "transactional_id"),
    Column("STATE", "state", state),
    number("AGE", "age", age),
    number("TIMEOUT", "timeout_ms", duration),
    number("PRODUCER", "producer_id"),
    number("EPOCH", "producer_epoch"),
    number("COORDINATOR", "coordinator"),
    Column("PARTITIONS", "partitions"),
)


@txn.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@connecting
def describe(to: Target, ids: Sequence[str]) -> None:
    """Show the state, owner, age and partitions of transactional ids, and what they have pending in share groups."""
    from .windows import pending_lines, pending_of

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Return the facts of each transactional id. Raises Failure if one does not exist."""
        found = await admin.describe_transactions(ids)
        for each in ids:
            if each not in found:
                raise Failure(f"there is no transactional id {each}", _NO_ID, NOT_FOUND)
        decisions, owners = await prepared_or_empty(admin), await owners_or_empty(admin, found)
        rows = [facts_of(found[each], now_ms(), decisions) for each in dict.fromkeys(ids)]
        pending = await pending_of(admin, rows)
        return [
            {**row, "owner": owners.get(name), "pending": pending.get(name, [])}
            for row in rows
            for name in (row["transactional_id"],)
        ]

    for i, row in enumerate(to.ask(work)):
        if to.output.json:
            to.output.object(row)
            continue
        if i:
            to.output.line()
        to.output.heading(f"{row['transactional_id']}: {row['state']}")
        open_for = "nothing is open" if row["age_ms"] is None else f"open for {duration(row['age_ms'])}"
        to.output.line(f"  {open_for}, timeout {duration(row['timeout_ms'])}, started {when(row['started_ms'])}")
        owner = f"producer {row['producer_id']} epoch {row['producer_epoch']}"
        to.output.line(f"  {owner}, coordinator {row['coordinator']}")
        if row["transaction_id"] is not None:
            to.output.line(f"  transaction {row['transaction_id']}")
        if row["owner"] is not None:
            to.output.line(f"  taken last by {owner_text(row['owner'])}")
        if row["sink"] is not None:
            to.output.line(f"  waits for {wait_text(row)}")
        to.output.line(f"  partitions: {' '.join(row['partitions']) or 'none'}")
        for text in pending_lines(row["pending"]):
            to.output.line(f"  {text}")


@txn.command()
@click.argument("where", metavar="TOPIC[:PARTITION]")
@click.option("--open", "only_open", is_flag=True, help="Only producers with an open transaction in the partition.")
@connecting
def producers(to: Target, where: str, only_open: bool) -> None:
    """List the producers that a partition knows: epoch, last sequence, start of the open transaction."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Return the partition's producers, with --open only those with an open transaction."""
        known = await admin.describe_producers(await partitions_of(admin, [where]))
        return [
            {"topic": tp.topic, "partition": tp.partition, **each._asdict()}
            for tp, found in sorted(known.items())
            for each in found
            if each.txn_start_offset is not None or not only_open
        ]

    to.output.rows(to.ask(work), _PRODUCERS, "no producers")


_PRODUCERS = (
    Column("TOPIC", "topic"),
    number("PARTITION", "partition"),
    number("PRODUCER", "producer_id"),
    number("EPOCH", "producer_epoch"),
    number("LAST-SEQUENCE", "last_sequence"),
    Column("LAST-WRITE", "last_timestamp_ms", when),
    number("OPEN-FROM", "txn_start_offset", lambda at: "-" if at is None else Cell(str(at), "yellow")),
)


@txn.command("find-hanging")
@click.argument("wheres", metavar="[TOPIC[:PARTITION]]...", nargs=-1)
@click.option(
    "--older-than", type=DURATION, default="15m", show_default=True, help="The maximum age of an open transaction."
)
@connecting
def find_hanging(to: Target, wheres: Sequence[str], older_than: int) -> None:
    """Find transactions that are open in a partition but unknown to the coordinator. In all topics by default."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Return the transactions that no coordinator will end, by partition."""
        found = await admin.find_hanging_transactions(await partitions_of(admin, wheres), open_for_ms=older_than)
        return [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "start_offset": each.start_offset,
                "producer_id": each.producer.producer_id,
                "producer_epoch": each.producer.producer_epoch,
                "last_write_ms": each.producer.last_timestamp_ms,
            }
            for each in found
        ]

    rows = to.ask(work)
    columns = (
        Column("TOPIC", "topic"),
        number("PARTITION", "partition"),
        number("START-OFFSET", "start_offset"),
        number("PRODUCER", "producer_id"),
        number("EPOCH", "producer_epoch"),
        Column("LAST-WRITE", "last_write_ms", when),
    )
    to.output.rows(rows, columns, "no hanging transactions")
    if rows:
        to.output.remark("fencepost txn abort TOPIC:PARTITION --start-offset N ends one")


@txn.command()
@click.argument("what", metavar="ID|TOPIC:PARTITION")
@click.option("--start-offset", type=click.IntRange(min=0), default=None, help="Its first offset in TOPIC:PARTITION.")
@connecting
def abort(to: Target, what: str, start_offset: int | None) -> None:
    """Abort an open transaction and fence its producer.

    ID: its transactional id. TOPIC:PARTITION with --start-offset: a transaction that no coordinator knows any more (see
    find-hanging).
    """
    from ...effects.counts import count_text

    if start_offset is not None:
        _abort_by_marker(to, what, start_offset)
        return

    async def work(admin: "Admin") -> dict[str, Any]:
        """Fence the transactional id's producer, which aborts its open transaction, and return what was aborted.
        Raises Failure if none is open.
        """
        found = (await admin.describe_transactions(what)).get(what)
        if found is None:
            raise Failure(f"there is no transactional id {what}", _NO_ID, NOT_FOUND)
        if found.state != "Ongoing":
            hint = f"fencepost txn fence {what} fences its producer even without an open transaction"
            raise Failure(f"{what} has no open transaction, it is {found.state}", hint, CONFLICT)
        await refuse_held(admin, [what])
        fenced = await admin.fence_described(found)  # not a transaction that begins in between
        return {**facts_of(found, now_ms()), "aborted": True, "next_epoch": fenced.epoch}

    row = to.ask(work)
    partitions = count_text(len(row["partitions"]), "partition")
    text = f"aborted {what}: it was open for {duration(row['age_ms'])} in {partitions}; its producer is fenced"
    to.output.result(text, row)


def _abort_by_marker(to: Target, where: str, start_offset: int) -> None:
    """Abort the transaction that begins at this offset of a partition, by a marker there. Raises Failure if `where`
    names no partition.
    """
    name, partition = partition_of(where)
    if partition is None:
        raise Failure(f"{where} has no partition", "write TOPIC:PARTITION --start-offset N", WRONG_USAGE)

    async def work(admin: "Admin") -> dict[str, Any]:
        """Write an abort marker into the partition, and return the transaction that it ended."""
        from ...client.values import TopicPartition

        ended = await admin.abort_transaction(TopicPartition(name, partition), start_offset)
        producer = ended.producer
        return {
            "topic": name,
            "partition": partition,
            "start_offset": start_offset,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "aborted": True,
        }

    row = to.ask(work)
    owner = f"producer {row['producer_id']} epoch {row['producer_epoch']}"
    to.output.result(f"aborted the transaction of {owner} in {name}-{partition} from offset {start_offset} on", row)


@txn.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@connecting
def fence(to: Target, ids: Sequence[str]) -> None:
    """Bump an id's epoch: its producer is fenced, and its open transaction is aborted."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Fence the producers of these transactional ids, and return each id's next producer epoch."""
        await refuse_held(admin, ids)
        fenced = await admin.fence_producers(ids)
        return [
            {"transactional_id": name, "producer_id": new.producer_id, "next_epoch": new.epoch}
            for name, new in fenced.items()
        ]

    for row in to.ask(work):
        refused = f"producer {row['producer_id']}, epochs before {row['next_epoch']} are refused"
        to.output.result(f"fenced {row['transactional_id']}: {refused}", row)


@txn.command("why-blocked")
@click.argument("wheres", metavar="[TOPIC[:PARTITION]]...", nargs=-1)
@click.option("-g", "--group", "groups", multiple=True, metavar="GROUP", help="Why this group stands still.")
@connecting
def why_blocked(to: Target, wheres: Sequence[str], groups: Sequence[str]) -> None:
    """Show which transaction blocks readers: id, age, owner; and which partitions have no leader.

    A transaction can block read_committed readers of a partition; members of a group that start, while it holds back
    the group's committed offsets; and a share group, if its window is full of records that are pending in it.
    """
    from .held import cause_sentence, held_facts
    from .windows import full_windows

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Return, as JSON objects, what keeps readers of these partitions from newer records: each partition without
        a leader, and each transaction that blocks a partition, committed offsets or a share group's window.
        """
        topics = await admin.describe_topics()
        partitions = [tp for each in topics.values() for tp in each.topic_partitions]
        if wheres:
            partitions = await partitions_of(admin, wheres)
        elif groups:
            partitions = sorted({*partitions} & await _read_by(admin, groups))
        led = {tp for each in topics.values() for tp in each.led}
        found = await admin.find_blockers(tp for tp in partitions if tp in led)
        held = await _held(admin, groups, partitions if wheres else None)
        return [
            *(leaderless_facts(tp) for tp in partitions if tp not in led),
            *(blocked_facts(each, now_ms()) for each in found),
            *(held_facts(each, now_ms()) for each in held),
            *await full_windows(admin, groups, partitions if wheres else None, all_full=bool(groups)),
        ]

    rows = to.ask(work)
    for row in rows:
        text = cause_sentence(row)
        to.output.result(text, row) if to.output.json else to.output.line(text)
    if not rows:
        where = " ".join((*wheres, *(f"group {each}" for each in groups)))
        to.output.line(f"{where} is not blocked" if where else "no partition is blocked")


async def _read_by(admin: "Admin", groups: Sequence[str]) -> "set[TopicPartition]":
    """Return the partitions in which these groups have offsets, or that are assigned to their members. Raises Failure
    if a group does not exist.
    """
    from .windows import share_positions

    read: set[TopicPartition] = set()
    described = await admin.describe_groups(groups)
    shared = await share_positions(admin, groups)
    for name in groups:
        if name in shared:
            read |= {*shared[name]}
            continue
        offsets = await admin.list_group_offsets(name)
        known = described.get(name)
        if known is None and not offsets and not await admin.find_held_offsets(name):
            raise Failure(f"there is no group {name}", "fencepost group list shows all groups", NOT_FOUND)
        read |= {*offsets, *(tp for each in (known.members if known else ()) for tp in each.assignment)}
    return read


async def _held(
    admin: "Admin", groups: Sequence[str], partitions: "Sequence[TopicPartition] | None"
) -> "list[HeldOffsets]":
    """Return the committed offsets that open transactions hold back, of these groups (none named: of all) in these
    partitions (None: in all).

    Empty if no groups are named and this login may not see them.
    """
    from ...client.errors import AuthorizationError

    try:
        found = await admin.find_held_offsets(groups or None)
    except AuthorizationError:
        if groups:
            raise
        return []
    return [each for each in found if partitions is None or {*partitions} & {*each.partitions}]


@txn.command()
@click.option("--every", type=DURATION, default="1s", show_default=True, help="How often to refresh.")
@connecting
def watch(to: Target, every: int) -> None:
    """Show open transactions, refreshed until Ctrl-C."""
    from .watch import watch_open

    to.run(lambda: watch_open(to, every))


@txn.command()
@click.option(
    "--db", "url", required=True, metavar="URL", help="The producers' database: sqlite:///PATH, postgresql://…"
)
@click.option("--dry-run", is_flag=True, help="Only show how each would end.")
@click.option("--adopt", is_flag=True, help="Also if the database was restored and is older than the broker.")
@click.option(
    "--older-than", type=DURATION, default=None, help="Leave alone what waits for less.  [default: 0s, --watch: 10s]"
)
@click.option("--terminate", is_flag=True, help="End sessions of PostgreSQL that still hold a row, and what they did.")
@click.option("--watch", "watches", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option("--every", type=DURATION, default="10s", show_default=True, help="With --watch: how often.")
@connecting
def resolve(
    to: Target,
    url: str,
    dry_run: bool,
    adopt: bool,
    older_than: int | None,
    terminate: bool,
    watches: bool,
    every: int,
) -> None:
    """End the transactions that producers left waiting for a database: commit or abort, as the database has decided.

    Each was prepared by transaction(db=…) of a producer that is gone. What the database has not committed is closed
    there first, so that nobody can commit it later, and then aborted.
    """
    from .resolving import Resolving

    least_ms = older_than if older_than is not None else WATCHED_SINCE_MS if watches else 0
    resolving = Resolving(to, url, dry_run, adopt, least_ms, terminate)
    if watches:
        to.run(lambda: resolving.watch(every))
    else:
        resolving.finish(to.run(resolving.look))
