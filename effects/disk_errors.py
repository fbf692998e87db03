"""Errors after which the state of the disk is known, so that the operation may be tried again. All others are OSError.

Source: Linux `open(2)`, `write(2)`.
"""

import contextlib
import errno
from collections.abc import Iterator

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class TryLater(OSError):
    """Raised if an operation failed and the state of the disk is known, so that it may be tried again."""


class DiskFull(TryLater):
    """Raised if no space is left. A part of the bytes may have been written."""


class DiskLow(DiskFull):
    """Raised if a write would use space that must stay free. Nothing was written."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ENOSPC, reason)

    def __str__(self) -> str:
        return str(self.strerror)


class CannotOpen(TryLater):
    """Raised if no descriptor or memory is left to open another file or directory. Nothing was done."""


class DirectoryMoved(Exception):
    """Raised if the directory that this process has locked is not at its path any more. Nothing was done.

    It is not an OSError, because it says nothing about the bytes on disk: code that handles an OSError must not go on
    after it.
    """

    hint = (
        "stop a broker before its data directory is moved, removed or restored; "
        "all that was acknowledged is in the directory that it had, wherever that is now"
    )

    def __init__(self, path: str) -> None:
        super().__init__(path)  # not the text: copies are made from these arguments
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} was moved, removed or replaced while this process had it locked"


def error_class(number: int | None) -> type[OSError]:
    """Return the exception class for this errno of a call with a path: DiskFull, CannotOpen or OSError.

    Such a call can find the disk full because a directory has to grow for a name.
    """
    return DiskFull if number in NO_SPACE else CannotOpen if number in NO_DESCRIPTOR else OSError


@contextlib.contextmanager
def convert_errors(path: str) -> Iterator[None]:
    """Convert an OSError of the block to its class of error_class(), with the whole path."""
    try:
        yield
    except OSError as error:
        raise error_class(error.errno)(error.errno, error.strerror, path) from None
