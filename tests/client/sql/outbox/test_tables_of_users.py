"""Relays from tables that others have made in PostgreSQL: what has no order or no position is refused, and kept."""

import random

import pytest
from fencepost.client.errors import InvalidConfigurationError, OutboxRowError
from fencepost.client.sql.outbox.relaying import Way
from fencepost.client.transactions.sqlstates import sqlstate_of

from fencepost import Broker, Consumer, sql

pytestmark = pytest.mark.slow  # with a real database

WAYS = [way.value for way in Way]
RELAYS = "create table fencepost_relays (table_name text primary key, way text, relay text, last_seq bigint not null)"


@pytest.fixture(scope="module")
def broker():
    with Broker(transaction_two_phase_commit_enable=True, num_partitions=1) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["asyncpg", "psycopg"])
async def db(request, postgres_url):
    async with sql.connect(postgres_url.replace("postgresql:", f"postgresql+{request.param}:"), create=True) as db:
        await db.execute(RELAYS)
        yield db


async def relayed(broker, db, by, columns=None):
    """Send the rows of the table `events`, two in a commit. Returns the values that readers see."""
    topic = f"events-{random.getrandbits(32)}"
    async with sql.outbox(broker, db, table="events", to=topic, name=topic, by=by, columns=columns, at_once=2) as relay:
        await relay.run(until_empty=True)
    async with Consumer(broker, topics=[topic], auto_offset_reset="earliest") as consumer:
        return [(await consumer.getone(timeout_ms=10_000)).value for _ in range(relay.sent)]


async def left(db):
    return (await db.fetch("select count(*) from events"))[0][0]


@pytest.mark.parametrize("by", WAYS)
async def test_outbox_rows_that_share_a_position_are_refused_and_none_is_lost(broker, db, by):
    await db.execute("create table events (at timestamptz default now(), value text, seq bigint)")
    await db.execute("insert into events (value) select n::text from generate_series(1, 10) n")
    with pytest.raises(InvalidConfigurationError, match="two rows of events have the same 'at'"):
        await relayed(broker, db, by, "position=at")
    assert await left(db) == 10


@pytest.mark.parametrize("by", WAYS)
async def test_an_outbox_row_without_a_position_ends_the_relay(broker, db, by):
    await db.execute("create table events (position bigint, value text, seq bigint)")
    await db.execute("insert into events values (1, 'a'), (null, 'b'), (3, 'c')")
    with pytest.raises(OutboxRowError, match="nothing in the column 'position'"):
        await relayed(broker, db, by)
    assert await left(db) == 1  # 'a' and 'c' were sent


@pytest.mark.parametrize(("by", "when"), [("hold", "delete"), ("offsets", "update"), ("names", "update")])
async def test_an_outbox_relay_ends_if_a_trigger_prevents_deleting_or_changing_a_row(broker, db, by, when):
    await db.execute("create table events (position bigint, value text, seq bigint)")
    await db.execute("create function nothing() returns trigger language plpgsql as 'begin return null; end'")
    await db.execute(f"create trigger keep before {when} on events for each row execute function nothing()")
    await db.execute("insert into events values (1, 'a')")
    with pytest.raises(InvalidConfigurationError, match="position 1 can be neither deleted nor changed"):
        await relayed(broker, db, by)
    await db.execute("drop function nothing cascade")


@pytest.mark.parametrize(
    "statement",
    [
        "create view events as select 1 as position, 'a' as value union all select 2, 'b'",
        "create table events (position bigint primary key, value text);"
        "create table seen (position bigint references events); insert into events values (1, 'a');"
        "insert into seen values (1)",
    ],
    ids=["view", "references"],
)
async def test_an_outbox_from_which_nothing_can_be_deleted_ends_the_relay(broker, db, statement):
    await db.execute(statement)
    with pytest.raises(Exception, match="events") as refused:
        await relayed(broker, db, "hold")
    assert sqlstate_of(refused.value) in ("55000", "23503")  # the view is not updatable; the foreign key is violated


@pytest.mark.parametrize("by", WAYS)
async def test_an_outbox_table_in_postgresql_with_a_default_for_column_seq_is_refused(broker, db, by):
    await db.execute("create table events (position bigint, value text, seq bigserial)")
    await db.execute("insert into events values (1, 'a')")
    with pytest.raises(InvalidConfigurationError, match="fills the column 'seq' itself") as refused:
        await relayed(broker, db, by)
    assert "--columns seq=" in refused.value.hint
    assert await relayed(broker, db, "hold", "seq=") == [b"a"]


async def test_outbox_values_of_jsonb_are_sent_as_postgresql_writes_them(broker, db):
    await db.execute("create table events (position bigint, value jsonb, headers json)")
    values = ['{"a": 1.10, "b": 123.4567890123456789}', "true", "null", '"text"', "[1, 2]"]
    for position, value in enumerate(values):
        await db.execute('insert into events values ($1, cast($2::text as jsonb), \'{"h": "1"}\')', position, value)
    assert await relayed(broker, db, "hold") == [value.encode() for value in values]
