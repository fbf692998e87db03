"""The statements on an outbox table, and those that make it. Pure.

The rule: the first rows are chosen once, by a materialized query, so that a statement that waited for another relay's
transaction looks again at these rows only. Its outer condition is what it looks at again. Parameters are `$1`, `$2`.
"""

from dataclasses import dataclass

from .rows import Columns, quoted, quoted_table

_NOW = {"sqlite": "current_timestamp", "postgresql": "now()"}
_BEFORE = {"sqlite": "datetime('now', -$1 || ' seconds')", "postgresql": "now() - make_interval(secs => $1)"}
_LOCK = {"sqlite": "", "postgresql": " for update"}
_TYPES = {
    "sqlite": "position integer primary key autoincrement, topic text, key blob, value blob, headers text, "
    "created_at text not null default current_timestamp, seq integer, sent_at text",
    "postgresql": "position bigint generated always as identity primary key, topic text, key bytea, value bytea, "
    "headers jsonb, created_at timestamptz not null default now(), seq bigint, sent_at timestamptz",
}
RELAYS = (
    "create table if not exists fencepost_relays (\n    table_name text not null primary key,\n    way text not null,\n"
    "    relay text not null,\n    last_seq bigint not null\n)"
)


def outbox_schema(dialect: str, table: str) -> list[str]:
    """Return the statements that make an outbox table of this name, and the table of relays. Raises ValueError for a
    dialect that is not known.
    """
    if dialect not in _TYPES:
        raise ValueError(f"there is no outbox for {dialect!r}: use one of {', '.join(_TYPES)}")
    columns = ",\n    ".join(_TYPES[dialect].split(", "))
    index = quoted(table.rpartition(".")[2].strip('"') + "_seq")
    return [
        f"create table if not exists {quoted_table(table)} (\n    {columns}\n)",
        f"create index if not exists {index} on {quoted_table(table)} (seq) where seq is not null",
        RELAYS,
    ]


@dataclass(frozen=True)
class Statements:
    """The statements on one outbox table.

    take: $1 is how many rows at most. number: $1 is the last seq, $2 how many. read: rows above seq $1, $2 at most.
    forget: rows up to seq $1. prune: rows that were sent more than $1 seconds ago. The rest have no parameters.
    """

    peek: str
    peek_unnumbered: str
    any_numbered: str
    take: str
    number: str
    read: str
    forget: str
    prune: str


def statements(dialect: str, table: str, columns: Columns, keep: bool) -> Statements:
    """Return the statements on this table. keep: sent rows are marked, not deleted. Without a column for seq only
    peek_unnumbered, take and prune can be used.
    """
    name, position = quoted_table(table), quoted(columns.position)
    has_mark = bool(columns.sent_at)
    seq, sent_at = quoted(columns.seq or "seq"), quoted(columns.sent_at or "sent_at")
    unsent = f"{sent_at} is null" if has_mark else "1 = 1"
    unnumbered = f"{unsent} and {seq} is null" if columns.seq else unsent
    parts = columns.topic, columns.key, columns.value, columns.headers
    shown = ", ".join(quoted(part) if part else "null" for part in parts)
    now = _NOW[dialect]
    gone = f"update {name} set {sent_at} = {now}" if keep else f"delete from {name}"
    first = f"(select {position} as p from {name} where {unnumbered} order by {position} limit $1)"
    return Statements(
        peek=f"select 1 from {name} where {unsent} limit 1",
        peek_unnumbered=f"select 1 from {name} where {unnumbered} limit 1",
        any_numbered=f"select count(*) from {name} where {unsent} and {seq} is not null",
        take=(
            f"with first as materialized {first} {gone} where {position} in (select p from first) and {unnumbered} "
            f"returning {position}, 0, {shown}"
        ),
        number=(
            f"with first as materialized (select {position} as p, row_number() over (order by {position}) as n "
            f"from {name} where {unnumbered} order by {position} limit $2) "
            f"update {name} set {seq} = $1 + first.n from first where {position} = first.p and {seq} is null "
            f"returning {seq}"
        ),
        read=(f"select {position}, {seq}, {shown} from {name} where {seq} > $1 and {unsent} order by {seq} limit $2"),
        forget=f"{gone} where {seq} <= $1 and {unsent}",
        prune=f"delete from {name} where {sent_at} < {_BEFORE[dialect]}",
    )


EXISTING = {
    "sqlite": "select name from pragma_table_info($1)",
    "postgresql": "select attname::text from pg_attribute where attrelid = to_regclass($1) and attnum > 0 "
    "and not attisdropped",
}
"""The names of a table's columns. $1: of SQLite the bare name, of PostgreSQL the quoted one."""
INTRODUCE = (  # table, way, relay
    "insert into fencepost_relays (table_name, way, relay, last_seq) values ($1, $2, $3, 0) "
    "on conflict (table_name) do nothing"
)
RENAME = "update fencepost_relays set way = $2, relay = $3 where table_name = $1"
RAISE = "update fencepost_relays set last_seq = $2 where table_name = $1"


def lock_relay(dialect: str) -> str:
    """Return the statement that reads way, relay and last_seq of a table's relay, and locks its row."""
    return f"select way, relay, last_seq from fencepost_relays where table_name = $1{_LOCK[dialect]}"
