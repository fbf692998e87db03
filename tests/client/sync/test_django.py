"""Django's own connection takes part in transactions: with SQLite, and with PostgreSQL by psycopg."""

import asyncio
import contextlib
import sqlite3
import threading

import pytest
from cutting_proxy import BEFORE, SENT, CuttingProxy
from django.db import IntegrityError, OperationalError, connection, connections, models, transaction
from django_settings import settings_of
from fencepost.client.errors import IllegalStateError, InvalidConfigurationError, OutcomeDivergedError
from orders import TABLE, records_of

from fencepost import Broker, sync
from fencepost import sql as async_sql
from fencepost.sync import sql

pytestmark = pytest.mark.slow  # with a real database


class Order(models.Model):
    name = models.TextField()

    class Meta:
        app_label = "orders"
        db_table = "orders"


@pytest.fixture
def broker(tmp_path):
    with Broker(data_dir=tmp_path / "broker", transaction_two_phase_commit_enable=True) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path}/orders.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def configure():
    """Give a function that makes a database the one of the alias `default`, in this thread and in new ones."""

    def to(database):
        connections.settings["default"] = connections.configure_settings({"default": database})["default"]
        connections["default"] = connections.create_connection("default")

    before = connections.settings["default"]
    yield to
    connection.close()
    connections.settings["default"] = before
    connections["default"] = connections.create_connection("default")


@pytest.fixture
def db(url, configure):
    """Yield the database behind Django's alias `default`, opened by its URL, with the table orders."""
    configure(settings_of(url))
    with sql.connect(url, create=True) as db:
        db.execute(TABLE)
        yield db


@pytest.fixture
def own(db):
    with sql.connect(connection) as own:
        yield own


@pytest.fixture
def producer(broker):
    with sync.Producer(broker, transactional_id="orders-1") as producer:
        yield producer


def write(producer, own, number):
    with producer.transaction(db=own) as tx:
        Order.objects.create(id=number, name="alice")
        tx.send("orders", b"%d" % number)


def rows_of(db):
    return [row[0] for row in db.fetch("select id from orders order by id")]


def test_models_of_django_are_committed_with_records_and_atomic_is_a_savepoint(broker, db, own, producer):
    write(producer, own, 1)
    with pytest.raises(ValueError, match="no"), producer.transaction(db=own) as tx:  # noqa: PT012
        Order.objects.create(id=2, name="bob")
        tx.send("orders", b"2")
        raise ValueError("no")
    with producer.transaction(db=own, wait="decided") as tx:
        with pytest.raises(IntegrityError), transaction.atomic():
            Order.objects.create(id=1, name="again")
        with transaction.atomic():
            Order.objects.create(id=3, name="eve")
        with pytest.raises(ValueError, match="undone"), own.transaction():  # noqa: PT012
            own.execute("insert into orders values ($1, 'bob')", 4)
            raise ValueError("undone")
        with own.transaction():
            own.execute("insert into orders values ($1, 'bob')", 5)
        tx.send("orders", b"3")
        tx.send("orders", b"5")
    assert own.execute("insert into orders values ($1, '100%')", 6) == 1
    assert not connection.in_atomic_block
    assert connection.get_autocommit()
    assert rows_of(own) == rows_of(db) == [1, 3, 5, 6]
    assert list(Order.objects.values_list("id", flat=True)) == [1, 3, 5, 6]
    assert asyncio.run(records_of(broker)) == [1, 3, 5]


def test_a_producer_transaction_inside_djangos_atomic_is_refused_with_a_hint(broker, db, own, producer):
    """A transaction on a connection without autocommit is refused, too."""
    with transaction.atomic(), pytest.raises(IllegalStateError, match="in a transaction already") as refused:
        write(producer, own, 1)
    assert "atomic() or ATOMIC_REQUESTS" in refused.value.hint
    transaction.set_autocommit(False)
    with pytest.raises(IllegalStateError, match="in a transaction already"):
        write(producer, own, 1)
    transaction.set_autocommit(True)
    write(producer, own, 2)
    assert rows_of(db) == asyncio.run(records_of(broker)) == [2]


def test_with_atomic_requests_a_django_view_is_refused_unless_it_is_non_atomic(db, own, producer, broker):
    from django.core.handlers.base import BaseHandler

    def view(request):
        write(producer, own, 1)

    connection.settings_dict["ATOMIC_REQUESTS"] = True
    with pytest.raises(IllegalStateError, match="in a transaction already"):
        BaseHandler().make_view_atomic(view)(None)
    BaseHandler().make_view_atomic(transaction.non_atomic_requests(view))(None)
    assert rows_of(db) == asyncio.run(records_of(broker)) == [1]


