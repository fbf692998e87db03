"""The output of `backup` and `restore`: their progress, and why they failed, in one line of cause and one of hint."""

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from ...effects.disk import DirectoryMoved, DiskFull
from ...storage.backup.manifest import BackupRefused
from ...storage.checkpoints import Damaged, NewerFormat
from .failures import Failure
from .interruption import Interruption

SHOWN_EVERY_S = 0.2
SHOWN_AFTER_S = 1.0


@contextmanager
def copying(interruption: Interruption, words: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to be called with (bytes done, bytes in all). It shows progress, on terminals only.

    words: what was done, for example "copied". Raises KeyboardInterrupt from the calls, after a signal.
    """
    begun = shown = time.monotonic()
    width = 0

    def report(done: int, of: int) -> None:
        """Show how much is done, on a terminal, a few times a second. Raises KeyboardInterrupt after a signal. done,
        of: bytes.
        """
        nonlocal shown, width
        interruption.check()
        now = time.monotonic()
        if now - begun < SHOWN_AFTER_S or now - shown < SHOWN_EVERY_S or not sys.stderr.isatty():
            return
        shown = now
        text = f"{words} {size_text(done)} of {size_text(of)}"
        click.echo(f"\r{text:<{width}}", err=True, nl=False)
        width = len(text)

    try:
        yield report
    finally:
        if width:
            click.echo(f"\r{'':<{width}}\r", err=True, nl=False)


def size_text(size_bytes: int) -> str:
    """Return a size for people: 512 bytes, 3.4 MB."""
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
    size = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"


def failure_of(error: Exception, damaged_hint: str) -> Failure:
    """Return the Failure for an error of backup or restore; raise any other error, a bug, again. damaged_hint: the
    hint for a damaged file.
    """
    if isinstance(error, BackupRefused | DirectoryMoved):
        return Failure(str(error), error.hint)
    if isinstance(error, Damaged):
        return Failure(str(error), damaged_hint)
    if isinstance(error, NewerFormat):
        return Failure(str(error), "use that version")
    if isinstance(error, DiskFull):
        reason = "" if error.strerror in (None, "No space left on device") else f": {error.strerror}"
        return Failure(
            f"{error.filename}: the disk is full{reason}", "free some space, or name a folder on another disk"
        )
    if isinstance(error, OSError):
        return Failure(f"{error.filename or 'copying'}: {error.strerror or error}", _hint_of(error.errno))
    raise error


def _hint_of(number: int | None) -> str:
    """Return what to do about a failed copy. number: the errno, if the operating system gave one."""
    if number in (errno.EACCES, errno.EPERM):
        return "run it as the user of the broker, and name a target in a folder where that user may write"
    if number == errno.ENOENT:
        return "look for a mistake in the names of the folders"
    return "see the system's log"
