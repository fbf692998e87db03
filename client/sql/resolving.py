"""Ending what writers left prepared: each held transaction of one database, as that says.

The rule: LOOK, CLOSE and END of client/transactions/deciding.py. One that cannot be ended now stops no other. Only keys
of this database are looked at.
"""

from dataclasses import dataclass
from typing import Any, Literal

from ..errors import KafkaError
from ..net.cluster import Cluster
from ..net.environment import SYSTEM, Environment
from ..settings import producer_settings
from ..transactions.deciding import Waiting, ledger_key
from ..transactions.decisions import Decisions
from ..transactions.sql_commits import DatabaseAway
from .sqlite import Database

Result = Literal["committed", "aborted", "undecided", "diverged"]


@dataclass(frozen=True)
class Resolved:
    """What became of a held transaction. reason: why it is undecided or diverged, else empty."""

    transactional_id: str
    number: int
    waited_ms: int
    result: Result
    reason: str = ""


async def resolve(
    bootstrap_servers: Any,
    db: Database,
    *,
    dry_run: bool = False,
    older_ms: int = 0,
    environment: Environment = SYSTEM,
    **keywords: Any,
) -> list[Resolved]:
    """End each transaction that a writer left prepared for this database, and return what became of it.

    dry_run: only say what would. older_ms: leave those alone that wait for less. keywords: of the connection. Raises
    KafkaError if the broker cannot be asked.
    """
    cluster = Cluster(producer_settings(bootstrap_servers, **keywords), environment)
    try:
        await cluster.start()
        decisions = Decisions(cluster, cluster.settings.request_timeout_ms)
        await decisions.check_holding("")
        found = await decisions.find_held("", ledger_key(db.database_id, ""))
        return [await _end(decisions, db, each, dry_run) for each in found if each.waits_for_ms >= older_ms]
    finally:
        await cluster.close()


async def _end(decisions: Decisions, db: Database, waiting: Waiting, dry_run: bool) -> Resolved:
    """Close the number in the database, and tell the broker what that says."""
    about = waiting.transactional_id, waiting.number, waiting.waits_for_ms
    try:
        row = await (db.read_row(waiting.transactional_id) if dry_run else db.close_number(waiting))
    except DatabaseAway as away:
        return Resolved(*about, "undecided", f"the database: {away}")
    if row.number > waiting.number:
        return Resolved(*about, "diverged", f"the database has decided number {row.number}, and it still waits")
    committed = row.committed and row.number == waiting.number
    result: Result = "committed" if committed else "aborted"
    if dry_run:
        return Resolved(*about, result)
    try:
        ended = await decisions.end(waiting, committed)
    except KafkaError as error:
        return Resolved(*about, "undecided", f"{result} in the database; the broker: {error}")
    if ended.error is None or (ended.number, ended.committed) == (waiting.number, committed):
        return Resolved(*about, result)
    if ended.number >= waiting.number:  # its own producer was quicker, or the opposite was said
        opposite = ended.number == waiting.number
        return Resolved(*about, "diverged" if opposite else result, f"{ended.error}" if opposite else "")
    return Resolved(*about, "undecided", f"{result} in the database; the broker: {ended.error}")
