"""A cut: what may be left of the disk after a power failure at one moment.

`base` has everything that is surely durable; the queues have, in order, the operations that may be lost. The rule: any
subset of the unsynced operations may have reached the device, in any order, torn or whole. If a sync fails, the
operations that it should have made durable stay readable, but no later sync makes them durable, because the kernel has
marked their pages clean (PostgreSQL's "fsyncgate").
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter

from .operations import Link, Operation, Rename, Sync, SyncDirectory, Truncate, Unlink, Write
from .torn import Tear
from .volume import Volume

_NAMES = -1  # the queue of all name operations; each inode has one for its data operations
_by_index = attrgetter("index")


class Cut:
    def __init__(self, base: Volume) -> None:
        self.base = base
        self._queues: dict[int, list[Operation]] = {}  # by inode, or _NAMES
        self._names_in: dict[int, list[Operation]] = {}  # by directory: name operations since its last sync
        self._covered: set[int] = set()  # indexes of queued operations that a sync made durable
        self._lost: set[int] = set()  # indexes of queued operations whose sync failed

    def copy(self) -> "Cut":
        """Return an independent copy."""
        twin = Cut(self.base.copy())
        twin._queues = {key: queue.copy() for key, queue in self._queues.items()}
        twin._names_in = {directory: names.copy() for directory, names in self._names_in.items()}
        twin._covered = self._covered.copy()
        twin._lost = self._lost.copy()
        return twin

    def record(self, operation: Operation) -> None:
        """Note an operation on the disk: a power failure may undo its effect until a sync makes it durable."""
        match operation:
            case Write(inode=inode) | Truncate(inode=inode):
                self._queues.setdefault(inode, []).append(operation)
            case Link(directory=directory) | Unlink(directory=directory) | Rename(new_directory=directory):
                self._queues.setdefault(_NAMES, []).append(operation)
                self._names_in.setdefault(directory, []).append(operation)
            case Sync(inode=inode, failed=failed, only=only):
                waiting = self._queues.get(inode, ())
                covered = waiting if only is None else [one for one in waiting if one.index == only]
                self._settle(inode, covered, failed)
            case SyncDirectory(directory=directory, failed=failed):
                self._settle(_NAMES, self._names_in.pop(directory, ()), failed)

    def unsynced(self) -> list[Operation]:
        """Return the operations that a power failure may undo, in their order."""
        waiting = [operation for queue in self._queues.values() for operation in queue]
        return sorted((one for one in waiting if one.index not in self._covered), key=_by_index)

    def found(
        self,
        *,
        kept: Collection[int] | None = None,
        dropped: Collection[int] = (),
        torn: Mapping[int, Tear] | None = None,
        order: Sequence[int] = (),
    ) -> Volume:
        """Return the disk's contents after a power failure in which only some of the unsynced operations reached the
        device.

        kept: the indices of those that did (None: all). dropped: of those that did not. torn: how some writes were
        damaged, by index. order: operations (by index) that reached the device in this order among themselves.
        """
        volume = self.base.copy()
        for operation in self._in_order(order):
            if operation.index not in self._covered:
                if operation.index in dropped or (kept is not None and operation.index not in kept):
                    continue
                if torn and operation.index in torn and isinstance(operation, Write):
                    for piece in torn[operation.index].pieces(operation):
                        volume.apply(piece)
                    continue
            volume.apply(operation)
        return volume.prune()

    def _in_order(self, order: Sequence[int]) -> list[Operation]:
        """Return all operations that are not in the base yet, in the order in which they were made. Those that `order`
        names (by index) are put into the order given there, at the places that they had among the others.
        """
        waiting = sorted((one for queue in self._queues.values() for one in queue), key=_by_index)
        if order:
            places = {operation.index: place for place, operation in enumerate(waiting)}
            moved = [waiting[places[index]] for index in order]
            for place, operation in zip(sorted(places[index] for index in order), moved, strict=True):
                waiting[place] = operation
        return waiting

    def _settle(self, key: int, operations: Iterable[Operation], failed: bool) -> None:
        """Note which operations a sync made durable or, if it failed, lost. key: of their queue."""
        indexes = {operation.index for operation in operations} - self._lost - self._covered
        if failed:
            self._lost |= indexes
            return
        self._covered |= indexes
        self._fold(key)

    def _fold(self, key: int) -> None:
        """Apply the operations at the head of this queue to the base, up to the first one that is not synced."""
        queue = self._queues.pop(key, [])
        for done, operation in enumerate(queue):
            if operation.index not in self._covered:
                self._queues[key] = queue[done:] if done else queue
                return
            self._covered.discard(operation.index)
            self.base.apply(operation)
