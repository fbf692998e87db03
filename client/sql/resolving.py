"""Ends the held transactions that producers left behind, each as its database has decided.

The rule: the steps are LOOK, CLOSE and END of client/transactions/deciding.py. A transaction that cannot be ended now
stops no other. Only keys of this database are looked at. Whether the database is older than the broker is found out
before anything is closed in it, since its row would not show that any more.
"""

import logging
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import KafkaError
from ..net.cluster import Cluster
from ..net.environment import SYSTEM, Environment
from ..settings import ConnectionSettings, producer_settings
from ..transactions.deciding import Row, Standing, Waiting, ledger_key, older_database
from ..transactions.decisions import Decisions
from ..transactions.participant import DatabaseAway
from .interfaces import Database, RowHeld

log = logging.getLogger("fencepost.client")
Result = Literal["committed", "aborted", "undecided", "diverged"]


@dataclass(frozen=True)
class Resolved:
    """What became of a held transaction. reason: why its result is undecided or diverged, else empty."""

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
    adopt: bool = False,
    older_ms: int = 0,
    terminate: bool = False,
    environment: Environment = SYSTEM,
    **keywords: Any,
) -> list[Resolved]:
    """End each transaction that a writer left prepared for this database, and return what became of each. One that its
    own writer ends meanwhile may be left out.

    dry_run: end nothing, and only return what would become of them. adopt: end them also if the database was restored
    from a backup that is older than the broker; else they are returned as diverged. older_ms: leave those alone that
    wait for less. terminate: end a session of the server that still holds a row, such as that of a program which hangs;
    else its transaction is undecided. keywords: of the connection. Raises KafkaError if the broker cannot be asked.
    """
    settings = producer_settings(bootstrap_servers, **keywords)
    return await resolve_by(settings, db, dry_run, adopt, older_ms, terminate, environment)


async def resolve_by(
    settings: ConnectionSettings,
    db: Database,
    dry_run: bool,
    adopt: bool,
    older_ms: int,
    terminate: bool,
    environment: Environment = SYSTEM,
) -> list[Resolved]:
    """Do what `resolve` does, with the broker that these settings name. Raises KafkaError."""
    cluster = Cluster(settings, environment)
    try:
        await cluster.start()
        decisions = Decisions(cluster, cluster.settings.request_timeout_ms)
        await decisions.check_holding("")
        found = await decisions.find_standings(ledger_key(db.database_id, ""))
        old = [(standing, each) for standing, each in found if each.waits_for_ms >= older_ms]
        ended = [
            await _end(decisions, db, each, None if adopt else standing, dry_run, terminate) for standing, each in old
        ]
        return [each for each in ended if each is not None]
    finally:
        await cluster.close()


async def _end(
    decisions: Decisions, db: Database, waiting: Waiting, standing: Standing | None, dry_run: bool, terminate: bool
) -> Resolved | None:
    """Close the number of this transaction in the database, tell the broker what was decided, and return what became of
    it; None if its own producer has ended it meanwhile, and the next one too. standing: what the broker knows, which
    the row must not be older than; None: the row may be older.
    """
    about = waiting.transactional_id, waiting.number, waiting.waits_for_ms
    try:
        row = await db.read_row(waiting.transactional_id)
        if standing is not None and (why := older_database(row, standing)) is not None:
            return Resolved(*about, "diverged", why)
        if not dry_run:
            row = await _close(db, waiting, terminate)
    except DatabaseAway as away:
        return Resolved(*about, "undecided", f"the database: {away}")
    if row.number > waiting.number:
        return await _if_it_still_waits(decisions, waiting, row)
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


async def _if_it_still_waits(decisions: Decisions, waiting: Waiting, row: Row) -> Resolved | None:
    """Ask the broker again about a transaction of which the database has decided a later number. Returns None if it was
    ended since it was found waiting, as by its own producer, which is alive.
    """
    about = waiting.transactional_id, waiting.number, waiting.waits_for_ms
    try:
        now = (await decisions.look(waiting.key, waiting.transactional_id)).waiting
    except KafkaError as error:
        return Resolved(*about, "undecided", f"the broker: {error}")
    if now is None or (now.identity, now.number) != (waiting.identity, waiting.number):
        return None
    return Resolved(*about, "diverged", f"the database has decided number {row.number}, and it still waits")


async def _close(db: Database, waiting: Waiting, terminate: bool) -> Row:
    """Close the number in the database, and return the row. Raises DatabaseAway, RowHeld. terminate: end the session
    that holds the row, if one does.
    """
    try:
        return await db.close_number(waiting)
    except RowHeld as held:
        if not terminate or not held.session:
            raise
        log.warning("%r: session %d of %s is ended", waiting.transactional_id, held.session, db.name)
        await db.terminate_session(held.session, waiting.transactional_id)
        return await db.close_number(waiting)
