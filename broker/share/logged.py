"""One share partition with the positions of its records in its log, and the types of records that may be logged for it.

Pure.

The rule: an encoded update or snapshot changes the share partition to the same state as its record would in a replay,
but in less time.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from . import records
from .machine import SharePartition, durable_states
from .records import EncodedStates, encode_states
from .runs import Columns, Transaction
from .values import SharePartitionKey, Snapshot, StateBatch, Update

RUNS = 500  # how many are encoded in one step


class EncodedUpdate(NamedTuple):
    """An update that is already encoded.

    start: the window's new start. complete: how many records from there on are acknowledged or archived. apply: changes
    the share partition as the update says, without decoding it.
    """

    start: int
    complete: int
    states: EncodedStates
    apply: Callable[[], None]


class EncodedPending(NamedTuple):
    """Acknowledgements of a transaction, already encoded.

    apply: makes them pending; its arguments are the transaction, and the offset of their record in the log.
    """

    states: EncodedStates
    apply: Callable[[Transaction, int], None]


class EncodedSnapshot(NamedTuple):
    """An encoded snapshot of a share partition in its present state. Applying it changes nothing."""

    epoch: int
    value: bytes


class LoggedAt(NamedTuple):
    """Where a record of a share partition is in the log.

    home: the partition of __share_group_state. value_bytes: the size of the record's value. logged_bytes: how many
    bytes had been logged in `home` by then, this record included.
    """

    home: int
    offset: int
    value_bytes: int
    logged_bytes: int


Logged = Update | Snapshot | EncodedUpdate | EncodedSnapshot | None
Change = tuple[SharePartitionKey, Logged]
"""The record to log for one share partition; None: it is deleted."""


class LoggedPartition:
    """One share partition, and the positions of its records in the log.

    home: the partition of __share_group_state that has its state. snapshot_offset: of its last snapshot; -1 if none was
    logged or read yet. needs_from: the offset at which a replay must begin to restore its whole state.
    """

    __slots__ = (
        "created_ms",
        "epoch",
        "home",
        "machine",
        "needs_from",
        "snapshot_at",
        "snapshot_bytes",
        "snapshot_offset",
        "update_bytes",
        "updates",
    )  # fmt: skip

    def __init__(self, home: int, start: int, state_epoch: int) -> None:
        """home: the partition of the topic that has its state. start: the first offset of the window."""
        self.home = home
        self.machine = SharePartition(start, state_epoch)
        self.epoch = 0
        self.created_ms = 0
        self.snapshot_offset = -1
        self.needs_from = 0
        self.snapshot_bytes = 0
        self.snapshot_at = 0  # how many bytes had been logged in its home by its last snapshot
        self.updates = 0  # since the snapshot
        self.update_bytes = 0

    def snapshot(self, epoch: int, batches: Sequence[StateBatch], written_ms: int = 0) -> Snapshot:
        """Return a snapshot of the share partition in its present state. batches: the states of its records, or () if
        they are encoded separately.
        """
        machine = self.machine
        complete = machine.runs.complete
        return Snapshot(epoch, machine.state_epoch, machine.start, complete, batches, self.created_ms, written_ms)

    def encoded_snapshot(self, states: EncodedStates, now_ms: int) -> EncodedSnapshot:
        """Return the next snapshot to be logged, as bytes. states: the states of all records, from Encoding."""
        snapshot = self.snapshot(self.epoch + 1, (), now_ms)
        return EncodedSnapshot(snapshot.epoch, records.snapshot_of(snapshot, states))

    def note_snapshot(self, at: LoggedAt) -> None:
        """Note that a snapshot of the share partition was logged here. Updates are counted anew from there."""
        pending_from = self.machine.earliest_pending
        self.snapshot_offset, self.snapshot_bytes, self.snapshot_at = at.offset, at.value_bytes, at.logged_bytes
        self.needs_from = at.offset if pending_from is None else min(at.offset, pending_from)
        self.updates = self.update_bytes = 0


class _Piece:
    """The runs (ranges of records in the same state) between two offsets, and their encoded states."""

    __slots__ = ("columns", "first", "last", "states")

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def has_changed(self, machine: SharePartition) -> bool:
        """Return whether the runs in this range have changed since they were encoded."""
        return machine.runs.part(self.first, self.last) != self.columns

    def encode(self, machine: SharePartition) -> None:
        """Encode the runs as they are now."""
        self.columns: Columns = machine.runs.part(self.first, self.last)
        batches = durable_states(zip(*self.columns, strict=True))
        self.states = EncodedStates(len(batches), encode_states(batches))


class Encoding:
    """Encodes the states of a whole share partition in steps. What changes between the steps is encoded again."""

    def __init__(self, machine: SharePartition) -> None:
        self._machine = machine
        self._begin()

    def _begin(self) -> None:
        """Discard what was encoded, and start again from the first record of the window."""
        self._state_epoch = self._machine.state_epoch
        self._at = self._machine.start
        self._pieces: list[_Piece] = []

    def _begin_again_if_offset_was_set(self) -> None:
        """Begin again if an admin has set the share partition's offset.

        The window may then start at a lower offset, where nothing is encoded yet. Otherwise its start only moves up.
        """
        if self._state_epoch != self._machine.state_epoch:
            self._begin()

    def encode_ahead(self) -> Iterator[int]:
        """Encode the states in steps. Yields after each step how many runs it encoded, so that others can be served."""
        while runs := self._encode_next():
            yield runs
            self._begin_again_if_offset_was_set()

    def _encode_next(self) -> int:
        """Encode the next RUNS runs (ranges of records in the same state). Returns how many there were; 0 at
        the end.
        """
        columns = self._machine.runs.next_part(self._at, RUNS)
        if columns[0]:
            last = columns[1][-1]
            piece = _Piece(self._at, last)
            piece.encode(self._machine)
            self._pieces.append(piece)
            self._at = last + 1
        return len(columns[0])

    def finish(self) -> EncodedStates:
        """Encode what is left, or has changed, and return all states. The caller must commit them before anything else
        changes.
        """
        self._begin_again_if_offset_was_set()
        for piece in self._pieces:
            if piece.has_changed(self._machine):
                piece.encode(self._machine)
        while self._encode_next():
            pass
        states = [piece.states for piece in self._pieces]
        return EncodedStates(sum(each.number for each in states), b"".join([each.rows for each in states]))
