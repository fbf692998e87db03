"""Runs a PostgreSQL server for a load, with default settings: it syncs each commit."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534  # PostgreSQL refuses to be run by root
READY_S = 60.0


def find_programs() -> Path:
    """Return the directory of initdb and postgres, the newest version's. Raises RuntimeError if there is none."""
    found = [Path(path) for path in [shutil.which("initdb")] if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise RuntimeError("no PostgreSQL: no initdb on the PATH or in /usr/lib/postgresql")
    return found[-1].parent


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Run a new server on a free port during the block, and yield the URL of its database."""
    programs, account = find_programs(), NOBODY if os.geteuid() == 0 else None
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="postgres-bench-"))
        if account is not None:
            os.chown(directory, account, account)
        data = str(Path(directory) / "data")
        make = [str(programs / "initdb"), "-U", "fencepost", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", data]
        subprocess.run(make, check=True, capture_output=True, user=account, cwd=directory)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = [f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories="]
        run = [str(programs / "postgres"), "-D", data, *(part for each in settings for part in ("-c", each))]
        process = subprocess.Popen(run, stderr=subprocess.DEVNULL, user=account, cwd=directory)
        stack.callback(_end, process)
        ask = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        until = time.monotonic() + READY_S
        while subprocess.run(ask, check=False).returncode:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("PostgreSQL did not become ready")
            time.sleep(0.05)
        yield f"postgresql://fencepost@127.0.0.1:{port}/postgres"


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(READY_S)
