"""A blocking Session of SQLAlchemy takes part in transactions: with SQLite, and with PostgreSQL by psycopg."""

import asyncio
import contextlib

import pytest
from cutting_proxy import BEFORE, SENT, CuttingProxy
from fencepost.client.errors import IllegalStateError, InvalidConfigurationError, OutcomeDivergedError
from orders import TABLE, records_of
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from fencepost import Broker, sync
from fencepost.sync import sql

pytestmark = pytest.mark.slow  # with a real database


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


@pytest.fixture
def broker(tmp_path):
    with Broker(data_dir=tmp_path / "broker", transaction_two_phase_commit_enable=True) as broker:
        yield broker.bootstrap_servers


def durable(engine):
    """Let each connection of an engine of SQLite wait until what it commits is on disk."""
    event.listen(engine, "connect", lambda connection, _: connection.execute("pragma synchronous = extra"))
    return engine


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path}/orders.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def engine(url):
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield durable(engine) if url.startswith("sqlite") else engine
    engine.dispose()


@pytest.fixture
def db(url):
    """Yield the database of the engine, opened by its URL, with the table orders."""
    with sql.connect(url, create=True) as db:
        db.execute(TABLE)
        yield db


@pytest.fixture
def session(engine, db):
    with Session(engine) as session:
        yield session


@pytest.fixture
def own(session):
    with sql.connect(session) as own:
        yield own


@pytest.fixture
def producer(broker):
    with sync.Producer(broker, transactional_id="orders-1") as producer:
        yield producer


def write(producer, own, number):
    with producer.transaction(db=own) as tx:
        own.execute("insert into orders values ($1, 'alice')", number)
        tx.send("orders", b"%d" % number)


def rows_of(db):
    return [row[0] for row in db.fetch("select id from orders order by id")]


def test_objects_of_a_blocking_session_are_committed_with_records(broker, db, session, own, producer):
    with producer.transaction(db=own) as tx:
        session.add(Order(id=1, name="alice"))
        tx.send("orders", b"1")
    with pytest.raises(ValueError, match="no"), producer.transaction(db=own) as tx:  # noqa: PT012
        session.add(Order(id=2, name="bob"))
        tx.send("orders", b"2")
        raise ValueError("no")
    with producer.transaction(db=own, wait="decided") as tx:
        with pytest.raises(IntegrityError), session.begin_nested():
            session.add(Order(id=1, name="again"))
        with pytest.raises(ValueError, match="undone"), own.transaction():  # noqa: PT012
            own.execute("insert into orders values (4, 'bob')")
            raise ValueError("undone")
        with own.transaction():
            session.execute(text("insert into orders values (3, 'eve')"))
        tx.send("orders", b"3")
    write(producer, own, 5)
    assert not session.in_transaction()
    assert rows_of(db) == asyncio.run(records_of(broker)) == [1, 3, 5]


def test_a_statement_outside_a_blocking_transaction_commits_without_the_session(broker, db, session, own, producer):
    assert own.execute("insert into orders values ($1, 'alice')", 1) == 1
    assert rows_of(own) == rows_of(db) == [1]
    assert not session.in_transaction()
    write(producer, own, 2)
    assert rows_of(db) == [1, 2]


def test_a_blocking_sessions_object_refused_by_the_database_aborts_the_record(broker, db, session, own, producer):
    db.execute("insert into orders values (1, 'alice')")
    with pytest.raises(IntegrityError), producer.transaction(db=own) as tx:  # noqa: PT012
        session.add(Order(id=1, name="alice"))
        tx.send("orders", b"1")
    write(producer, own, 2)
    assert rows_of(db) == [1, 2]
    assert asyncio.run(records_of(broker)) == [2]


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("by", ["method", "statement", "statements"])
def test_committing_a_blocking_session_inside_a_producer_transaction_raises(
    broker, db, session, own, producer, goes_on, by
):
    """The rows of that commit stay, the record is aborted: OutcomeDivergedError."""
    with (  # noqa: PT012
        pytest.raises(OutcomeDivergedError, match="committed or rolled back inside"),
        producer.transaction(db=own) as tx,
    ):
        session.add(Order(id=1, name="alice"))
        session.flush()
        tx.send("orders", b"1")
        session.commit() if by == "method" else session.execute(text("commit"))
        if by == "statements":
            session.execute(text("begin"))
        if goes_on:
            session.add(Order(id=2, name="bob"))
    write(producer, own, 3)
    assert rows_of(db) == [1, 3]
    assert asyncio.run(records_of(broker)) == [3]


