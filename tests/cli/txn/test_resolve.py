"""`fencepost txn resolve`: transactions that wait for a database end as it decided; with --watch repeatedly."""

import contextlib
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fencepost.broker.transactions.deciding import Deciding
from fencepost.broker.transactions.ledger import Item, Proposal
from fencepost.broker.transactions.ledger_log import Preparation
from fencepost.client.sql import postgresql, sqlite, statements
from served_broker import ServedBroker
from terminal import Terminal


class Orders:
    """A database and a broker in which producers have left transactions. kept: their clients, lest they end them."""

    def __init__(self, terminal: Terminal, path: Path) -> None:
        self.terminal, self.path, self.kept = terminal, path, list[Any]()
        self.id = path.parent.name
        self.resolve = f"txn resolve --db sqlite:///{path}"

    def make(self) -> "Orders":
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(statements.TABLES["sqlite"])
            connection.execute(statements.NAME, (self.id,))
            connection.commit()
        return self

    def write(self, name: str, number: int, committed: bool) -> None:
        """Make the row of this id."""
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            values = name, number, committed
            connection.execute("insert into fencepost_writers values (?, 1, ?, ?, 1, 0, current_timestamp)", values)
            connection.commit()

    def row(self, name: str) -> Any:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(statements.READ, (name,)).fetchone()

    def hold(self, name: str, number: int) -> None:
        """Leave a transaction with a record that waits for this number of the database."""
        self.kept.append(self.terminal.open_transaction(name, "orders", name))

        def hold(broker: Any) -> None:
            txn = broker.transactions.transactions[name]
            item = Item(name, txn.producer_id, txn.producer_epoch)
            key = f"sql:{self.id}:{name}"
            assert not broker.ledger.prepare(Preparation(item, key, number, 60_000, hold=True)).error

        self.terminal.broker.inside(hold)

    def held(self) -> list[str]:
        return [each["transactional_id"] for each in self.terminal.objects("txn list")]


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker(transaction_two_phase_commit_enable=True) as broker:
        terminal = Terminal(broker)
        terminal.run("topic create orders")
        yield terminal


