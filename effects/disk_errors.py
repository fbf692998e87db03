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


class CannotOpen(TryLater):
    """No descriptor, or no memory, is left to open one more file or directory. Nothing was done."""


def error_class(number: int | None) -> type[OSError]:
    """The class for the error of a call that takes a path. A directory may have to grow for a name."""
    return DiskFull if number in NO_SPACE else CannotOpen if number in NO_DESCRIPTOR else OSError


@contextlib.contextmanager
def convert_errors() -> Iterator[None]:
    """Around such calls: raises their errors in their class."""
    try:
        yield
    except OSError as error:
        kind = error_class(error.errno)
        if kind is OSError:
            raise
        raise kind(error.errno, error.strerror, error.filename) from None
