"""The tables in a user's database, and the statements on them. Pure.

The rule: one row for each transactional id; its number only grows. CLAIM and CLOSE run in transactions of their own,
DECIDE is the last statement of the user's. Parameters are `?` in the order of the names in the comments, and `$1` … in
those for PostgreSQL.
"""

import re

from ..errors import IllegalStateError
from .place_statements import TABLE as PLACES

TABLES = {
    "sqlite": """\
create table if not exists fencepost_database (
    id text not null primary key
);
create table if not exists fencepost_writers (
    transactional_id text not null primary key,
    generation integer not null,
    number integer not null,
    committed integer not null,
    producer_id integer not null,
    producer_epoch integer not null,
    decided_at text not null
);
"""
    + PLACES["sqlite"],
    "postgresql": """\
create table if not exists fencepost_database (
    id text not null primary key,
    system_identifier bigint not null,
    database_oid bigint not null
);
create table if not exists fencepost_writers (
    transactional_id text not null primary key,
    generation bigint not null,
    number bigint not null,
    committed integer not null,
    producer_id bigint not null,
    producer_epoch integer not null,
    decided_at timestamp with time zone not null
) with (fillfactor = 50);
insert into fencepost_database (id, system_identifier, database_oid)
select replace(cast(gen_random_uuid() as text), '-', ''), s.system_identifier, d.oid
from pg_control_system() s, pg_database d
where d.datname = current_database() and not exists (select 1 from fencepost_database);
"""
    + PLACES["postgresql"],
}
"""The statements that make the tables, by dialect."""

CLAIM = (  # transactional_id
    "insert into fencepost_writers values (?, 1, -1, 0, -1, -1, current_timestamp) "
    "on conflict (transactional_id) do update set generation = fencepost_writers.generation + 1 "
    "returning generation, number, committed"
)
DECIDE = (  # number, producer_id, producer_epoch, transactional_id, generation, number
    "update fencepost_writers set number = ?, committed = 1, producer_id = ?, producer_epoch = ?, "
    "decided_at = current_timestamp where transactional_id = ? and generation = ? and number < ?"
)
CLOSE = (  # transactional_id, number, producer_id, producer_epoch
    "insert into fencepost_writers values (?, 0, ?, 0, ?, ?, current_timestamp) "
    "on conflict (transactional_id) do update set number = excluded.number, committed = 0, "
    "producer_id = excluded.producer_id, producer_epoch = excluded.producer_epoch, decided_at = excluded.decided_at "
    "where fencepost_writers.number < excluded.number"
)
READ = "select generation, number, committed from fencepost_writers where transactional_id = ?"
IDENTIFY = "select id from fencepost_database"
CHECK_POSTGRESQL = (
    "select f.id, f.system_identifier = s.system_identifier and f.database_oid = d.oid, pg_is_in_recovery(), "
    "current_setting('synchronous_commit'), current_setting('fsync') "
    "from fencepost_database f, pg_control_system() s, pg_database d where d.datname = current_database()"
)
SCHEMA_POSTGRESQL = (
    "select quote_ident(n.nspname) from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where c.oid = to_regclass('fencepost_writers')"
)
HOLDER_POSTGRESQL = (  # transactional_id
    "select l.pid from fencepost_writers w join pg_locks l on l.transactionid = w.xmax "
    "where w.transactional_id = $1 and l.locktype = 'transactionid' and l.granted"
)
NAME = "insert into fencepost_database (id) select ? where not exists (select 1 from fencepost_database)"


def numbered(statement: str) -> str:
    """Return the statement with `$1`, `$2` … instead of `?`."""
    first, *rest = statement.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))


CLAIM_POSTGRESQL, CLOSE_POSTGRESQL, READ_POSTGRESQL = map(numbered, (CLAIM, CLOSE, READ))
READ_LOCKED_POSTGRESQL = READ_POSTGRESQL + " for update"
MARK = "1"
MARK_POSTGRESQL = f"set local fencepost.block = '{MARK}'"  # no query: `set transaction` may come after it
MARKED_POSTGRESQL = "select current_setting('fencepost.block', true)"
DECIDE_POSTGRESQL = (
    numbered(DECIDE) + " returning current_setting('synchronous_commit'), current_setting('fencepost.block', true)"
)
MARK_SQLITE, MARKED_SQLITE = "savepoint fencepost_block", "release fencepost_block"

_ON_ROWS = re.compile(r"\s*(?:insert|update|delete|merge|select|with|values)\b[^;]*;?\s*", re.IGNORECASE)
_COMMENTS = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$))*"
_OWNED = re.compile(
    rf"{_COMMENTS}(begin|start\s+transaction|commit|end|abort|rollback(?!\s+((transaction|work)\s+)?to\b))\b",
    re.IGNORECASE | re.DOTALL,
)


def check_allowed(statement: str) -> None:
    """Raise IllegalStateError if the statement would begin or end a transaction, which only the block may do."""
    if _OWNED.match(statement):
        raise IllegalStateError(
            f"the block of producer.transaction(db=…) begins and ends the transaction, not {statement.strip()!r}",
            hint="async with db.transaction() is a savepoint",
        )


def cannot_end(statement: str) -> bool:
    """Return whether the text is a single statement on rows, which does not end the transaction. False if that is not
    certain: for a text that begins otherwise, as with a comment, or has a semicolon inside.
    """
    return _ON_ROWS.fullmatch(statement) is not None


def schema(dialect: str) -> str:
    """Return the statements that make the tables. dialect: "sqlite" or "postgresql"; another raises ValueError."""
    if dialect not in TABLES:
        raise ValueError(f"there are no tables for {dialect!r}: use one of {', '.join(TABLES)}")
    return TABLES[dialect]
