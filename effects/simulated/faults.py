"""Faults: which operations of a simulated disk fail, how, and how often."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from ..disk import DiskFull
from .operations import Operation

Matches = Callable[[Operation], bool]


@dataclass(slots=True, eq=False)
class Fault:
    """`times` None: for ever. `after_bytes`: so much of a write is done before it fails (negative: from the end)."""

    matches: Matches
    error: int = errno.EIO
    times: int | None = 1
    after_bytes: int = 0
    hits: int = 0

    def strikes(self, operation: Operation) -> bool:
        if self.times == self.hits or not self.matches(operation):
            return False
        self.hits += 1
        return True

    def exception(self, path: str) -> OSError:
        return os_error(self.error, path)


def os_error(number: int, path: str) -> OSError:
    """As the real disk raises it."""
    kind = DiskFull if number in (errno.ENOSPC, errno.EDQUOT) else OSError
    return kind(number, os.strerror(number), path)
