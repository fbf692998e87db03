"""The table of places, and the statements on it. Pure.

The rule: MOVE is the only statement within a user's transaction; the others run in transactions of their own, in the
order of `places.Key`. CLAIM waits for a transaction that has moved the row, and so does WAIT. Parameters are `$1`, `$2`
… in the order of the names in the comments.
"""

TABLE = {
    "sqlite": """\
create table if not exists fencepost_places (
    group_id text not null,
    topic_id text not null,
    topic text not null,
    partition integer not null,
    claim integer not null,
    member text not null,
    next_offset integer not null,
    primary key (group_id, topic_id, partition)
);
""",
    "postgresql": """\
create table if not exists fencepost_places (
    group_id text not null,
    topic_id text not null,
    topic text not null,
    partition integer not null,
    claim bigint not null,
    member text not null,
    next_offset bigint not null,
    primary key (group_id, topic_id, partition)
) with (fillfactor = 50);
""",
}
"""The statement that makes the table, by dialect."""

_ROW = "where group_id = $1 and topic_id = $2 and partition = $3"

CLAIM = (  # group_id, topic_id, partition, topic, member, next_offset of a row that is made
    "insert into fencepost_places (group_id, topic_id, partition, topic, claim, member, next_offset) "
    "values ($1, $2, $3, $4, 1, $5, $6) "
    "on conflict (group_id, topic_id, partition) "
    "do update set claim = fencepost_places.claim + 1, member = excluded.member"
)
RESET = f"update fencepost_places set next_offset = $5 {_ROW} and next_offset = $4"  # the row, next_offset, the new one
READ = f"select claim, next_offset from fencepost_places {_ROW}"
WAIT = f"update fencepost_places set claim = claim {_ROW}"
FIND_OTHERS = (  # group_id, topic_id, partition, topic
    "select topic_id from fencepost_places where group_id = $1 and topic_id <> $2 and partition = $3 and topic = $4"
)
MOVE = f"update fencepost_places set next_offset = $6 {_ROW} and claim = $4 and next_offset = $5"
