"""Relays from SQLite at a real broker: hostile rows and names, tables of users, kept rows, places that are gone."""

import asyncio
import contextlib
import sqlite3

import pytest
from fencepost.client.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    OutboxRowError,
    ProducerFencedError,
    UnknownTopicError,
)
from fencepost.client.sql import sqlite
from fencepost.client.sql.outbox import relay as relaying
from fencepost.client.sql.outbox.relaying import Way
from fencepost.client.sql.outbox.statements import outbox_schema

from fencepost import Admin, Broker, Consumer, NewTopic, TopicPartition, sql

pytestmark = pytest.mark.slow  # with a real database

WAYS = [way.value for way in Way]
NUMBERED = ["names", "offsets"]


@pytest.fixture(scope="module")
def broker():
    with Broker(transaction_two_phase_commit_enable=True, auto_create_topics_enable=False) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def topic(broker, request):
    """Create a topic for the test, and give its name."""
    name = f"t-{abs(hash(request.node.name))}"
    async with Admin(broker) as admin:
        await admin.create_topics([NewTopic(name, 1)])
    return name


@pytest.fixture(autouse=True)
def no_disks(monkeypatch):
    monkeypatch.setattr(sqlite, "_check_durable", lambda adapter: asyncio.sleep(0))
    connected = sqlite._connected

    def unsynced(*arguments):
        connection = connected(*arguments)
        connection.execute("pragma synchronous = off")
        return connection

    monkeypatch.setattr(sqlite, "_connected", unsynced)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
async def db(path):
    async with sql.connect(f"sqlite:///{path}") as db:
        for statement in outbox_schema("sqlite", "outbox"):
            await db.execute(statement)
        yield db


