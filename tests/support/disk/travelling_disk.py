"""What another process sees of a disk while a recorded workload goes on: between two of its calls, time passes.

    beside = TravellingDisk(recorded, first=40, pace=lambda: rng.randrange(5))

Each look at the disk is at a later moment of the record than the one before. A file that is open stays the same one, as
on a real system, whatever becomes of its name.
"""

from collections.abc import Callable

from fencepost.effects.disk import AlreadyLocked
from fencepost.effects.simulated.disk import SimulatedDisk, SimulatedFile


class TravellingDisk(SimulatedDisk):
    """Read-only. `now`: so many operations of the record were done. `is_served`: somebody holds the lock."""

    def __init__(self, recorded: SimulatedDisk, first: int, pace: Callable[[], int], *, is_served: bool = True) -> None:
        super().__init__(history=False)
        self._operations = recorded.operations
        self._pace = pace
        self._is_served = is_served
        self._seen_volume = recorded._history._start.copy()
        self.now = 0
        self._go_on(first)

    @property
    def _seen(self):
        return self._seen_volume

    def _go_on(self, count: int) -> None:
        for operation in self._operations[self.now : self.now + count]:
            self._seen_volume.apply(operation)
        self.now = min(self.now + count, len(self._operations))

    def open(self, path, *, create=False, read_only=False):
        assert read_only
        self._go_on(self._pace())
        return super().open(path, read_only=True)

    def exists(self, path):
        self._go_on(self._pace())
        return super().exists(path)

    def is_directory(self, path):
        self._go_on(self._pace())
        return super().is_directory(path)

    def list(self, path):
        self._go_on(self._pace())
        return super().list(path)

    def read(self, file: SimulatedFile, size: int, position: int) -> bytes:
        self._go_on(self._pace())
        return super().read(file, size, position)

    def lock(self, path):
        if self._is_served:
            raise AlreadyLocked(path, 1)
        return _Held()


class _Held:
    def release(self) -> None:
        pass
