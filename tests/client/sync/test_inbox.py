"""The blocking inbox: rows and the place in one transaction, in the thread of the caller and on its connection."""

import contextlib
import signal
import sqlite3
import threading

import pytest

from fencepost import Broker, InboxFencedError, OutcomeDivergedError, TopicPartition, sync
from fencepost.sync import sql

pytestmark = pytest.mark.slow  # with a real database

FIRST = TopicPartition("orders", 0)


@pytest.fixture
def broker(tmp_path):
    with Broker(data_dir=tmp_path / "broker", transaction_two_phase_commit_enable=True) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def consumer(broker):
    with sync.Producer(broker) as producer:
        for number in range(3):
            producer.send_and_wait("orders", b"%d" % number)
    with sync.Consumer(broker, group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.assign([FIRST])
        yield consumer


def rows_of(db):
    return [row[0] for row in db.fetch("select value from bills order by value")]


def work(db, batch):
    with sql.inbox(db, batch) as new:
        for record in new:
            db.execute("insert into bills values ($1)", int(record.value))


@pytest.fixture(params=["sqlite", "postgresql"])
def db(tmp_path, request):
    url = f"sqlite:///{tmp_path}/bills.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with sql.connect(url, create=True) as db:
        db.execute("create table bills (value bigint)")
        yield db


def test_a_blocking_inbox_commits_rows_and_offset_or_nothing_if_it_fails(broker, consumer, db):
    """It fails by an exception in its block, or because another consumer has claimed the partition."""
    batches = consumer.batches(1)
    work(db, next(batches))
    batch = next(batches)
    with pytest.raises(ValueError, match="no"), sql.inbox(db, batch):  # noqa: PT012
        db.execute("insert into bills values (9)")
        raise ValueError("no")
    work(db, batch)
    third = next(batches)
    db.execute("update fencepost_places set claim = claim + 1")
    with pytest.raises(InboxFencedError):
        work(db, third)
    with sync.Producer(broker, transactional_id="bills-1") as producer:
        again = next(batches)
        with producer.transaction(db=db), sql.inbox(db, again):
            db.execute("insert into bills values (2)")
    assert rows_of(db) == [0, 1, 2]


def test_a_blocking_inbox_uses_the_sqlite_connection_of_the_caller(tmp_path, consumer):
    path = tmp_path / "bills.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table bills (value integer)")
        with sql.connect(connection, create=True) as db:
            sql.keep_places(db, consumer)
            with sql.inbox(db, next(consumer.batches(2))) as new:
                connection.executemany("insert into bills values (?)", [(int(record.value),) for record in new])
            assert rows_of(db) == [0, 1]
            assert db.fetch("select next_offset from fencepost_places") == [(2,)]


def test_a_commit_of_the_caller_inside_an_inbox_raises_and_the_batch_is_read_again(tmp_path, consumer):
    path = tmp_path / "bills.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table bills (value integer)")
        with sql.connect(connection, create=True) as db:
            with (  # noqa: PT012
                pytest.raises(OutcomeDivergedError, match="inside the block"),
                sql.inbox(db, next(consumer.batches(2))),
            ):
                connection.execute("insert into bills values (7)")
                connection.executescript("begin")  # commits what is open, and begins another
            assert db.fetch("select next_offset from fencepost_places") == [(0,)]
            with sql.inbox(db, next(consumer.batches(2))) as new:
                connection.executemany("insert into bills values (?)", [(int(record.value),) for record in new])
            assert rows_of(db) == [0, 1, 7]


def test_ctrl_c_in_a_blocking_inbox_rolls_it_back_and_the_batch_can_be_tried_again(consumer, db):
    batch = next(consumer.batches(1))
    with pytest.raises(KeyboardInterrupt), sql.inbox(db, batch):  # noqa: PT012
        db.execute("insert into bills values (0)")
        signal.raise_signal(signal.SIGINT)
        threading.Event().wait()
    assert rows_of(db) == []
    work(db, batch)
    assert rows_of(db) == [0]
