"""An AsyncSession of SQLAlchemy takes part in a producer's transactions."""

import pytest
from cutting_proxy import BEFORE, SENT, CuttingProxy
from fencepost.client.errors import IllegalStateError, InvalidConfigurationError, OutcomeDivergedError
from orders import records_of, rows_of, write
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from fencepost import Producer, sql

pytestmark = pytest.mark.slow  # with a real database


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


@pytest.fixture(params=["asyncpg", "psycopg"])
async def session(request, db, postgres_url):
    engine = create_async_engine(postgres_url.replace("postgresql:", f"postgresql+{request.param}:"))
    async with AsyncSession(engine, expire_on_commit=False) as session:
        yield session
    await engine.dispose()


async def test_objects_of_an_sqlalchemy_session_are_committed_with_records(broker, db, session):
    async with (
        sql.connect(session, create=True) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        async with producer.transaction(db=own) as tx:
            session.add(Order(id=1, name="alice"))
            await tx.send("orders", b"1")
        with pytest.raises(ValueError, match="no"):  # noqa: PT012
            async with producer.transaction(db=own) as tx:
                session.add(Order(id=2, name="bob"))
                await tx.send("orders", b"2")
                raise ValueError("no")
        async with producer.transaction(db=own) as tx:
            with pytest.raises(IntegrityError):
                async with session.begin_nested():
                    session.add(Order(id=1, name="again"))
            await session.execute(text("insert into orders values (3, 'eve')"))
            await tx.send("orders", b"3")
        await write(producer, own, 1 << 20)
        assert not session.in_transaction()
    assert await rows_of(db) == await records_of(broker) == [1, 3, 1 << 20]


async def test_an_sqlalchemy_object_that_the_database_refuses_aborts_the_record(broker, db, session):
    await db.execute("insert into orders values (1, 'alice')")
    async with sql.connect(session) as own, Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(IntegrityError):  # noqa: PT012
            async with producer.transaction(db=own) as tx:
                session.add(Order(id=1, name="alice"))
                await tx.send("orders", b"1")
        await write(producer, own, 2)
    assert await rows_of(db) == [1, 2]
    assert await records_of(broker) == [2]


@pytest.mark.parametrize("goes_on", [True, False])
async def test_committing_an_sqlalchemy_session_inside_a_producer_transaction_raises(broker, db, session, goes_on):
    """The rows of that commit stay, and the record is aborted: so OutcomeDivergedError is raised."""
    async with sql.connect(session) as own, Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(OutcomeDivergedError, match="committed or rolled back inside"):  # noqa: PT012
            async with producer.transaction(db=own) as tx:
                session.add(Order(id=1, name="alice"))
                await tx.send("orders", b"1")
                await session.commit()
                if goes_on:
                    session.add(Order(id=2, name="bob"))
        await write(producer, own, 3)
    assert await rows_of(db) == [1, 3]
    assert await records_of(broker) == [3]


async def test_execute_outside_a_transaction_commits_without_the_sqlalchemy_session(broker, db, session):
    async with sql.connect(session) as own, Producer(broker, transactional_id="orders-1") as producer:
        assert await own.execute("insert into orders values ($1, 'alice')", 1) == 1
        assert await rows_of(own) == await rows_of(db) == [1]
        assert not session.in_transaction()
        await write(producer, own, 2)
    assert await rows_of(db) == [1, 2]


async def test_executing_commit_in_a_session_inside_a_producer_transaction_raises(broker, db, session):
    async with sql.connect(session) as own, Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(OutcomeDivergedError, match="committed or rolled back inside"):  # noqa: PT012
            async with producer.transaction(db=own) as tx:
                session.add(Order(id=1, name="alice"))
                await session.flush()
                await tx.send("orders", b"1")
                await session.execute(text("commit"))
        await write(producer, own, 2)
    assert await records_of(broker) == [2]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_an_sqlalchemy_engine_that_commits_each_statement_is_refused(broker, db, postgres_url, driver):
    url = postgres_url.replace("postgresql:", f"postgresql+{driver}:")
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    async with (
        AsyncSession(engine) as session,
        sql.connect(session, ask=postgres_url) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        with pytest.raises(InvalidConfigurationError, match="commits each statement by itself") as refused:
            await write(producer, own, 1)
        assert "AUTOCOMMIT" in refused.value.hint
    await engine.dispose()
    assert await rows_of(db) == []


async def test_an_sqlalchemy_session_without_an_async_postgresql_engine_is_refused():
    with pytest.raises(InvalidConfigurationError, match="not a session of an asynchronous engine of PostgreSQL"):
        sql.connect(AsyncSession())


async def test_an_async_session_with_binds_to_two_databases_is_refused_at_the_start(postgres_url):
    first, second = (create_async_engine(postgres_url.replace(":", "+asyncpg:", 1)) for _ in range(2))
    sql.connect(AsyncSession(first, binds={Order: first}))
    with pytest.raises(InvalidConfigurationError, match="several databases") as refused:
        sql.connect(AsyncSession(first, binds={Order: second}))
    assert "one database" in refused.value.hint


async def test_producer_run_repeats_sqlalchemy_work_after_a_serialization_failure(broker, db, session):
    await db.execute("insert into orders values (1, 'alice')")
    seen = []
    async with sql.connect(session) as own, Producer(broker, transactional_id="orders-1") as producer:

        async def work(tx):
            await session.execute(text("set transaction isolation level repeatable read"))
            session.expire_all()
            order = await session.get(Order, 1)
            seen.append(order.name)
            await tx.send("orders", b"1")
            if len(seen) == 1:
                await db.execute("update orders set name = 'bob'")
            order.name = f"{order.name} and us"

        await producer.run(work, db=own)
    assert seen == ["alice", "bob"]
    assert await db.fetch("select name from orders") == [("bob and us",)]
    assert await records_of(broker) == [1]


async def test_a_transaction_that_swallowed_an_sqlalchemy_error_commits_nothing(broker, db, session):
    async with sql.connect(session) as own, Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(IllegalStateError, match="swallowed"):  # noqa: PT012
            async with producer.transaction(db=own) as tx:
                await tx.send("orders", b"1")
                with pytest.raises(DBAPIError):
                    await session.execute(text("select * from nothing"))
        await write(producer, own, 2)
    assert await rows_of(db) == await records_of(broker) == [2]


@pytest.mark.parametrize("place", [BEFORE, SENT])
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_the_outcome_of_a_commit_cut_off_is_looked_up_over_the_sqlalchemy_engine(
    broker, db, postgres, postgres_url, driver, place
):
    async with CuttingProxy(postgres.port, place) as proxy:
        url = postgres_url.replace("postgresql:", f"postgresql+{driver}:").replace(
            f":{postgres.port}", f":{proxy.port}"
        )
        engine = create_async_engine(url)
        async with (
            AsyncSession(engine) as session,
            sql.connect(session) as own,
            Producer(broker, transactional_id="orders-1") as producer,
        ):
            await write(producer, own, 1)
            proxy.armed = True
            if place == BEFORE:
                with pytest.raises(DBAPIError):
                    await write(producer, own, 2)
            else:
                await write(producer, own, 2)
            assert proxy.cuts == 1
            await write(producer, own, 3)
        await engine.dispose()
    assert await rows_of(db) == await records_of(broker) == ([1, 3] if place == BEFORE else [1, 2, 3])
