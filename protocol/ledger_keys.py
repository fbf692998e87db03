"""Texts for people about ledger keys: which database decides. Pure.

The SDK's transactions over broker and database are decided under sql:DATABASE:TRANSACTIONAL_ID. DATABASE is the id in
that database's table fencepost_database.
"""

RESOLVES = "fencepost txn resolve --db URL"
"""The command that ends what a dead program left for its database to decide."""


def database_of(ledger_key: str) -> str | None:
    """Return the id of the database that decides under this key; None if it is not a database's."""
    kind, _, rest = ledger_key.partition(":")
    database, _, transactional_id = rest.partition(":")
    return database if kind == "sql" and database and transactional_id else None


def held_text(ledger_key: str, number: int) -> str:
    """Return a text that names the decision which alone ends a held transaction, and the command if there is one."""
    database = database_of(ledger_key)
    if database is None:
        return f"decision {number} under the ledger key {ledger_key}, and nothing else ends it (held)"
    return f"decision {number} of database {database}, and nothing else ends it (held); to ask that: {RESOLVES}"
