"""Errors of a disk after which everything on it is known: what failed may be tried again. All others are OSError.

Source: Linux `open(2)`, `write(2)`.
"""

import contextlib
import errno
from collections.abc import Iterator

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class TryLater(OSError):
    """Something could not be done for now. What is on the disk is known all the same: it may be tried again."""


class DiskFull(TryLater):
    """No space left for what was to be written. A part of it may have been."""


class DiskLow(DiskFull):
    """What is to stay free would not. Nothing was written."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ENOSPC, reason)

    def __str__(self) -> str:
        return str(self.strerror)


class CannotOpen(TryLater):
    """No descriptor, or no memory, is left to open one more file or directory. Nothing was done."""


class DirectoryMoved(Exception):
    """The directory that this process has locked is not at its path any more. Nothing was done.

    No OSError: it says nothing about the bytes on disk, and nobody who is ready for one may go on after it.
    """

    hint = (
        "stop a broker before its data directory is moved, removed or restored; "
        "all that was acknowledged is in the directory that it had, wherever that is now"
    )

    def __init__(self, path: str) -> None:
        super().__init__(path)  # what a copy is made from
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} was moved, removed or replaced while this process had it locked"


def error_class(number: int | None) -> type[OSError]:
    """The class for the error of a call that takes a path. A directory may have to grow for a name."""
    return DiskFull if number in NO_SPACE else CannotOpen if number in NO_DESCRIPTOR else OSError


@contextlib.contextmanager
def convert_errors(path: str) -> Iterator[None]:
    """Around such calls, which may name a file by a part of its path: raises their errors in their class, with all."""
    try:
        yield
    except OSError as error:
        raise error_class(error.errno)(error.errno, error.strerror, path) from None
