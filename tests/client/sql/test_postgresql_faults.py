"""Settings that break the promise, COMMITs without an answer, locks of others, swallowed errors: at a real server."""

import asyncio
import signal

import pytest
from cutting_proxy import BEFORE, PLACES, CuttingProxy
from fencepost.client.errors import (
    AbortableTransactionError,
    CommitOutcomeUnknownError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    OutcomeDivergedError,
    ProducerFencedError,
)
from fencepost.client.sql import blocks, postgresql
from fencepost.client.sql.interfaces import RowHeld
from fencepost.client.transactions.deciding import Row, Waiting
from fencepost.client.transactions.sqlstates import sqlstate_of
from fencepost.client.values import ProducerIdentity
from orders import TABLE, records_of, rows_of, write
from postgres_server import PostgresServer

from fencepost import Broker, Producer, sql

pytestmark = pytest.mark.slow  # with a real database

WAITING = Waiting("sql:db:orders-1", "orders-1", ProducerIdentity(1, 0), 7)


@pytest.fixture(params=["asyncpg", "psycopg"])
def driver_url(request, postgres_url):
    return postgres_url.replace("postgresql:", f"postgresql+{request.param}:")


@pytest.fixture
async def db(driver_url):
    async with sql.connect(driver_url, create=True) as db:
        await db.execute(TABLE)
        yield db


# ---- settings --------------------------------------------------------------------------------------------------------


async def test_synchronous_commit_off_is_refused_at_the_start_and_in_a_transaction(broker, db, driver_url):
    async with Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(InvalidConfigurationError, match="synchronous_commit=off"):  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await db.execute("set local synchronous_commit = off")
                await db.execute("insert into orders values (1, 'alice')")
                await tx.send("orders", b"1")
        await write(producer, db, 2)
    assert await rows_of(db) == await records_of(broker) == [2]
    name = driver_url.rpartition("/")[2]
    await db.execute(f"alter database {name} set synchronous_commit = off")
    with pytest.raises(InvalidConfigurationError, match="synchronous_commit=off"):
        await sql.connect(driver_url).open()


@pytest.mark.parametrize("change", ["system_identifier = system_identifier + 1", "database_oid = database_oid + 1"])
async def test_a_copy_of_a_postgresql_database_with_the_same_identity_is_refused(db, driver_url, change):
    await db.execute(f"update fencepost_database set {change}")
    with pytest.raises(InvalidConfigurationError, match="is a copy"):
        await sql.connect(driver_url).open()
    with pytest.raises(InvalidConfigurationError, match="is a copy"):
        await db.close_number(WAITING)


async def test_close_number_raises_database_away_if_another_database_has_the_url(db):
    """close_number() makes it impossible to decide a transaction number any more in the database."""
    await db.execute("update fencepost_database set id = 'another'")
    with pytest.raises(postgresql.DatabaseAway, match="another database"):
        await db.close_number(WAITING)
    assert await db.fetch("select * from fencepost_writers") == []


@pytest.mark.slow
async def test_connecting_to_a_postgresql_replica_raises(postgres, postgres_url):
    server = PostgresServer(postgres.programs, "fsync=off")
    try:
        server.make()
        async with sql.connect(server.url("postgres"), create=True) as db:
            server.end()
            (server.data / "standby.signal").touch()
            server.start()
            with pytest.raises(InvalidConfigurationError, match="is a replica"):
                await sql.connect(server.url("postgres")).open()
            with pytest.raises(postgresql.DatabaseAway, match="during recovery"):  # it may still become the primary
                await db.close_number(WAITING)
    finally:
        server.remove()


async def test_a_broker_without_two_phase_commit_is_refused_naming_the_setting_to_enable(db):
    async with (
        Broker(transaction_two_phase_commit_enable=False) as broker,
        Producer(broker.bootstrap_servers, transactional_id="orders-1") as producer,
    ):
        with pytest.raises(InvalidConfigurationError) as refused:
            await write(producer, db, 1)
        assert "transaction.two.phase.commit.enable" in refused.value.hint
    assert await rows_of(db) == []


