"""The lock of a file on a simulated disk, and of its directory."""

from collections.abc import Callable, Collection
from typing import Protocol

from ..disk.locks import Lock


class _File(Protocol):
    def truncate(self, size: int) -> None:
        """Cut the file to this size."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class SimulatedHold(Lock):
    """A directory that is open but not locked. at_release: called once, at release."""

    def __init__(self, at_release: Callable[[], None]) -> None:
        self._at_release: Callable[[], None] | None = at_release

    def release(self) -> None:
        at_release, self._at_release = self._at_release, None
        if at_release is not None:
            at_release()


class SimulatedLock(Lock):
    """Keeps inodes in the set `locked` until released. file: the one with the process id; None if there is none."""

    def __init__(
        self, file: _File | None, inodes: Collection[int], locked: set[int], hold: Lock, *, signed: bool
    ) -> None:
        """locked: the set of locked inodes, to which these are added. signed: the file has the process id, and is
        emptied at release.
        """
        self._file = file
        self._inodes = inodes
        self._locked = locked
        self._hold: Lock | None = hold
        self._signed = signed
        locked.update(inodes)

    def release(self) -> None:
        """Release the lock, and empty and close the file. Does nothing the second time."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        hold.release()
        self._locked.difference_update(self._inodes)
        if self._file is not None:
            if self._signed:
                self._file.truncate(0)
            self._file.close()