@pytest.fixture
def orders(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Orders:
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_S", 0)
    return Orders(terminal, tmp_path / "orders.db").make()


def untimed(text: str) -> list[str]:
    return re.sub(r"\d+ m?s$", "TIME", text, flags=re.MULTILINE).splitlines()


def test_txn_resolve_ends_transactions_as_the_database_says_and_a_dry_run_ends_none(orders: Orders) -> None:
    terminal = orders.terminal
    orders.hold("known-1", 7)
    orders.hold("unknown-1", 0)
    orders.write("known-1", 7, True)
    assert untimed(terminal.run(f"{orders.resolve} --dry-run")) == [
        "known-1 number 7: would be committed, waits for TIME",
        "unknown-1 number 0: would be aborted, waits for TIME",
    ]
    assert terminal.run(f"{orders.resolve} --older-than 1h") == ""
    assert (sorted(orders.held()), orders.row("unknown-1")) == (["known-1", "unknown-1"], None)
    rows = terminal.objects(orders.resolve)
    assert [{**each, "waited_ms": each["waited_ms"] >= 0} for each in rows] == [
        {**common, "waited_ms": True, "reason": "", "dry_run": False}
        for common in (
            {"transactional_id": "known-1", "number": 7, "result": "committed"},
            {"transactional_id": "unknown-1", "number": 0, "result": "aborted"},
        )
    ]
    assert (orders.held(), orders.row("unknown-1")) == ([], (0, 0, 0))
    assert terminal.run("consume orders --from start -n 1") == "known-1\n"
    assert (terminal.run(orders.resolve), terminal.err) == ("", "no transaction waits for this database\n")


def test_txn_resolve_leaves_alone_what_waits_for_another_database(orders: Orders, tmp_path: Path) -> None:
    (tmp_path / "another").mkdir()
    other = Orders(orders.terminal, tmp_path / "another" / "orders.db")
    other.id = f"{orders.id}2"  # which begins like the first one's
    other.make()
    orders.hold("first-1", 0)
    other.hold("second-1", 0)
    assert untimed(orders.terminal.run(orders.resolve)) == ["first-1 number 0: aborted, had waited for TIME"]
    assert (orders.held(), other.row("second-1")) == (["second-1"], None)
    assert untimed(orders.terminal.run(other.resolve)) == ["second-1 number 0: aborted, had waited for TIME"]


def test_txn_resolve_names_the_session_that_holds_a_row_and_terminate_ends_it(
    terminal: Terminal, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.1)
    orders = Orders(terminal, tmp_path / "unused.db")
    resolve = f"txn resolve --db {postgres_url}"
    with psycopg.connect(postgres_url) as writer:
        writer.execute(statements.TABLES["postgresql"].encode())
        ((orders.id,),) = writer.execute("select id from fencepost_database").fetchall()
        for name, number in (("known-1", 7), ("hanging-1", -1)):
            values = name, number, int(number == 7)
            writer.execute("insert into fencepost_writers values (%s, 1, %s, %s, 1, 0, now())", values)
        writer.commit()
        orders.hold("hanging-1", 0)
        orders.hold("known-1", 7)
        writer.execute("update fencepost_writers set number = 0, committed = 1 where transactional_id = 'hanging-1'")
        code, cause, _ = terminal.refused(resolve)
        session = writer.info.backend_pid
        assert (code, cause.partition(": ")[0]) == (4, "1 of 2 undecided")
        assert cause.endswith(f"the database: session {session} holds the row of the transactional id")
        assert orders.held() == ["hanging-1"]
        assert untimed(terminal.run(f"{resolve} --terminate")) == ["hanging-1 number 0: aborted, had waited for TIME"]
        with pytest.raises(psycopg.OperationalError):
            writer.commit()
    assert orders.held() == []


def test_txn_resolve_exits_with_4_and_ends_nothing_if_the_database_is_locked(orders: Orders) -> None:
    orders.hold("locked-1", 0)
    with contextlib.closing(sqlite3.connect(orders.path)) as other:
        other.execute("begin immediate")
        assert orders.terminal.refused(orders.resolve) == (
            4,
            f"1 of 1 undecided: the database: {orders.path}: database is locked",
            "run this again when database and broker answer; --watch does",
        )
    assert untimed(orders.terminal.run(orders.resolve)) == ["locked-1 number 0: aborted, had waited for TIME"]


def test_txn_resolve_refuses_a_database_older_than_the_broker_without_adopt(orders: Orders) -> None:
    key = f"sql:{orders.id}:restored-1"
    proposal = Proposal(key, 3, "sql", b"", True, False, ())
    orders.terminal.broker.inside(lambda broker: Deciding(broker.ledger, proposal).finish())
    orders.write("restored-1", 1, True)
    orders.hold("restored-1", 4)
    for options in ("", " --dry-run"):
        code, cause, hint = orders.terminal.refused(orders.resolve + options)
        assert (code, "--adopt" in hint) == (5, True)
        assert cause.startswith("1 of 1 diverged: the database is older than the broker: number 3 was decided there")
    assert orders.row("restored-1") == (1, 1, 1)
    assert untimed(orders.terminal.run(f"{orders.resolve} --adopt")) == [
        "restored-1 number 4: aborted, had waited for TIME"
    ]
    assert (orders.held(), orders.row("restored-1")) == ([], (1, 4, 0))


def test_txn_resolve_of_a_missing_database_exits_with_4_and_creates_none(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    code, cause, hint = terminal.refused(f"txn resolve --db sqlite:///{path}")
    assert (code, cause) == (4, f"{path}: unable to open database file")
    assert "the file or the server that the producers use" in hint
    assert not path.exists()


def test_txn_resolve_of_an_empty_database_exits_with_2(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.write_bytes(b"")
    code, cause, _ = terminal.refused(f"txn resolve --db sqlite:///{path}")
    assert (code, cause) == (2, f"{path} has no table fencepost_database")


@pytest.mark.parametrize("url", ["orders.db", "mysql://x/y", "sqlite:///:memory:"])
def test_txn_resolve_with_an_unknown_kind_of_database_url_exits_with_2(terminal: Terminal, url: str) -> None:
    code, _, hint = terminal.refused(f"txn resolve --db {url}")
    assert code == 2
    assert "sqlite:///" in hint


def test_txn_resolve_without_a_broker_exits_with_4(orders: Orders) -> None:
    code, cause, _ = orders.terminal.refused(f"{orders.resolve} -b 127.0.0.1:1 -X start.timeout.ms=100")
    assert (code, "127.0.0.1:1" in cause) == (4, True)


@pytest.mark.slow
def test_txn_resolve_with_watch_runs_until_a_signal(terminal: Terminal, tmp_path: Path) -> None:
    """It reports a database that cannot be opened and tries again; the signal ends it with 130."""
    orders = Orders(terminal, tmp_path / "orders.db")
    options = ["-b", terminal.bootstrap, "--watch", "--every", "50ms", "--older-than", "0s"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fencepost", *orders.resolve.split(), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == f"error: {orders.path}: unable to open database file\n"
        assert process.stderr.readline().startswith("hint: ")
        made = Orders(terminal, tmp_path / "made.db").make()
        made.path.rename(orders.path)
        for name in ("watched-1", "watched-2"):
            orders.hold(name, 0)
            assert untimed(process.stdout.readline()) == [f"{name} number 0: aborted, had waited for TIME"]
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 130
