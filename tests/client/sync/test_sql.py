"""The blocking producer commits over the broker and a database: its own connection, or one of a blocking driver."""

import asyncio
import sqlite3

import psycopg
import psycopg_pool
import pytest
from fencepost.client.errors import InvalidConfigurationError, OutcomeDivergedError
from orders import TABLE, records_of

from fencepost import Broker, sync
from fencepost.sync import sql

pytestmark = pytest.mark.slow  # with a real database


@pytest.fixture
def broker(tmp_path):
    with Broker(data_dir=tmp_path / "broker", transaction_two_phase_commit_enable=True) as broker:
        yield broker.bootstrap_servers


def write(producer, db, number):
    with producer.transaction(db=db) as tx:
        db.execute("insert into orders values ($1, 'alice')", number)
        tx.send("orders", b"%d" % number)


def rows_of(db):
    return [row[0] for row in db.fetch("select id from orders order by id")]


@pytest.mark.parametrize("kind", ["sqlite", "asyncpg", "psycopg"])
def test_sync_sql_connect_by_url_commits_rows_with_records(broker, tmp_path, request, kind):
    """A block of the caller inside is a savepoint; wait="decided" and run() work as in the asynchronous client."""
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/orders.db"
    else:
        url = request.getfixturevalue("postgres_url").replace("postgresql:", f"postgresql+{kind}:")
    with (
        sql.connect(url, create=True) as db,
        sync.Producer(broker, transactional_id=kind) as producer,
    ):
        db.execute(TABLE)
        write(producer, db, 1)
        with pytest.raises(ValueError, match="no"), producer.transaction(db=db) as tx:  # noqa: PT012
            db.execute("insert into orders values (2, 'bob')")
            tx.send("orders", b"2")
            raise ValueError("no")
        with producer.transaction(db=db, wait="decided") as tx:
            with pytest.raises(ValueError, match="undone"), db.transaction():  # noqa: PT012
                db.execute("insert into orders values (3, 'bob')")
                raise ValueError("undone")
            with db.transaction():
                db.execute("insert into orders values (4, 'bob')")
            tx.send("orders", b"4")
        assert producer.run(lambda tx: db.execute("insert into orders values (5, 'eve')"), db=db) == 1
        assert rows_of(db) == [1, 4, 5]
        assert sql.resolve(broker, db, dry_run=True) == []
    assert asyncio.run(records_of(broker)) == [1, 4]


def test_a_psycopg_connections_own_blocks_are_savepoints_in_a_blocking_transaction(broker, postgres_url):
    """Its own commit() in there is refused by psycopg, and then rows and records are rolled back."""
    with (
        psycopg.connect(postgres_url) as connection,
        sql.connect(connection, ask=postgres_url, create=True) as db,
        sync.Producer(broker, transactional_id="own-psycopg") as producer,
    ):
        db.execute(TABLE)
        with producer.transaction(db=db) as tx:
            connection.execute("insert into orders values (%s, 'alice')", [1])
            with pytest.raises(ValueError, match="undone"), connection.transaction():  # noqa: PT012
                connection.execute("insert into orders values (2, 'bob')")
                raise ValueError("undone")
            tx.send("orders", b"1")
        with pytest.raises(psycopg.ProgrammingError, match="forbidden"), producer.transaction(db=db) as tx:  # noqa: PT012
            connection.execute("insert into orders values (3, 'alice')")
            tx.send("orders", b"3")
            connection.commit()
        assert rows_of(db) == [1]
    assert asyncio.run(records_of(broker)) == [1]


def test_sync_sql_connect_takes_a_psycopg_pool_and_returns_its_connection_after_use(broker, postgres_url):
    """The pool has one connection only, so it could not be used afterwards if anything had kept it."""
    with (
        psycopg_pool.ConnectionPool(postgres_url, min_size=1, max_size=1, open=True) as pool,
        sql.connect(pool, create=True) as db,
        sync.Producer(broker, transactional_id="pool-psycopg") as producer,
    ):
        db.execute(TABLE)
        write(producer, db, 1)
        with pool.connection() as connection:
            assert connection.execute("select id from orders").fetchall() == [(1,)]
    assert asyncio.run(records_of(broker)) == [1]


