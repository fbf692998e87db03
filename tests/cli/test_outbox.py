"""`fencepost outbox`: rows of a table become records; what stops it, and how it ends."""

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import wait_until
from fencepost.client.sql.outbox.statements import outbox_schema
from fencepost.client.sql.statements import NAME, TABLES
from served_broker import ServedBroker
from terminal import Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker(transaction_two_phase_commit_enable=True, auto_create_topics_enable=False) as broker:
        terminal = Terminal(broker)
        terminal.run("topic create orders")
        yield terminal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with an outbox."""
    path = tmp_path / "app.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(TABLES["sqlite"] + ";".join(outbox_schema("sqlite", "outbox")))
        connection.execute(NAME, (tmp_path.name,))
        connection.commit()
    return path


def insert(path: Path, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executemany("insert into outbox (key, value) values ('k', ?)", [(value,) for value in values])
        connection.commit()


def rows_left(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        count: int = connection.execute("select count(*) from outbox").fetchone()[0]
        return count


def test_outbox_sends_all_rows_and_says_how_many(terminal: Terminal, path: Path) -> None:
    insert(path, "1", "2")
    relay = f"outbox --db sqlite:///{path} --to orders --until-empty --create"
    assert terminal.run(relay) == "2 rows sent\n"
    assert (terminal.code, rows_left(path)) == (0, 0)
    insert(path, "3")
    assert terminal.objects(relay) == [{"sent": 1, "is_end": True}]
    assert terminal.run("consume orders --from start -n 3") == "1\n2\n3\n"


@pytest.mark.parametrize("by", ["offsets", "names"])
def test_outbox_sends_rows_by_each_method_with_producer_properties(terminal: Terminal, path: Path, by: str) -> None:
    insert(path, "1", "2")
    more = "--until-empty -X compression.type=gzip -X linger.ms=1"
    assert terminal.run(f"outbox --db sqlite:///{path} --to orders --by {by} --name {by} {more}") == "2 rows sent\n"
    assert rows_left(path) == 0


@pytest.mark.parametrize(
    ("options", "code", "cause"),
    [
        ("--to nowhere -X max.block.ms=500", 3, "nowhere"),
        ("--to orders --table none", 2, "there is no table none"),
        ("--to orders --columns value=payload", 2, "table outbox has no column 'payload' for value"),
        ("--to orders --columns payload", 2, "columns 'payload' are not PART=COLUMN,PART=COLUMN"),
        ("--to orders --resume-at 7", 2, "only 'offsets' has a number to resume at"),
        ("--to orders --by offsets --resume-at 7", 2, "orders-0 of group outbox-outbox: no row has the number 7"),
    ],
)
def test_outbox_with_options_that_cannot_be_right_names_the_cause_and_moves_no_row(
    terminal: Terminal, path: Path, options: str, code: int, cause: str
) -> None:
    insert(path, "1")
    found_code, found_cause, _ = terminal.refused(f"outbox --db sqlite:///{path} {options}")
    assert (found_code, cause in found_cause) == (code, True), found_cause
    assert rows_left(path) == 1


def test_outbox_exits_with_4_if_the_database_file_is_missing_and_makes_none(terminal: Terminal, tmp_path: Path) -> None:
    code, cause, _ = terminal.refused(f"outbox --db sqlite:///{tmp_path}/none.db --to orders")
    assert (code, cause) == (4, f"{tmp_path}/none.db: unable to open database file")
    assert not (tmp_path / "none.db").exists()


def test_outbox_names_a_row_that_cannot_be_sent_and_exits_with_1(terminal: Terminal, path: Path) -> None:
    insert(path, "1", bytes(2_000_000))
    code, cause, hint = terminal.refused(f"outbox --db sqlite:///{path} --to orders")
    assert (code, cause[:38]) == (1, "the row at position 2 cannot be sent: ")
    assert "no row was skipped" in hint
    assert rows_left(path) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_outbox_between_two_commits_with_exit_code_0(
    terminal: Terminal, path: Path, number: signal.Signals
) -> None:
    insert(path, "1", "2")
    words = ["outbox", "-b", terminal.bootstrap, "--db", f"sqlite:///{path}", "--to", "orders", "-o", "json"]
    running = subprocess.Popen(
        [sys.executable, "-m", "fencepost", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: rows_left(path) == 0)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, json.loads(out), err) == (0, {"sent": 2, "is_end": True}, "")


@pytest.mark.slow
def test_outbox_shows_once_that_the_broker_is_away_and_goes_on_trying(terminal: Terminal, path: Path) -> None:
    insert(path, "1")
    with closing_server() as (at, closed):
        words = ["outbox", "-b", at, "--timeout", "200ms", "--db", f"sqlite:///{path}", "--to", "t"]
        running = subprocess.Popen([sys.executable, "-m", "fencepost", *words], stderr=subprocess.PIPE, text=True)
        assert running.stderr is not None
        assert running.stderr.readline().startswith("error: ")
        assert running.stderr.readline().startswith("hint: ")
        before = len(closed)
        wait_until(lambda: len(closed) > before + 5)
        running.terminate()
        assert running.stderr.read() == ""
        assert running.wait(60) == 0
        running.stderr.close()


@contextlib.contextmanager
def closing_server() -> Iterator[tuple[str, list[None]]]:
    """Run a server that closes each connection at its first request. Yields its address, and a list of the closed."""
    closed: list[None] = []

    def close_all() -> None:
        with contextlib.suppress(OSError):  # the server is closed
            while True:
                with server.accept()[0] as connection:
                    connection.recv(1 << 16)  # else the close would be a reset, which has another text
                closed.append(None)

    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=close_all)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}", closed
    finally:
        server.shutdown(socket.SHUT_RDWR)  # ends accept()
        server.close()
        thread.join()
