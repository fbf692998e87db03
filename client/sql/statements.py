"""The tables in a user's database, and the statements on them. Pure.

The rule: one row for each transactional id; its number only grows. CLAIM and CLOSE run in transactions of their own,
DECIDE is the last statement of the user's. Parameters are `?` in the order of the names in the comments.
"""

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
NAME = "insert into fencepost_database (id) select ? where not exists (select 1 from fencepost_database)"


def schema(dialect: str) -> str:
    """Return the statements that make the tables. dialect: "sqlite". Raises ValueError for one that is not known."""
    if dialect not in TABLES:
        raise ValueError(f"there are no tables for {dialect!r}: use one of {', '.join(TABLES)}")
    return TABLES[dialect]