async def test_a_postgresql_role_without_rights_gets_an_error_naming_the_table_at_once(broker, db, driver_url):
    await db.execute("drop role if exists stranger; create role stranger login")
    await db.execute("grant select on fencepost_database to stranger")
    async with (
        sql.connect(driver_url.replace("fencepost@", "stranger@")) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        with pytest.raises(InvalidConfigurationError, match="permission denied for table fencepost_writers"):
            await write(producer, own, 1)
    await db.execute("drop owned by stranger; drop role stranger")


# ---- COMMIT ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [*PLACES[:-1], pytest.param(PLACES[-1], marks=pytest.mark.slow)])
async def test_after_a_postgresql_commit_without_an_answer_rows_equal_records(
    broker, db, driver_url, monkeypatch, place, postgres
):
    monkeypatch.setattr(blocks, "COMMIT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(blocks, "ROLLBACK_TIMEOUT_S", 0.3)
    async with (
        CuttingProxy(postgres.port, place) as proxy,
        sql.connect(driver_url.replace(f":{postgres.port}", f":{proxy.port}")) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        await write(producer, own, 0)
        proxy.armed = True
        if place == BEFORE:
            with pytest.raises(Exception) as refused:  # the driver's
                await write(producer, own, 1)
            assert not isinstance(refused.value, KafkaError)
        else:
            await write(producer, own, 1)
        assert proxy.cuts == 1
        await write(producer, own, 2)
    assert await rows_of(db) == await records_of(broker) == ([0, 2] if place == BEFORE else [0, 1, 2])


async def test_a_commit_without_an_answer_is_unknown_as_long_as_asking_is_refused(broker, db, driver_url):
    """The role loses its rights on the table with the answer."""
    await db.execute("create role asker login; grant all on all tables in schema public to asker")
    async with (
        sql.connect(driver_url.replace("fencepost@", "asker@")) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        await write(producer, own, 1)
        commit = own.commit

        async def lose_answer_and_rights():
            await commit()
            await db.execute("revoke all on fencepost_writers from asker")
            raise ConnectionError("gone")

        own.commit = lose_answer_and_rights
        for _ in range(2):  # the next transaction has to know it first
            with pytest.raises(CommitOutcomeUnknownError) as unknown:
                await write(producer, own, 2)
            assert "permission denied" in str(unknown.value.__cause__)
            own.commit = commit
        assert await unknown.value.resolve() == "unknown"
        await db.execute("grant all on fencepost_writers to asker")
        assert await unknown.value.resolve() == "committed"
        await write(producer, own, 3)
    assert await rows_of(db) == await records_of(broker) == [1, 2, 3]
    await db.execute("drop owned by asker; drop role asker")


async def test_a_commit_refused_by_postgresql_aborts_the_record_and_raises_its_error(broker, db):
    await db.execute("create table lines (id integer references orders (id) deferrable initially deferred)")
    async with Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(Exception) as refused:  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into lines values (7)")
                await tx.send("orders", b"7")
        assert (sqlstate_of(refused.value), tx.outcome) == ("23503", "aborted")
        await write(producer, db, 8)
    assert await db.fetch("select * from lines") == []
    assert await records_of(broker) == [8]


async def test_a_serialization_failure_raises_the_postgresql_drivers_own_error(broker, db, driver_url):
    await write_rows(db, 1)
    async with sql.connect(driver_url) as other, Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(Exception) as refused:  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await db.execute("set transaction isolation level serializable")
                await db.fetch("select * from orders")
                await other.execute("update orders set name = 'bob'")
                await tx.send("orders", b"1")
                await db.execute("update orders set name = 'carol'")
        assert sqlstate_of(refused.value) == "40001"
        await write(producer, db, 2)
    assert await records_of(broker) == [2]


async def write_rows(db, *numbers):
    for number in numbers:
        await db.execute("insert into orders values ($1, 'alice')", number)


# ---- errors inside ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("statement", ["select 1; commit; begin", ";commit and chain", "select 1; rollback and chain"])
async def test_a_text_that_ends_the_transaction_and_begins_another_raises(broker, db, statement, sends):
    async with Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(OutcomeDivergedError, match="its mark is gone"):  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into orders values (1, 'alice')")
                if sends:
                    await tx.send("orders", b"1")
                await db.execute(statement)
        await write(producer, db, 2)
    assert await records_of(broker) == [2]


async def test_an_error_swallowed_after_the_decision_aborts_the_transaction(broker, db, monkeypatch):
    """Another task may run a statement while the records are on their way. COMMIT would roll back without an error."""
    decide = db.decide

    async def beside(*arguments):
        decided = await decide(*arguments)
        with pytest.raises(Exception, match="division by zero"):
            await db.execute("select 1 / 0")
        return decided

    async with Producer(broker, transactional_id="orders-1") as producer:
        with monkeypatch.context() as patch:
            patch.setattr(db, "decide", beside)
            with pytest.raises(IllegalStateError, match="swallowed"):
                await write(producer, db, 1)
        await write(producer, db, 2)
    assert await rows_of(db) == await records_of(broker) == [2]


@pytest.mark.parametrize("sends", [True, False])
async def test_a_transaction_whose_body_swallowed_a_postgresql_error_is_aborted_as_a_whole(broker, db, sends):
    await write_rows(db, 1)
    async with Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(IllegalStateError, match="swallowed"):  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into orders values (2, 'alice')")
                with pytest.raises(Exception, match="duplicate key"):
                    await db.execute("insert into orders values (1, 'alice')")
                if sends:
                    await tx.send("orders", b"2")
        await write(producer, db, 3)
    assert await rows_of(db) == [1, 3]
    assert await records_of(broker) == [3]


# ---- locks -----------------------------------------------------------------------------------------------------------


async def test_close_number_raises_naming_the_session_that_holds_the_writers_row(broker, db, driver_url, monkeypatch):
    """A resolver can end that session of PostgreSQL; then the number can be closed, and the session's writer cannot
    commit it.
    """
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.1)
    async with sql.connect(driver_url) as resolver:
        generation = (await db.claim("orders-1")).generation
        await db.begin()
        assert await db.decide("orders-1", generation, WAITING)
        ((session,),) = await db.fetch("select pg_backend_pid()")
        with pytest.raises(RowHeld, match=f"session {session} holds") as held:
            await resolver.close_number(WAITING)
        await resolver.terminate_session(held.value.session + 1, "orders-1")
        await db.fetch("select 1")
        await resolver.terminate_session(held.value.session, "orders-1")
        assert await resolver.close_number(WAITING) == Row(generation, 7, False)
        with pytest.raises(Exception):  # noqa: B017, the driver's
            await db.commit()
        await db.rollback()
        await db.begin()  # over a new connection
        assert not await db.decide("orders-1", generation, WAITING)
        await db.rollback()


@pytest.mark.parametrize("again", [False, True])
async def test_an_id_is_not_claimed_or_looked_at_while_a_decision_about_it_is_open(db, driver_url, monkeypatch, again):
    """again: claim() only looks at the row, and does not raise its generation."""
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.1)
    async with sql.connect(driver_url) as other:
        generation = (await db.claim("orders-1")).generation
        await db.begin()
        assert await db.decide("orders-1", generation, WAITING)
        with pytest.raises(RowHeld):
            await other.claim("orders-1", again)
        await db.commit()
        assert await other.claim("orders-1", again) == Row(generation + (not again), 7, True)


async def test_the_session_that_holds_a_row_is_named_despite_a_short_statement_timeout(db, postgres_url, monkeypatch):
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.5)
    await db.execute(f"alter database {postgres_url.rpartition('/')[2]} set statement_timeout = 100")
    generation = (await db.claim("orders-1")).generation
    await db.begin()
    assert await db.decide("orders-1", generation, WAITING)
    with pytest.raises(RowHeld, match=r"session \d+ holds"):
        await db.close_number(WAITING)


async def test_a_hanging_writer_whose_postgresql_session_is_ended_gets_the_drivers_error(
    broker, db, driver_url, monkeypatch
):
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.1)
    prepared, go_on = asyncio.Event(), asyncio.Event()
    commit = db.commit

    async def hang():
        prepared.set()
        await go_on.wait()
        await commit()

    async with sql.connect(driver_url) as other, Producer(broker, transactional_id="orders-1") as producer:
        monkeypatch.setattr(db, "commit", hang)
        writing = asyncio.ensure_future(write(producer, db, 1))
        await prepared.wait()
        (found,) = await sql.resolve(broker, other)
        assert (found.result, "holds the row" in found.reason) == ("undecided", True)
        (found,) = await sql.resolve(broker, other, terminate=True)
        assert (found.result, found.reason) == ("aborted", "")
        go_on.set()
        with pytest.raises(Exception) as refused:  # the driver's
            await writing
        assert not isinstance(refused.value, KafkaError)
        monkeypatch.setattr(db, "commit", commit)
        await write(producer, db, 2)
    assert await rows_of(db) == await records_of(broker) == [2]


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
async def test_a_transaction_number_closed_in_the_database_cannot_be_committed_later(db, driver_url, level):
    generation = (await db.claim("orders-1")).generation
    async with sql.connect(driver_url) as resolver:
        await db.begin()
        await db.execute(f"set transaction isolation level {level}")
        await db.fetch("select * from orders")
        assert await resolver.close_number(WAITING) == Row(generation, 7, False)
        if level == "read committed":
            assert not await db.decide("orders-1", generation, WAITING)
        else:
            with pytest.raises(Exception) as refused:  # the driver's
                await db.decide("orders-1", generation, WAITING)
            assert sqlstate_of(refused.value) == "40001"
        await db.rollback()
        # 7 is closed, so a lower number needs no change.
        assert await resolver.close_number(WAITING._replace(number=6)) == Row(generation, 7, False)


