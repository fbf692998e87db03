"""The lock of a file on a simulated disk."""

from typing import Protocol

from ..locks import Lock


class _File(Protocol):
    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...


class SimulatedLock(Lock):
    """One of the paths in `locked`, until released."""

    def __init__(self, file: _File, path: str, locked: set[str]) -> None:
        self._file = file
        self._path = path
        self._locked = locked

    def release(self) -> None:
        if self._path in self._locked:
            self._locked.discard(self._path)
            self._file.truncate(0)
            self._file.close()
