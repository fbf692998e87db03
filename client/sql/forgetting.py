"""Removing what database and broker know of a transactional id that will not write again.

The rule: nothing of the id waits at the broker, and its last decision is old. The ledger's entry goes first: without
the row it would look as if the database had been restored from a backup. What was begun is done by calling it again.
Whoever still wrote with the id finds no row, and is fenced.
"""

from typing import Any

from ..errors import IllegalStateError
from ..net.cluster import Cluster
from ..net.environment import SYSTEM, Environment
from ..settings import ConnectionSettings, producer_settings
from ..transactions.deciding import NONE_YET, ledger_key
from ..transactions.decisions import Decisions
from .interfaces import Database

UNUSED_MS = 30 * 86_400_000.0
_OF_ID = "from fencepost_writers where transactional_id = $1"
_AGE_MS = {
    "postgresql": "cast(extract(epoch from current_timestamp - decided_at) * 1000 as double precision)",
    "sqlite": "(julianday('now') - julianday(decided_at)) * 86400000.0",
}


async def forget(
    bootstrap_servers: Any,
    db: Database,
    transactional_id: str,
    *,
    unused_ms: float = UNUSED_MS,
    environment: Environment = SYSTEM,
    **keywords: Any,
) -> bool:
    """Remove the row of this id from an open database, and its entry from the broker's ledger. Return whether there was
    either. Needs `delete` on fencepost_writers, and Alter on the cluster.

    unused_ms: how long ago the last decision has to be. keywords: of the connection. Raises IllegalStateError if it is
    more recent, or if a transaction of the id waits for the database; DatabaseAway; KafkaError if the broker refuses.
    """
    settings = producer_settings(bootstrap_servers, **keywords)
    return await forget_by(settings, db, transactional_id, unused_ms, environment)


async def forget_by(
    settings: ConnectionSettings,
    db: Database,
    transactional_id: str,
    unused_ms: float,
    environment: Environment = SYSTEM,
) -> bool:
    """Do what `forget` does, with the broker that these settings name."""
    cluster = Cluster(settings, environment)
    try:
        await cluster.start()
        decisions = Decisions(cluster, cluster.settings.request_timeout_ms)
        await decisions.check_holding(transactional_id)
        key = ledger_key(db.database_id, transactional_id)
        standing = await decisions.look(key, transactional_id)
        if standing.waiting is not None:
            raise IllegalStateError(
                f"number {standing.waiting.number} of {transactional_id!r} waits for the database",
                hint="fencepost txn resolve ends it",
            )
        age_ms = await _age_ms(db, transactional_id)
        if age_ms is not None and age_ms < unused_ms:
            raise IllegalStateError(
                f"the last decision of {transactional_id!r} is of {age_ms / 1000:,.0f} s ago: it may write again",
                hint="stop its producer for good, and give a shorter time if you are sure",
            )
        if standing.number != NONE_YET:
            await decisions.remove(key, transactional_id)
        if age_ms is not None:
            gone = f"delete {_OF_ID} and {_AGE_MS[db.dialect]} >= $2"
            await db.run_alone([(gone, [transactional_id, unused_ms])])  # unless it has just written again
        return age_ms is not None or standing.number != NONE_YET
    finally:
        await cluster.close()


async def _age_ms(db: Database, transactional_id: str) -> float | None:
    """Return how long ago the last decision of the id was; None if the database has no row of it."""
    (found,) = await db.run_alone([(f"select {_AGE_MS[db.dialect]} {_OF_ID}", [transactional_id])])
    return float(found[0][0]) if found else None
