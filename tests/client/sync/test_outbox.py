"""The blocking relay of an outbox, by each kind of database that a blocking program has."""

import asyncio
import signal
import threading

import pytest
import sqlalchemy
from django_settings import settings_of
from fencepost.client.errors import OutboxRowError
from fencepost.client.sql.outbox.relay import passes
from orders import records_of
from sqlalchemy.orm import Session

from fencepost import Broker, InvalidConfigurationError
from fencepost.sync import sql

pytestmark = pytest.mark.slow  # with a real database


@pytest.fixture
def broker(tmp_path):
    with Broker(data_dir=tmp_path / "broker", transaction_two_phase_commit_enable=True) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["sqlite", "postgresql"])
def url(tmp_path, request):
    return f"sqlite:///{tmp_path}/shop.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def db(url):
    with sql.connect(url, create=True) as db:
        for statement in sql.outbox_schema(db.dialect, "outbox"):
            db.execute(statement)
        yield db


def insert(db, *numbers):
    for number in numbers:
        db.execute(f"insert into outbox (key, value) values ('k', '{number}')")


@pytest.mark.parametrize("by", ["hold", "names", "offsets"])
def test_a_blocking_outbox_relay_sends_each_row_once(broker, db, by):
    insert(db, 1, 2, 3)
    moved = []
    with sql.outbox(broker, db, to="orders", by=by) as relay:
        relay.run(until_empty=True, moved=moved.append)
        insert(db, 4)
        assert relay.move() == 1
        assert relay.move() == 0
        assert (relay.sent, sum(moved), relay.way) == (4, 3, by)
    assert db.fetch("select * from outbox") == []
    assert asyncio.run(records_of(broker)) == [1, 2, 3, 4]


def test_a_blocking_outbox_relay_by_a_session_of_sqlalchemy_sends_each_row_once(broker, db, url):
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    if url.startswith("sqlite"):
        sqlalchemy.event.listen(engine, "connect", lambda own, _: own.execute("pragma synchronous = extra"))
    insert(db, 1, 2)
    with Session(engine) as session, sql.connect(session) as own, sql.outbox(broker, own, to="orders") as relay:
        relay.run(until_empty=True)
    engine.dispose()
    assert asyncio.run(records_of(broker)) == [1, 2]


def test_a_blocking_outbox_relay_by_djangos_connection_sends_each_row_once(broker, db, url):
    from django.db import connections

    database = connections.configure_settings({"default": settings_of(url)})["default"]
    connections.settings["outbox"] = database
    insert(db, 1, 2)
    with sql.connect(connections["outbox"]) as own, sql.outbox(broker, own, to="orders") as relay:
        relay.run(until_empty=True)
    connections["outbox"].close()
    del connections["outbox"], connections.settings["outbox"]
    assert asyncio.run(records_of(broker)) == [1, 2]


def test_ctrl_c_ends_a_blocking_outbox_relay_and_rows_that_were_not_sent_stay(broker, db):
    insert(db, 1)
    with pytest.raises(KeyboardInterrupt), sql.outbox(broker, db, to="orders") as relay:
        relay.run(moved=lambda count: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    insert(db, 2)
    assert db.fetch("select count(*) from outbox") == [(1,)]
    with sql.outbox(broker, db, to="orders") as relay:
        relay.run(until_empty=True)
    assert asyncio.run(records_of(broker)) == [1, 2]


def test_a_blocking_outbox_relay_raises_for_an_unknown_method_or_an_invalid_row(broker, db):
    with pytest.raises(InvalidConfigurationError, match="cannot be sent by"):
        sql.outbox(broker, db, to="orders", by="luck")
    db.execute("insert into outbox (key, value, headers) values ('k', '1', '7')")
    with pytest.raises(OutboxRowError), sql.outbox(broker, db, to="orders") as relay:
        relay.run(until_empty=True)


def test_a_relay_retries_on_errors_of_sqlalchemy_and_django_as_on_their_drivers_own():
    import django.db
    import psycopg
    from sqlalchemy.exc import OperationalError

    for cause, expected in ((psycopg.OperationalError(), True), (psycopg.errors.UndefinedTable(), False)):
        assert passes(OperationalError("select", {}, cause)) is expected
        wrapped = django.db.OperationalError()
        wrapped.__cause__ = cause
        assert passes(wrapped) is expected
    assert not passes(ValueError())
