"""Ends all servers when the process that started them ends, even if it was killed.

A watcher process, in a session of its own, reads from a pipe which servers run and which directories they use. When the
pipe is closed, the watcher kills the servers and removes the directories that are still in its list. The watcher is run
by its path, which starts more quickly than a module.
"""

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

EMPTIED_S = 10.0  # a server that is killed may write until it is gone


@contextlib.contextmanager
def watched(what: int | Path) -> Iterator[None]:
    """Let the watcher kill a process (given by its id) or remove a directory, if this process is killed within the
    block.
    """
    named = str(what) if isinstance(what, Path) else what
    _tell("more", named)
    try:
        yield
    finally:
        _tell("less", named)


def _tell(change: str, what: int | str) -> None:
    """Tell the watcher process about a process or directory. change: "more" to watch it, "less" to forget it."""
    stream = _watcher().stdin
    assert stream is not None
    with contextlib.suppress(OSError):  # the watcher was killed: measuring does not need it
        stream.write(json.dumps([change, what]) + "\n")
        stream.flush()


@functools.cache
def _watcher() -> "subprocess.Popen[str]":
    """Return the watching process, one for the life of this process, started before anything is measured."""
    process = subprocess.Popen(
        [sys.executable, "-I", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C must not end the watcher, which cleans up after this process
    )
    atexit.register(_dismiss, process)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _dismiss(process: "subprocess.Popen[str]") -> None:
    """Let the watcher process end, and wait for it."""
    with contextlib.suppress(OSError):
        process.communicate()


# ---- the watcher ---------------------------------------------------------------------------------------------


def main() -> None:
    """Run the watcher: read which processes and directories to watch until the writer has ended, then kill and remove
    them.
    """
    print("watching", flush=True)
    there: set[int | str] = set()
    for line in sys.stdin:
        change, what = json.loads(line)
        if change == "more":
            there.add(what)
        else:
            there.discard(what)
    _end(there)


def _end(there: set[int | str]) -> None:
    """Kill these processes and remove these directories; tries for EMPTIED_S while files are still being created in
    them.
    """
    for process in (each for each in there if isinstance(each, int)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + EMPTIED_S
    left = [each for each in there if isinstance(each, str)]
    while left and time.monotonic() < deadline:
        for directory in left:
            shutil.rmtree(directory, ignore_errors=True)
        left = [each for each in left if os.path.exists(each)]


if __name__ == "__main__":
    main()