async def test_a_producer_whose_successor_has_claimed_the_id_is_fenced(broker, db, driver_url):
    async with Producer(broker, transactional_id="orders-1") as zombie:
        await write(zombie, db, 1)
        async with (
            Producer(broker, transactional_id="orders-1") as successor,
            sql.connect(driver_url) as own,
        ):
            await write(successor, own, 2)
            with pytest.raises(ProducerFencedError):
                await write(zombie, db, 3)
            await write(successor, own, 4)
    assert await rows_of(db) == await records_of(broker) == [1, 2, 4]


async def test_a_restored_database_or_broker_is_reported_as_older(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer:
        await write(producer, db, 1)
        await db.execute("update fencepost_writers set number = -1, committed = 0")  # as an old backup has it
    async with Producer(broker, transactional_id="orders-1") as successor:
        with pytest.raises(OutcomeDivergedError, match="the database is older"):
            await write(successor, db, 2)
    # As if the broker was restored from a backup that does not have number 7.
    await db.execute("update fencepost_writers set number = 7, committed = 1")
    async with Producer(broker, transactional_id="orders-1") as successor:
        with pytest.raises(OutcomeDivergedError, match="the broker is older"):
            await write(successor, db, 2)


# ---- away ------------------------------------------------------------------------------------------------------------


async def test_after_its_postgresql_session_was_ended_a_writer_uses_a_new_connection(broker, db, driver_url):
    """If the driver notices the end only within block 2, that block commits neither row nor record. If it notices it
    before, all blocks are committed.
    """
    async with sql.connect(driver_url) as other, Producer(broker, transactional_id="orders-1") as producer:
        await write(producer, db, 1)
        ((session,),) = await db.fetch("select pg_backend_pid()")
        await other.fetch("select pg_terminate_backend($1)", session)
        written = [1, 2, 3]
        try:
            await write(producer, db, 2)
        except Exception as refused:  # the driver's, or the SDK's if it is seen only at the end
            if isinstance(refused, KafkaError) and not isinstance(refused, AbortableTransactionError):
                raise
            written.remove(2)
        await write(producer, db, 3)
    assert await rows_of(db) == await records_of(broker) == written


@pytest.mark.slow
async def test_the_outcome_of_a_commit_is_unknown_until_the_killed_postgresql_is_back(broker, postgres, monkeypatch):
    server = PostgresServer(postgres.programs, "fsync=off")
    try:
        server.make()
        url = server.url("postgres")
        async with sql.connect(url, create=True) as db:
            await db.execute(TABLE)
            async with Producer(broker, transactional_id="orders-1", max_block_ms=1_000) as producer:
                await write(producer, db, 1)
                commit = db.commit

                async def commit_and_die():
                    await commit()
                    await asyncio.to_thread(server.end, signal.SIGKILL)
                    raise ConnectionError("the server is gone")

                monkeypatch.setattr(db, "commit", commit_and_die)
                with pytest.raises(CommitOutcomeUnknownError) as unknown:
                    await write(producer, db, 2)
                monkeypatch.setattr(db, "commit", commit)
                assert await unknown.value.resolve() == "unknown"
                await asyncio.to_thread(server.start)
                assert await unknown.value.resolve() == "committed"
                await write(producer, db, 3)
            assert await rows_of(db) == await records_of(broker) == [1, 2, 3]
    finally:
        server.remove()
