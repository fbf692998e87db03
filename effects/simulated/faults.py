"""Faults: which operations of a simulated disk fail, how, and how often."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from ..disk_errors import CannotOpen, error_class
from .operations import Operation, Read, Sync, Truncate, Write

Matches = Callable[[Operation], bool]


@dataclass(slots=True, eq=False)
class Fault:
    """Makes matching operations fail. times: how often; None: always. hits: how often it has done so.

    after_bytes: how many bytes a write writes before it fails; negative: counted from its end.
    """

    matches: Matches
    error: int = errno.EIO
    times: int | None = 1
    after_bytes: int = 0
    hits: int = 0

    def count_hit(self, operation: Operation) -> bool:
        """Return whether this operation must fail; if so, count it as a hit."""
        if self.times == self.hits or not self.matches(operation):
            return False
        self.hits += 1
        return True

    def exception(self, path: str, operation: Operation) -> OSError:
        """Return the exception that a real disk raises for this operation. CannotOpen is returned only for an
        operation that names a path.
        """
        by_name = not isinstance(operation, Read | Write | Truncate | Sync)
        return os_error(self.error, path, by_name=by_name)


def os_error(number: int, path: str, *, by_name: bool = True) -> OSError:
    """Return the exception that the real disk raises for this errno. by_name: the operation names a path."""
    kind = error_class(number)
    if kind is CannotOpen and not by_name:
        kind = OSError
    return kind(number, os.strerror(number), path)
