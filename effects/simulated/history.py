"""The history of a simulated disk: the operations on it, its contents, and what a power cut would leave."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .cuts import Cut
from .operations import Note, Operation
from .volume import Volume


class History:
    """All operations on a disk. seen: its contents as processes see them. alone: held by the thread that changes it.

    keep: False to keep no operations; only a power cut at the present moment can be simulated then.
    """

    def __init__(self, start: Volume, *, keep: bool = True, notes: tuple[Any, ...] = ()) -> None:
        self.keep = keep
        self.operations: list[Operation] = []
        self.notes = list(notes)
        self.seen = start.copy()
        self.cut = Cut(start.copy())
        self.next_index = 0
        self.next_inode = start.highest_inode() + 1
        self.alone = threading.RLock()
        self._start = start

    def record(self, operation: Operation) -> None:
        """Add an operation, and apply it to the contents. Any thread may call this."""
        with self.alone:
            if operation.index != self.next_index:  # another thread has recorded one meanwhile
                operation = replace(operation, index=self.next_index)
            self.next_index += 1
            if self.keep:
                self.operations.append(operation)
            if isinstance(operation, Note):
                self.notes.append(operation.value)
            self.seen.apply(operation)
            self.cut.record(operation)

    def cuts(self, first: int = 0) -> Iterator[tuple[int, Cut]]:
        """Yield (n, the cut after n operations), from n = `first` on. The same Cut object changes with the next
        iteration.
        """
        if not self.keep:
            raise ValueError("this disk keeps no history")
        cut = Cut(self._start.copy())
        for n in range(len(self.operations) + 1):
            if n >= first:
                yield n, cut
            if n < len(self.operations):
                cut.record(self.operations[n])

    def notes_at(self, n: int) -> tuple[Any, ...]:
        """Return the values noted within the first n operations, after those with which this history began."""
        later = sum(isinstance(operation, Note) for operation in self.operations[n:])
        return tuple(self.notes[: len(self.notes) - later])

    def killed_at(self, n: int) -> "History":
        """Return the history of the first n operations, in the state in which a new process finds the disk."""
        twin = History(self._start, notes=self.notes_at(0))
        for operation in self.operations[:n]:
            twin.record(operation)
        twin.seen = twin.seen.prune()
        twin.next_inode = self.next_inode
        return twin

    def after_process_crash(self) -> "History":
        """Return the same history for a new process: files without a name are gone."""
        twin = History(self._start, keep=self.keep)
        twin.operations = self.operations.copy()
        twin.notes = self.notes.copy()
        twin.seen = self.seen.prune()
        twin.cut = self.cut.copy()
        twin.next_index = self.next_index
        twin.next_inode = self.next_inode
        return twin
