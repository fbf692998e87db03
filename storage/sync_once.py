"""Syncs of files that several workers write: one at a time, and none after one that failed.

The kernel reports a failed write-back to one caller only, so a second sync may succeed although bytes are lost
("fsyncgate").
"""

import threading
from collections.abc import Callable

from ..effects.disk import CannotOpen


class SyncOnce:
    """Syncs the files of one pool or one journal."""

    __slots__ = ("_failed", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed: OSError | None = None

    @property
    def failed(self) -> bool:
        """Whether a sync has failed."""
        return self._failed is not None

    def run(self, sync: Callable[[], None]) -> None:
        """Run a sync, blocking. Raises CannotOpen if no descriptor was left for it: nothing is lost, and it may be
        tried again. Raises OSError if this or an earlier sync has failed: unsynced bytes are lost then.

        DiskFull becomes a plain OSError: bytes that were counted as written are lost, so trying again would not help.
        """
        with self._lock:
            if self._failed is not None:
                raise _again(self._failed) from self._failed
            try:
                sync()
            except CannotOpen:
                raise
            except OSError as error:
                self._failed = error
                raise _again(error) from error


def _again(error: OSError) -> OSError:
    """Return a new error like this one, with a traceback of its own."""
    return OSError(error.errno, error.strerror, error.filename)