@pytest.mark.parametrize("statements", [["commit"], ["commit", "begin"]])
def test_djangos_commit_and_a_commit_statement_in_a_producer_transaction_raise(broker, db, own, producer, statements):
    """After the statement the row stays, and the record is aborted: OutcomeDivergedError."""
    with pytest.raises(transaction.TransactionManagementError), producer.transaction(db=own) as tx:  # noqa: PT012
        Order.objects.create(id=1, name="alice")
        tx.send("orders", b"1")
        transaction.commit()
    with (  # noqa: PT012
        pytest.raises(OutcomeDivergedError, match="committed or rolled back inside"),
        producer.transaction(db=own) as tx,
    ):
        Order.objects.create(id=2, name="alice")
        tx.send("orders", b"2")
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    write(producer, own, 3)
    assert rows_of(db) == [2, 3]
    assert asyncio.run(records_of(broker)) == [3]


@pytest.mark.parametrize("sends", [True, False])
def test_a_transaction_that_swallowed_a_django_error_commits_nothing(broker, db, own, producer, sends):
    with pytest.raises(IllegalStateError, match="swallowed"), producer.transaction(db=own) as tx:  # noqa: PT012
        Order.objects.create(id=1, name="alice")
        if sends:
            tx.send("orders", b"1")
        with pytest.raises(IntegrityError), transaction.atomic(savepoint=False):
            Order.objects.create(id=1, name="again")
    write(producer, own, 2)
    assert rows_of(db) == asyncio.run(records_of(broker)) == [2]


def test_djangos_on_commit_functions_run_in_the_callers_thread_only_after_a_commit(broker, db, own, producer, caplog):
    """An exception in one is logged, and the next ones run."""
    seen = []

    def note(what):
        seen.append((what, threading.get_ident(), Order.objects.count()))

    with producer.transaction(db=own) as tx:
        transaction.on_commit(lambda: note("first"))
        with pytest.raises(ValueError, match="undone"), transaction.atomic():  # noqa: PT012
            transaction.on_commit(lambda: note("undone"))
            raise ValueError("undone")
        transaction.on_commit(lambda: 1 / 0)
        transaction.on_commit(lambda: note("last"))
        Order.objects.create(id=1, name="alice")
        tx.send("orders", b"1")
    here = threading.get_ident()
    assert seen == [("first", here, 1), ("last", here, 1)]
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(ValueError, match="no"), producer.transaction(db=own):  # noqa: PT012
        transaction.on_commit(lambda: note("aborted"))
        raise ValueError("no")
    with pytest.raises(IntegrityError), producer.transaction(db=own):  # noqa: PT012
        transaction.on_commit(lambda: note("refused"))
        Order.objects.create(id=1, name="again")
    write(producer, own, 2)
    assert len(seen) == 2


def test_a_block_of_django_locks_the_file_of_sqlite_from_its_begin_on(producer, configure, tmp_path):
    path = tmp_path / "orders.db"
    configure(settings_of(f"sqlite:///{path}"))
    with sql.connect(connection) as own, contextlib.closing(sqlite3.connect(path, timeout=0)) as other:
        with producer.transaction(db=own), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("begin immediate")
        other.execute("begin immediate")


def test_a_django_connection_used_in_another_thread_is_refused(broker, db, own, producer):
    raised = []

    def elsewhere():
        try:
            write(producer, own, 1)
        except IllegalStateError as error:
            raised.append(error)
        connection.close()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "is another thread's" in str(raised[0])
    assert "in each thread" in raised[0].hint
    assert rows_of(db) == []


def test_models_saved_by_each_threads_django_connection_are_committed_with_records(broker, db, url):
    def elsewhere(number):
        with (
            sync.Producer(broker, transactional_id=f"orders-{number}") as producer,
            sql.connect(connection) as own,
        ):
            write(producer, own, number)
        connection.close()

    for number in (1, 2):
        thread = threading.Thread(target=elsewhere, args=[number])
        thread.start()
        thread.join()
    assert rows_of(db) == asyncio.run(records_of(broker)) == [1, 2]


def test_a_connection_that_django_closed_between_transactions_is_opened_again(broker, db, own, producer):
    write(producer, own, 1)
    connection.close()
    write(producer, own, 2)
    connection.close()
    assert rows_of(own) == asyncio.run(records_of(broker)) == [1, 2]