def test_a_blocking_session_already_in_a_transaction_is_refused_with_a_hint(broker, db, session, own, producer):
    session.get(Order, 1)
    with pytest.raises(IllegalStateError, match="in a transaction already") as refused:
        write(producer, own, 1)
    assert "end it before" in refused.value.hint
    session.rollback()
    write(producer, own, 2)
    assert rows_of(db) == asyncio.run(records_of(broker)) == [2]


def test_run_repeats_a_sessions_work_after_a_serialization_failure_of_postgresql(
    broker, db, session, own, producer, url
):
    if url.startswith("sqlite"):  # it has no such failure: the work is done once
        assert producer.run(lambda tx: own.execute("insert into orders values (1, 'a')"), db=own) == 1
        return
    db.execute("insert into orders values (1, 'alice')")
    seen = []

    def work(tx):
        session.execute(text("set transaction isolation level repeatable read"))
        session.expire_all()
        order = session.get(Order, 1)
        seen.append(order.name)
        tx.send("orders", b"1")
        if len(seen) == 1:
            db.execute("update orders set name = 'bob'")
        order.name = f"{order.name} and us"

    producer.run(work, db=own)
    assert seen == ["alice", "bob"]
    assert db.fetch("select name from orders") == [("bob and us",)]
    assert asyncio.run(records_of(broker)) == [1]


def test_a_transaction_that_swallowed_a_blocking_sessions_error_commits_no_record(
    broker, db, session, own, producer, url
):
    if url.startswith("sqlite"):  # a failed statement of SQLite ends the transaction only if it says "or rollback"
        statement, error = "insert or rollback into orders values (1, 'alice')", OutcomeDivergedError
        db.execute("insert into orders values (1, 'alice')")
    else:
        statement, error = "select * from nothing", IllegalStateError
    with pytest.raises(error), producer.transaction(db=own) as tx:  # noqa: PT012
        tx.send("orders", b"1")
        with pytest.raises(DBAPIError):
            session.execute(text(statement))
    write(producer, own, 2)
    assert asyncio.run(records_of(broker)) == [2]


def test_an_autocommit_engine_is_refused_for_postgresql_and_can_roll_back_for_sqlite(broker, db, producer, url):
    engine = durable(create_engine(url)) if url.startswith("sqlite") else None
    if engine is not None:
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    else:
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with Session(engine) as session, sql.connect(session, ask=None if url.startswith("sqlite") else url) as own:
        if url.startswith("sqlite"):
            with pytest.raises(ValueError, match="no"), producer.transaction(db=own):  # noqa: PT012
                own.execute("insert into orders values (1, 'alice')")
                raise ValueError("no")
        else:
            with pytest.raises(InvalidConfigurationError, match="commits each statement") as refused:
                write(producer, own, 1)
            assert "AUTOCOMMIT" in refused.value.hint
    engine.dispose()
    assert rows_of(db) == []


def test_objects_of_a_scoped_session_are_committed_with_records(broker, db, engine, producer):
    registry = scoped_session(sessionmaker(engine))
    with sql.connect(registry) as own, producer.transaction(db=own) as tx:
        registry.add(Order(id=1, name="alice"))
        tx.send("orders", b"1")
    registry.remove()
    assert rows_of(db) == asyncio.run(records_of(broker)) == [1]


def test_a_sessions_block_in_another_sqlite_file_than_was_opened_is_refused(tmp_path, broker, producer):
    path, engine = tmp_path / "orders.db", durable(create_engine(f"sqlite:///{tmp_path}/orders.db"))
    with Session(engine) as session, sql.connect(session) as own:
        own.execute(TABLE)
        write(producer, own, 1)
        engine.dispose()
        path.rename(tmp_path / "moved.db")
        with sql.connect(f"sqlite:///{path}") as other:
            other.execute(TABLE)
            with pytest.raises(InvalidConfigurationError, match="another database than the one that was opened"):
                write(producer, own, 2)
            assert rows_of(other) == []
    engine.dispose()


@pytest.mark.parametrize("place", [BEFORE, SENT])
def test_the_outcome_of_a_blocking_sessions_commit_cut_off_is_looked_up(
    broker, postgres, postgres_url, producer, place
):
    rows, numbers = asyncio.run(_cut(broker, postgres, postgres_url, producer, place))
    assert rows == numbers == ([1, 3] if place == BEFORE else [1, 2, 3])


