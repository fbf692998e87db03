"""The statements on an outbox table, and those that make it. Pure.

The rule: the first rows are chosen once, by a materialized query, so that a statement that waited for another relay's
transaction looks again at these rows only. Its outer condition is what it looks at again. Parameters are `$1`, `$2`.
"""

from collections.abc import Collection
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

    first_left: the position of the row that `take` or `number` begins with. take: $1 is how many rows at most. number:
    $1 is the last seq, $2 how many. read: rows above seq $1, $2 at most. forget: rows up to seq $1. prune: rows that
    were sent more than $1 seconds ago. The rest have no parameters.
    """

    peek: str
    peek_unnumbered: str
    any_numbered: str
    first_left: str
    take: str
    number: str
    read: str
    forget: str
    prune: str


def statements(
    dialect: str, table: str, columns: Columns, keep: bool, json_columns: Collection[str] = ()
) -> Statements:
    """Return the statements on this table. keep: sent rows are marked, not deleted. json_columns: those that are read
    as text, because some drivers would decode them, and numbers lose digits by that. Without a column for seq only
    peek_unnumbered, first_left, take and prune can be used.
    """
    name, position = quoted_table(table), quoted(columns.position)
    has_mark = bool(columns.sent_at)
    seq, sent_at = quoted(columns.seq or "seq"), quoted(columns.sent_at or "sent_at")
    unsent = f"{sent_at} is null" if has_mark else "1 = 1"
    unnumbered = f"{unsent} and {seq} is null" if columns.seq else unsent
    parts = columns.topic, columns.key, columns.value, columns.headers
    shown = ", ".join(_shown(part, part in json_columns) for part in parts)
    now = _NOW[dialect]
    gone = f"update {name} set {sent_at} = {now}" if keep else f"delete from {name}"
    first = f"(select {position} as p from {name} where {unnumbered} order by {position} limit $1)"
    return Statements(
        peek=f"select 1 from {name} where {unsent} limit 1",
        peek_unnumbered=f"select 1 from {name} where {unnumbered} limit 1",
        any_numbered=f"select count(*) from {name} where {unsent} and {seq} is not null",
        first_left=f"select {position} from {name} where {unnumbered} order by {position} limit 1",
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


def _shown(column: str, is_json: bool) -> str:
    """Return the SQL expression that reads this column, as text if it is JSON; "null" for an empty name (no column)."""
    if not column:
        return "null"
    return f"cast({quoted(column)} as text)" if is_json else quoted(column)


EXISTING = {
    "sqlite": 'select name, "notnull" or pk > 0 or dflt_value is not null, 0 from pragma_table_info($1)',
    "postgresql": "select a.attname::text, a.attnotnull or a.atthasdef or a.attidentity <> '', "
    "coalesce(nullif(t.typbasetype, 0), t.oid) in ('json'::regtype, 'jsonb'::regtype) "
    "from pg_attribute a join pg_type t on t.oid = a.atttypid "
    "where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped",
}
"""The columns of a table: the name, whether the database fills it or demands a value, whether it is JSON. $1: of SQLite
the bare name, of PostgreSQL the quoted one.
"""
INTRODUCE = (  # table, way, relay
    "insert into fencepost_relays (table_name, way, relay, last_seq) values ($1, $2, $3, 0) "
    "on conflict (table_name) do nothing"
)
RENAME = "update fencepost_relays set way = $2, relay = $3 where table_name = $1"
RAISE = "update fencepost_relays set last_seq = $2 where table_name = $1"


def lock_relay(dialect: str) -> str:
    """Return the statement that reads way, relay and last_seq of a table's relay, and locks its row."""
    return f"select way, relay, last_seq from fencepost_relays where table_name = $1{_LOCK[dialect]}"
