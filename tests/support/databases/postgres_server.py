"""A real PostgreSQL for tests: a server of its own in a directory of its own, from what is installed here."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
from eventually import wait_until
from process_ends import gone

USER = "fencepost"
_IN_MEMORY = Path("/dev/shm")
MISSING = "no PostgreSQL here: no initdb on the PATH or in /usr/lib/postgresql (apt install postgresql)"


def find_programs() -> Path | None:
    """Return the directory of initdb and postgres, the newest version's; None if there is none."""
    found = [Path(path) for path in [shutil.which("initdb")] if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class PostgresServer:
    """port: on loopback, where every role may log in without a password. Root starts it as the user nobody, since
    PostgreSQL refuses to be run by root.
    """

    def __init__(self, programs: Path, *options: str) -> None:
        """options: settings as NAME=VALUE."""
        self.programs = programs
        self._options = options
        self._numbers = itertools.count(1)
        self._free: list[str] = []  # names of empty databases
        self._account = 65534 if os.geteuid() == 0 else None
        self.directory = Path(tempfile.mkdtemp(prefix="postgres-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Make its files, and start it."""
        if self._account is not None:
            os.chown(self.directory, self._account, self._account)
        settings = ["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D", str(self.data)]
        subprocess.run(
            [self.programs / "initdb", *settings],
            check=True,
            capture_output=True,
            user=self._account,
            cwd=self.directory,
        )
        self.start()

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", *self._options]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, *(part for each in settings for part in ("-c", each))],
                stdout=log,
                stderr=log,
                user=self._account,
                cwd=self.directory,
            )
        wait_until(self._answers, 60)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres")):
            return True
        return False

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT cuts its sessions and shuts it down in an orderly way, SIGKILL is a crash."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(60)

    def kill(self) -> None:
        """Kill it and the processes of its sessions at once, as the system does that has no memory left."""
        assert self._process is not None
        pid = self._process.pid
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        for each in (pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait(60)
        for each in children:  # else the next server finds their shared memory in use
            assert gone(each)

    def remove(self) -> None:
        """End it, and remove its files."""
        self.end(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self, database: str, user: str = USER) -> str:
        """Return the URL of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> None:
        """Run a statement by itself."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL of an empty database. After the block the database is emptied, to be given to another test."""
        if not self._free:
            self.run(f"create database {(name := f'test_{next(self._numbers)}')}")
            self._free.append(name)
        name = self._free.pop()
        yield self.url(name)
        self.run(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'")
        self.run(f"alter database {name} reset all")
        self.run("drop schema public cascade; create schema public; grant all on schema public to public", name)
        self._free.append(name)
