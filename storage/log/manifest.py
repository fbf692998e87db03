"""What a checkpoint contains about one log, and what becomes of files that newer checkpoints do not name any more.

Two checkpoints are kept, and either alone must be enough to recover from. So a file is removed only when two durable
checkpoints in a row, captured after it was retired, do not name it. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .producer_snapshots import Snapshot, floor
from .segment import SegmentState


class Manifest(NamedTuple):
    """What a checkpoint records about a log. It is packed by msgpack as it is; from_row() makes it from the unpacked
    row.
    """

    start_offset: int
    end_offset: int  # of what is flushed; the journal has the rest
    cleaned_offset: int
    snapshots: tuple[Snapshot, ...]  # of the producers, those that count: ascending, two at most
    segments: tuple[SegmentState, ...]

    @classmethod
    def from_row(cls, row: object) -> "Manifest":
        """Make a manifest from its stored row. Raises TypeError or ValueError if the row is not a manifest."""
        if not isinstance(row, Sequence):
            raise TypeError(f"a manifest must be a row, not {row!r}")
        start_offset, end_offset, cleaned_offset, snapshots, segments = row
        if {type(start_offset), type(end_offset), type(cleaned_offset)} != {int}:
            raise TypeError(f"the offsets of a manifest must be whole numbers, not {row[:3]!r}")
        states = tuple(SegmentState.from_row(segment) for segment in segments)
        kept = tuple(Snapshot(*each) for each in snapshots)
        if any(tuple(map(type, each)) != (int, bool, int) for each in kept):
            raise TypeError(f"each snapshot of a manifest must be two numbers around a boolean, not {snapshots!r}")
        return cls(start_offset, end_offset, cleaned_offset, kept, states)

    @property
    def snapshot_floor(self) -> int:
        """The offset from which segments are needed to rebuild the state of producers, even below the log's start
        offset.
        """
        return floor(self.snapshots)


class Retired:
    """A file that newer checkpoints do not name, to be removed later."""

    __slots__ = ("checkpoints_left", "path", "unnamed")

    def __init__(self, path: str, checkpoints_left: int = 2) -> None:
        """checkpoints_left: how many checkpoints that do not name the file must be durable before it is removed."""
        self.path = path
        self.unnamed = False  # whether a manifest without the file has been captured
        self.checkpoints_left = checkpoints_left