async def _cut(broker, postgres, postgres_url, producer, place):
    """Write three rows, and cut the connection at the second COMMIT: at `place`, before or after it is sent. Returns
    the rows and the records.
    """

    def work(proxy):
        url = postgres_url.replace("postgresql:", "postgresql+psycopg:").replace(f":{postgres.port}", f":{proxy.port}")
        engine = create_engine(url)
        with sql.connect(postgres_url, create=True) as db, Session(engine) as session, sql.connect(session) as own:
            db.execute(TABLE)
            write(producer, own, 1)
            proxy.armed = True
            if place == BEFORE:
                with pytest.raises(DBAPIError):
                    write(producer, own, 2)
            else:
                write(producer, own, 2)
            assert proxy.cuts == 1
            write(producer, own, 3)
            found = rows_of(db)
        engine.dispose()
        return found

    async with CuttingProxy(postgres.port, place) as proxy:
        rows = await asyncio.to_thread(work, proxy)
    return rows, await records_of(broker)


@pytest.mark.parametrize(
    ("session", "cause"),
    [
        (Session(), "not a session of an engine"),
        (Session(create_engine("sqlite://")), "does not name a file"),
        (Session(create_engine("sqlite:///:memory:")), "does not name a file"),
        (Session(create_engine("sqlite:////tmp/orders.db"), twophase=True), "twophase"),
    ],
)
def test_sql_connect_refuses_a_session_without_engine_or_file_or_with_twophase(session, cause):
    with pytest.raises(InvalidConfigurationError, match=cause):
        sql.connect(session)


@pytest.fixture
def other(tmp_path):
    engine = durable(create_engine(f"sqlite:///{tmp_path}/other.db"))
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def test_a_blocking_session_with_binds_to_two_databases_is_refused_at_the_start(engine, other):
    sql.connect(Session(engine, binds={Order: engine}))
    with pytest.raises(InvalidConfigurationError, match="several databases") as refused:
        sql.connect(Session(engine, binds={Order: other}))
    assert "one database" in refused.value.hint


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_session_that_chooses_a_second_database_in_a_block_commits_nothing(
    broker, db, engine, other, producer, goes_on
):
    class Choosing(Session):
        """As sessions of Flask-SQLAlchemy: without binds, it has an engine for each class."""

        def get_bind(self, mapper=None, **more):
            return engine if mapper is None else other

    with Choosing(engine) as session, sql.connect(session) as own:
        assert session.get(Order, 1) is None  # outside of a block it may
        session.rollback()
        with pytest.raises(Exception) as refused, producer.transaction(db=own) as tx:  # noqa: PT012
            tx.send("orders", b"1")
            own.execute("insert into orders values (1, 'alice')")
            with contextlib.suppress(InvalidConfigurationError if goes_on else ()):
                session.get(Order, 1)
            session.add(Order(id=1, name="alice"))
        if not goes_on:
            assert "several databases" in str(refused.value)
        assert session.get(Order, 1) is None
    assert rows_of(db) == asyncio.run(records_of(broker)) == []


def test_a_blocking_session_with_sqlite_settings_that_can_lose_commits_is_refused(broker, tmp_path, producer):
    """At the start, and in a block if the engine's next connection has other settings."""
    unsafe = pytest.raises(InvalidConfigurationError, match="synchronous=FULL with journal_mode=DELETE")
    engine = create_engine(f"sqlite:///{tmp_path}/orders.db")
    with Session(engine) as session:
        with unsafe as refused:
            sql.connect(session).start()
        assert "extra" in refused.value.hint
        with engine.connect() as connection:
            connection.exec_driver_sql("pragma synchronous = extra")
        with sql.connect(session) as own:
            engine.dispose()
            with unsafe:
                write(producer, own, 1)
            assert not session.in_transaction()
    engine.dispose()


def test_a_session_raises_locked_while_another_sqlite_writer_is_open(tmp_path, broker, producer):
    engine = durable(create_engine(f"sqlite:///{tmp_path}/orders.db", connect_args={"timeout": 0.1}))
    with (
        Session(engine) as session,
        sql.connect(session) as own,
        sql.connect(f"sqlite:///{tmp_path}/orders.db") as other,
        sync.Producer(broker, transactional_id="orders-2") as second,
    ):
        own.execute(TABLE)
        write(producer, own, 0)
        with second.transaction(db=other) as tx:
            other.execute("insert into orders values (1, 'bob')")
            with pytest.raises(DBAPIError, match="locked"):
                write(producer, own, 2)
            tx.send("orders", b"1")
        write(producer, own, 3)
        assert rows_of(own) == asyncio.run(records_of(broker)) == [0, 1, 3]
    engine.dispose()
