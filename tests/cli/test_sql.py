"""`fencepost sql`: the tables for a database."""

import contextlib
import socket
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.client.sql import postgresql
from fencepost.client.sql.statements import TABLES
from served_broker import ServedBroker
from terminal import Terminal


def test_sql_schema_prints_statements_that_create_the_tables() -> None:
    result = CliRunner().invoke(main, ["sql", "schema", "--dialect", "sqlite"])
    assert (result.exit_code, result.stdout) == (0, TABLES["sqlite"])
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(result.stdout)
        found = connection.execute("select name from sqlite_master where type = 'table' order by name").fetchall()
    assert found == [("fencepost_database",), ("fencepost_places",), ("fencepost_writers",)]


def test_sql_schema_with_an_outbox_prints_its_table_too() -> None:
    result = CliRunner().invoke(main, ["sql", "schema", "--dialect", "sqlite", "--outbox", 'my "box'])
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(result.stdout)
        found = connection.execute("select name from sqlite_master where type = 'table' order by name").fetchall()
    assert {'my "box', "fencepost_relays"} <= {name for (name,) in found}


def test_sql_schema_of_an_unknown_dialect_exits_with_2_and_lists_the_dialects() -> None:
    result = CliRunner().invoke(main, ["sql", "schema", "--dialect", "oracle"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: there are no tables for 'oracle'\nhint: there are some for: sqlite, postgresql\n"


@pytest.mark.slow
def test_sql_forget_removes_an_id_that_was_not_used_and_refuses_a_recent_one(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(TABLES["sqlite"])
        connection.execute("insert into fencepost_database values ('orders')")
        for name, at in (("old", "datetime('now', '-31 days')"), ("recent", "current_timestamp")):
            connection.execute(f"insert into fencepost_writers values ('{name}', 1, 3, 1, 1, 0, {at})")
        connection.commit()
    with ServedBroker(transaction_two_phase_commit_enable=True) as broker:
        terminal = Terminal(broker)
        _forget(terminal, path)
        _, cause, _ = terminal.refused(f"sql forget x --db sqlite:///{tmp_path}/none.db")
        assert "none.db" in cause


@pytest.mark.slow
@pytest.mark.parametrize("command", ["sql forget x", "txn resolve", "outbox --to t"])
def test_a_database_that_does_not_answer_is_named_with_the_reason_by_each_command(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's TimeoutError has no text."""
    monkeypatch.setattr(postgresql, "CONNECT_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, ServedBroker() as broker:
        url = f"postgresql+asyncpg://127.0.0.1:{silent.getsockname()[1]}/orders"
        code, cause, _ = Terminal(broker).refused(f"{command} --db {url}")
    assert (code, cause) == (4, f"{url}: TimeoutError")


def _forget(terminal: Terminal, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        command = f"sql forget --db sqlite:///{path}"
        assert terminal.run(f"{command} old") == "old: forgotten\n"
        assert terminal.objects(f"{command} old") == [{"transactional_id": "old", "was_known": False}]
        code, cause, hint = terminal.refused(f"{command} recent")
        assert code != 0
        assert "may write again" in cause
        assert "stop its producer" in hint
        assert terminal.run(f"{command} recent --unused-for 0s") == "recent: forgotten\n"
        assert connection.execute("select count(*) from fencepost_writers").fetchone() == (0,)
