"""Commands at a terminal, not in a pipe: one process whose output and error stream are a pty, for many lines."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence

BEFORE = "▶ "  # printed before the output of each line
_RUN = f"""
import sys, signal
from fencepost.cli import main
signal.alarm(100)
for number in range(1, len(sys.argv)):
    print("{BEFORE}" + str(number), flush=True)
    try:
        main(sys.argv[number].split("\\x1f"), prog_name="fencepost")
    except SystemExit:
        pass
    sys.stdout.flush()
"""


def at_terminal(lines: Sequence[Sequence[str]], bootstrap: str, given: bytes = b"") -> list[str]:
    """Run a command for each line of words, and return what the terminal was sent for each. A word has no U+001F.
    given: the input of all commands.
    """
    terminal, end = pty.openpty()
    environment = _environment(bootstrap)
    command = [sys.executable, "-c", _RUN, *("\x1f".join(each) for each in lines)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=end, stderr=end, env=environment) as process:
        os.close(end)
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.close()
        got = _read(terminal)
        os.close(terminal)
    assert process.returncode == 0, got.decode(errors="replace")
    _, *outputs = got.decode().split(BEFORE)
    assert len(outputs) == len(lines), got.decode()
    return [each.partition("\r\n")[2] for each in outputs]


def until_shown(words: Sequence[str], bootstrap: str, text: str) -> str:
    """Run a command until it has shown `text`, end it with Ctrl-C, and return what the terminal was sent."""
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "fencepost", *words]
    with subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=_environment(bootstrap)) as process:
        os.close(end)
        got = _read(terminal, text.encode())
        process.send_signal(signal.SIGINT)
        got += _read(terminal)
        os.close(terminal)
    assert process.returncode == 130, got.decode(errors="replace")
    return got.decode()


def _environment(bootstrap: str) -> dict[str, str]:
    return {**os.environ, "FENCEPOST_BOOTSTRAP": bootstrap, "TERM": "xterm", "COLUMNS": "400"}


def _read(terminal: int, text: bytes | None = None) -> bytearray:
    """Read from the terminal until `text`, or to the end."""
    got = bytearray()
    try:
        while (text is None or text not in got) and (some := os.read(terminal, 65_536)):
            got += some
    except OSError:  # Linux says so at the end of a terminal
        pass
    return got
