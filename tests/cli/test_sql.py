"""`fencepost sql`: the tables for a database."""

import contextlib
import sqlite3

from click.testing import CliRunner
from fencepost.cli import main
from fencepost.client.sql.statements import TABLES


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