def change(path, *statements, **values):
    """Run statements over another connection, as an application does."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement, values)
        connection.commit()


async def records_of(broker, topic):
    """Return the records that a read_committed reader gets up to the last stable offset."""
    partition = TopicPartition(topic, 0)
    found = []
    async with Consumer(broker, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            found += [one for some in (await consumer.getmany(timeout_ms=500)).values() for one in some]
    return found


async def values_of(broker, topic):
    return [one.value for one in await records_of(broker, topic)]


async def send_all(broker, db, topic, by, **more):
    """Send all rows with a new relay, and return how many it has sent."""
    async with sql.outbox(broker, db, to=topic, name=topic, by=by, **more) as relay:
        await relay.run(until_empty=True)
        return relay.sent


@pytest.mark.parametrize("by", WAYS)
async def test_a_row_becomes_a_record_with_its_topic_key_value_and_headers(broker, db, path, topic, by):
    async with Admin(broker) as admin:
        await admin.create_topics([NewTopic(f"{topic}-other", 1)])
    change(
        path,
        """insert into outbox (topic, key, value, headers) values
        (null, x'00ff', x'01', '{"trace": "1", "none": null}'), (null, null, null, null),
        (:other, 'k', 'text', '[["a", "1"], ["a", "2"]]')""",
        other=f"{topic}-other",
    )
    assert await send_all(broker, db, topic, by) == 3
    assert [(one.key, one.value, dict(one.headers)) for one in await records_of(broker, topic)] == [
        (b"\x00\xff", b"\x01", {"trace": b"1", "none": None}),
        (None, None, {}),
    ]
    (other,) = await records_of(broker, f"{topic}-other")
    assert (other.key, other.value, other.headers) == (b"k", b"text", (("a", b"1"), ("a", b"2")))
    assert await db.fetch("select * from outbox") == []


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("bad", ["headers", "too large for the topic", "too large for the producer"])
async def test_a_row_that_cannot_be_sent_stops_the_relay_and_no_row_is_skipped(broker, db, path, topic, by, bad):
    async with Admin(broker) as admin:
        await admin.alter_configs(topic=topic, set={"max.message.bytes": "20000"})
    value = {"headers": b"2", "too large for the topic": bytes(30_000), "too large for the producer": bytes(2_000_000)}
    change(path, "insert into outbox (key, value) values ('k', '1')")
    change(
        path,
        "insert into outbox (key, value, headers) values ('k', :value, :headers)",
        value=value[bad],
        headers="{" if bad == "headers" else None,
    )
    change(path, "insert into outbox (key, value) values ('k', '3')")
    for _ in range(2):
        with pytest.raises(OutboxRowError, match="the row at position 2 cannot be sent") as refused:
            await send_all(broker, db, topic, by)
        assert "no row was skipped" in refused.value.hint
    change(path, "update outbox set value = '2', headers = null where position = 2")
    await send_all(broker, db, topic, by)
    assert await values_of(broker, topic) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("by", WAYS)
async def test_a_topic_that_is_not_there_stops_the_relay_and_no_row_is_skipped(broker, db, path, topic, by):
    change(path, "insert into outbox (topic, key, value) values ('nowhere', 'k', '1'), (null, 'k', '2')")
    with pytest.raises(UnknownTopicError):
        await send_all(broker, db, topic, by, max_block_ms=300)
    assert await db.fetch("select count(*) from outbox") == [(2,)]
    assert await values_of(broker, topic) == []


async def test_a_relay_of_a_users_table_needs_column_seq_for_method_offsets_not_for_hold(broker, db, path, topic):
    table, column = "out;'\"box", 'pay"load'
    quoted = ['"' + each.replace('"', '""') + '"' for each in (table, column)]
    change(path, "create table {} (id integer primary key, {} text, kind text)".format(*quoted))
    change(path, "insert into {} ({}) values ('1'), ('2')".format(*quoted))
    columns = {"position": "id", "value": column}
    assert await send_all(broker, db, topic, "hold", table=table, columns=columns) == 2
    assert await values_of(broker, topic) == [b"1", b"2"]
    with pytest.raises(InvalidConfigurationError, match="no column for the numbers of rows") as refused:
        await send_all(broker, db, topic, "offsets", table=table, columns=columns)
    assert "add column seq" in refused.value.hint


async def test_an_outbox_relay_names_a_missing_table_or_column_in_its_error(broker, db, topic):
    with pytest.raises(InvalidConfigurationError, match="there is no table none") as refused:
        await send_all(broker, db, topic, "hold", table="none")
    assert "fencepost sql schema --dialect sqlite --outbox none" in refused.value.hint
    with pytest.raises(InvalidConfigurationError, match="has no column 'payload'"):
        await send_all(broker, db, topic, "hold", columns="value=payload")
    assert await send_all(broker, db, topic, "hold", table="new", create=True) == 0


@pytest.mark.parametrize("by", WAYS)
async def test_an_outbox_relay_told_to_keep_rows_marks_sent_ones_and_deletes_them_later(broker, db, path, topic, by):
    change(path, "insert into outbox (key, value) values ('k', '1'), ('k', '2')")
    assert await send_all(broker, db, topic, by, keep_ms=60_000) == 2
    assert await send_all(broker, db, topic, by, keep_ms=60_000) == 0
    assert await db.fetch("select count(*) from outbox where sent_at is not null") == [(2,)]
    change(path, "update outbox set sent_at = datetime('now', '-61 seconds') where position = 1")
    assert await send_all(broker, db, topic, by, keep_ms=60_000) == 0
    assert await db.fetch("select position from outbox") == [(2,)]
    assert await values_of(broker, topic) == [b"1", b"2"]


async def test_a_second_outbox_relay_of_the_same_name_ends_the_first(broker, db, path, topic):
    async with (
        sql.outbox(broker, db, to=topic, by="hold") as old,
        sql.connect(f"sqlite:///{path}") as other,
        sql.outbox(broker, other, to=topic, by="hold") as new,
    ):
        for value, relay in ((1, old), (2, new)):
            change(path, "insert into outbox (value) values (:value)", value=value)
            assert await relay.move() == 1
        change(path, "insert into outbox (value) values (3)")
        with pytest.raises(ProducerFencedError):
            await old.run()
        assert await new.move() == 1
    assert await values_of(broker, topic) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("other", ["hold", "names"])
async def test_an_outbox_relay_by_another_method_is_refused_while_numbered_rows_wait(broker, db, path, topic, other):
    """A relay by "offsets" numbers rows in a column; until they are sent, no relay by "hold" or "names" may begin."""
    await send_all(broker, db, topic, "offsets")
    change(path, "insert into outbox (key, value) values ('k', '1')", "update outbox set seq = 1")
    with pytest.raises(IllegalStateError, match=r"were numbered by relay .* by 'offsets'"):
        await send_all(broker, db, topic, other)
    await send_all(broker, db, topic, "offsets")
    change(path, "insert into outbox (key, value) values ('k', '2')")
    await send_all(broker, db, topic, other)
    assert await values_of(broker, topic) == [b"1", b"2"]


async def test_a_relay_whose_committed_offset_was_deleted_raises_until_given_resume_at(broker, db, path, topic):
    change(path, "insert into outbox (value) values (1), (2)")
    await send_all(broker, db, topic, "offsets")
    async with Admin(broker) as admin:
        await admin.delete_groups([topic])
    change(path, "insert into outbox (value) values (3)")
    with pytest.raises(InvalidConfigurationError, match="the broker has no place of this relay"):
        await send_all(broker, db, topic, "offsets")
    with pytest.raises(InvalidConfigurationError, match="no row has the number 3"):
        await send_all(broker, db, topic, "offsets", resume_at=3)
    assert await send_all(broker, db, topic, "offsets", resume_at=2) == 1
    assert await send_all(broker, db, topic, "offsets") == 0
    assert await values_of(broker, topic) == [b"1", b"2", b"3"]


async def test_an_outbox_relay_refuses_a_database_restored_to_before_its_committed_offset(broker, db, path, topic):
    change(path, "insert into outbox (value) values (1), (2)")
    await send_all(broker, db, topic, "offsets")
    change(path, "update fencepost_relays set last_seq = 1", "insert into outbox (value, seq) values (1, 1)")
    with pytest.raises(InvalidConfigurationError, match="the database is older than the broker"):
        await send_all(broker, db, topic, "offsets")
    assert await send_all(broker, db, topic, "offsets", resume_at=1) == 0
    assert await values_of(broker, topic) == [b"1", b"2"]


async def test_an_outbox_relay_refuses_another_database_than_its_committed_offset_names(
    broker, db, path, topic, tmp_path
):
    change(path, "insert into outbox (value) values (1), (2)")
    await send_all(broker, db, topic, "offsets")
    async with sql.connect(f"sqlite:///{tmp_path}/other.db") as other:
        with pytest.raises(InvalidConfigurationError, match="belongs to"):
            await send_all(broker, other, topic, "offsets", create=True)


async def test_an_idle_outbox_relay_commits_its_offset_again_before_it_expires(broker, db, path, topic, monkeypatch):
    committed = []
    commit = relaying.ByOffsets._commit

    async def noted(self, rows):
        committed.append(len(rows))
        await commit(self, rows)

    monkeypatch.setattr(relaying.ByOffsets, "_commit", noted)
    async with sql.outbox(broker, db, to=topic, by="offsets", name=topic) as relay:
        assert await relay.move() == 0
        assert await relay.move() == 0
        assert committed == [0]
        relay._moving._committed_ms -= 3_600_000
        assert await relay.move() == 0
        assert committed == [0, 0]


async def test_an_outbox_relay_given_no_method_uses_hold_if_the_broker_supports_it(broker, db, topic):
    async with sql.outbox(broker, db, to=topic) as relay:
        await relay.move()
        assert relay.way is Way.HOLD


async def test_an_outbox_relay_reports_a_locked_database_and_waits_for_it(broker, db, path, topic, monkeypatch):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_S", 0)
    troubles, is_locked = [], asyncio.Event()

    def note(error):
        if error is not None:
            troubles.append(error)
            is_locked.set()

    async with sql.connect(f"sqlite:///{path}") as own:
        relay = sql.outbox(broker, own, to=topic, by="hold", max_block_ms=300)
        await relay.move()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("insert into outbox (value) values (1)")
            connection.commit()
            connection.execute("begin immediate")
            running = asyncio.ensure_future(relay.run(until_empty=True, trouble=note))
            await is_locked.wait()
            connection.rollback()
        await running
        await relay.close()
    assert "locked" in str(troubles[0])
    assert await values_of(broker, topic) == [b"1"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"by": "luck"}, "cannot be sent by 'luck'"),
        ({"at_once": 0}, "at least one row"),
        ({"columns": "value="}, "needs a column for position, and one for value"),
    ],
)
async def test_an_outbox_refuses_an_unknown_method_an_at_once_of_0_and_an_empty_column(broker, db, more, why):
    with pytest.raises(InvalidConfigurationError, match=why):
        sql.outbox(broker, db, to="t", **more)


async def test_an_outbox_relay_refuses_resume_at_unless_it_works_by_offsets(broker, db, topic):
    with pytest.raises(KafkaError, match="only 'offsets'"):
        await send_all(broker, db, topic, "hold", resume_at=1)


# ---- tables without an order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", WAYS)
async def test_two_outbox_rows_with_the_same_position_are_refused_and_none_is_lost(broker, db, path, topic, by):
    change(path, "create table events (at text default 'now', value text, seq integer)")
    change(path, *["insert into events (value) values ('a')"] * 5)
    with pytest.raises(InvalidConfigurationError, match="two rows of events have the same 'at'"):
        await send_all(broker, db, topic, by, table="events", columns="position=at", at_once=2)
    assert await db.fetch("select count(*) from events") == [(5,)]


@pytest.mark.parametrize("by", WAYS)
async def test_a_row_without_a_position_ends_the_relay_and_is_not_overlooked(broker, db, path, topic, by):
    change(path, "create table events (position integer, value text, seq integer)")
    change(path, "insert into events (position, value) values (null, 'a'), (1, 'b')")
    with pytest.raises(OutboxRowError, match="nothing in the column 'position'"):
        await send_all(broker, db, topic, by, table="events", at_once=1)


async def test_an_outbox_table_in_sqlite_with_a_default_for_column_seq_is_refused(broker, db, path, topic):
    change(path, "create table events (position integer primary key, value text, seq integer not null default 0)")
    with pytest.raises(InvalidConfigurationError, match="fills the column 'seq' itself"):
        await send_all(broker, db, topic, "hold", table="events")