def test_a_transaction_whose_django_connection_is_closed_inside_commits_nothing(broker, db, own, producer):
    with pytest.raises(IllegalStateError, match="closed inside"), producer.transaction(db=own) as tx:  # noqa: PT012
        Order.objects.create(id=1, name="alice")
        tx.send("orders", b"1")
        connection.close()
    write(producer, own, 2)
    assert rows_of(db) == asyncio.run(records_of(broker)) == [2]


def test_an_inbox_commits_models_of_django_with_the_next_offset(broker, db, own, producer):
    with sync.Producer(broker) as plain:
        for number in range(3):
            plain.send_and_wait("orders", b"%d" % number)
    seen = []
    with sync.Consumer(broker, group_id="billing", topics=["orders"], auto_offset_reset="earliest") as consumer:
        batches = consumer.batches(1)
        for _ in range(2):
            with sql.inbox(own, next(batches)) as new:
                for record in new:
                    Order.objects.create(id=int(record.value) + 10, name="bill")
                    transaction.on_commit(lambda value=record.value: seen.append(value))
    assert rows_of(db) == [10, 11]
    assert seen == [b"0", b"1"]
    assert db.fetch("select next_offset from fencepost_places") == [(2,)]


@pytest.mark.parametrize("place", [BEFORE, SENT])
def test_the_outcome_of_djangos_commit_cut_off_is_looked_up_in_the_database(
    broker, postgres, postgres_url, producer, configure, place
):
    async def main():
        async with CuttingProxy(postgres.port, place) as proxy:
            return await asyncio.to_thread(work, proxy)

    def work(proxy):
        configure(settings_of(postgres_url.replace(f":{postgres.port}", f":{proxy.port}")))
        with sql.connect(postgres_url, create=True) as db, sql.connect(connection) as own:
            db.execute(TABLE)
            write(producer, own, 1)
            proxy.armed = True
            if place == BEFORE:
                with pytest.raises(OperationalError):
                    write(producer, own, 2)
            else:
                write(producer, own, 2)
            assert proxy.cuts == 1
            write(producer, own, 3)
            connection.close()
            return rows_of(db)

    assert asyncio.run(main()) == ([1, 3] if place == BEFORE else [1, 2, 3])
    assert asyncio.run(records_of(broker)) == ([1, 3] if place == BEFORE else [1, 2, 3])


def test_producer_run_repeats_django_work_after_a_serialization_failure(broker, postgres_url, configure, producer):
    configure(settings_of(postgres_url))
    seen = []
    with sql.connect(postgres_url, create=True) as db, sql.connect(connection) as own:
        db.execute(TABLE)
        db.execute("insert into orders values (1, 'alice')")

        def work(tx):
            with connection.cursor() as cursor:
                cursor.execute("set transaction isolation level repeatable read")
            order = Order.objects.get(id=1)
            seen.append(order.name)
            tx.send("orders", b"1")
            if len(seen) == 1:
                db.execute("update orders set name = 'bob'")
            order.name += " and us"
            order.save()

        producer.run(work, db=own)
        assert db.fetch("select name from orders") == [("bob and us",)]
    assert seen == ["alice", "bob"]
    assert asyncio.run(records_of(broker)) == [1]


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"NAME": ":memory:"}, "does not name a file"),
        ({"NAME": "file:orders?mode=memory&cache=shared"}, "does not name a file"),
        ({"AUTOCOMMIT": False}, "AUTOCOMMIT=False"),
    ],
)
def test_django_connections_in_memory_or_without_autocommit_are_refused(configure, tmp_path, more, cause):
    configure(settings_of(f"sqlite:///{tmp_path}/orders.db", **more))
    with pytest.raises(InvalidConfigurationError, match=cause):
        sql.connect(connection)


def test_djangos_defaults_for_sqlite_are_refused_by_name_since_commits_may_be_lost(configure, tmp_path):
    configure(settings_of(f"sqlite:///{tmp_path}/orders.db", OPTIONS={}))
    with pytest.raises(InvalidConfigurationError, match="synchronous=FULL with journal_mode=DELETE"):
        sql.connect(connection).start()
    assert not connection.in_atomic_block


async def test_the_asynchronous_api_refuses_a_connection_of_django(configure, tmp_path):
    with pytest.raises(InvalidConfigurationError, match="blocks") as refused:
        async_sql.connect(connections.create_connection("default"))
    assert "fencepost.sync" in refused.value.hint