def durable(path, **options):
    connection = sqlite3.connect(path, **options)
    connection.execute("pragma synchronous = extra")
    return connection


@pytest.mark.parametrize(
    "commits",
    [
        pytest.param(sqlite3.Connection.commit, id="commit"),
        pytest.param(lambda own: own.executescript("begin"), id="executescript"),  # which commits before it begins
    ],
)
@pytest.mark.parametrize("sends", [True, False])
def test_an_sqlite3_connection_commits_rows_with_records_and_stays_open(broker, tmp_path, commits, sends):
    """A commit of the caller inside a transaction raises OutcomeDivergedError; later transactions work."""
    connection = durable(tmp_path / "orders.db", check_same_thread=False)
    with (
        sql.connect(connection) as db,
        sync.Producer(broker, transactional_id="own-sqlite") as producer,
    ):
        db.execute(TABLE)
        with producer.transaction(db=db) as tx:
            connection.execute("insert into orders values (?, 'alice')", [1])
            tx.send("orders", b"1")
        with (  # noqa: PT012
            pytest.raises(OutcomeDivergedError, match="committed or rolled back inside"),
            producer.transaction(db=db) as tx,
        ):
            connection.execute("insert into orders values (2, 'alice')")
            if sends:
                tx.send("orders", b"2")
            commits(connection)
        db.execute("insert into orders values (3, 'alice')")
        assert not connection.in_transaction
        write(producer, db, 4)
    assert connection.execute("select id from orders").fetchall() == [(1,), (2,), (3,), (4,)]
    connection.close()
    assert asyncio.run(records_of(broker)) == [1, 4]


def as_dict(cursor, row):
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("row_factory", [sqlite3.Row, as_dict])
def test_an_sqlite3_connections_row_factory_is_used_for_its_own_rows_only(broker, tmp_path, row_factory):
    connection = durable(tmp_path / "orders.db", check_same_thread=False)
    connection.row_factory = row_factory
    with sql.connect(connection) as db, sync.Producer(broker, transactional_id="own-rows") as producer:
        db.execute(TABLE)
        write(producer, db, 1)
        assert db.fetch("select id, name from orders") == [(1, "alice")]
    assert connection.execute("select name from orders").fetchone()["name"] == "alice"
    connection.close()


class Autocommit(sqlite3.Connection):
    """As with autocommit=True from Python 3.12 on: these methods do nothing."""

    def commit(self):
        pass

    def rollback(self):
        pass


def test_a_failed_block_of_an_sqlite3_connection_in_autocommit_mode_is_rolled_back(broker, tmp_path):
    connection = durable(tmp_path / "orders.db", factory=Autocommit, isolation_level=None, check_same_thread=False)
    with sql.connect(connection) as db, sync.Producer(broker, transactional_id="autocommit") as producer:
        db.execute(TABLE)
        with pytest.raises(ZeroDivisionError), producer.transaction(db=db):  # noqa: PT012
            connection.execute("insert into orders values (1, 'alice')")
            raise ZeroDivisionError
        assert not connection.in_transaction
        write(producer, db, 2)
        assert db.fetch("select id from orders") == [(2,)]
    connection.close()


def test_an_sqlite3_connection_that_returns_text_as_bytes_is_refused(tmp_path):
    connection = durable(tmp_path / "orders.db", check_same_thread=False)
    connection.text_factory = bytes
    with pytest.raises(InvalidConfigurationError, match="text_factory"):
        sql.connect(connection).start()
    connection.close()


def test_sqlite3_connections_in_memory_bound_to_a_thread_or_not_durable_are_refused(tmp_path):
    for connection, cause in (
        (durable(":memory:", check_same_thread=False), "in memory"),
        (durable(tmp_path / "orders.db"), "thread"),
        (sqlite3.connect(tmp_path / "orders.db", check_same_thread=False), "synchronous=FULL"),
    ):
        with pytest.raises(InvalidConfigurationError, match=cause), sql.connect(connection):
            pass
        connection.close()
