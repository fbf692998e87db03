"""When the state of a log's producers is written to a file, and which of these snapshots count.

A snapshot has the state as of one offset, the log's end when it was taken. It counts once everything below that offset
is flushed, because a recovery loads it and applies the batches after it. Two are kept, with the segments from the older
one on, even below the log's start. If these segments are to be removed and nothing new was appended, the second
snapshot is a copy of the first. A snapshot without producers is taken and counted like any other, but needs no file and
no second one. If there are many producers, they are encoded in slices, between which appends go on.
"""

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

from ...effects.disk import Disk
from .. import checkpoints
from .state import LogState

KIND = "producers"
VERSION = 1
SUFFIX = ".producers"
SLICE_PRODUCERS = 500


class Snapshot(NamedTuple):
    """The state of producers as of an offset. empty: no producer, and no file. copy: 1 for a second file with the same
    offset.
    """

    offset: int
    empty: bool
    copy: int = 0

    @property
    def name(self) -> str:
        """The name of the snapshot's file: its offset, and `.copy` for each further snapshot there."""
        return f"{self.offset:020d}{'.copy' * self.copy}{SUFFIX}"

    def path_in(self, directory: str) -> str:
        """Return the path of the snapshot's file. directory: of the log."""
        return f"{directory}/{self.name}"


def parse_name(name: str) -> Snapshot | None:
    """Parse the file name of a snapshot; None for another name."""
    digits, _, rest = name.partition(".")
    if (
        len(digits) != 20
        or not (digits.isascii() and digits.isdecimal())
        or "." + rest not in (SUFFIX, ".copy" + SUFFIX)
    ):
        return None
    return Snapshot(int(digits), False, int("." + rest != SUFFIX))


def floor(snapshots: Sequence[Snapshot]) -> int:
    """Return the offset from which a recovery needs batches if the newest of these snapshots is damaged, so that it
    must use the one before or begin at the start of the log.
    """
    if snapshots and snapshots[-1].empty:
        return snapshots[-1].offset
    return snapshots[-2].offset if len(snapshots) > 1 else 0


class SnapshotJob:
    """Writes a snapshot to its file. `done` is set once the file is durable."""

    def __init__(self, disk: Disk, path: str, snapshot: Snapshot, mark: int, payload: bytes) -> None:
        """mark: how many bytes had been appended to the log when the snapshot began. payload: the encoded producers."""
        self.snapshot = snapshot
        self.offset = snapshot.offset
        self.mark = mark
        self.done = False
        self._disk = disk
        self._path = path
        self._payload = payload

    def run(self) -> None:
        """Write and sync the file. Raises: DiskFull (harmless: the previous snapshot still counts), OSError."""
        checkpoints.write_file(self._disk, self._path, KIND, VERSION, self._payload)
        self.done = True


class _Slices:
    """A snapshot that is being encoded, slice by slice."""

    def __init__(self, offset: int, mark: int) -> None:
        """offset: the end (exclusive) of the records that the snapshot covers. mark: how many bytes had been appended
        to the log by then.
        """
        self.offset = offset
        self.mark = mark
        self.pieces: list[bytes] = []  # empty until the last slice is encoded


class ProducerSnapshots:
    """The snapshots of one log."""

    def __init__(self, log: LogState) -> None:
        self.kept = [Snapshot(0, empty=True)]  # ascending; the last ones may still wait for batches to be flushed
        self.taken_bytes = 0  # appended to the log, or scanned in opening it
        self._log = log
        self._mark = 0  # taken_bytes at the newest snapshot
        self._emptied = 0  # log.producers.emptied at the newest snapshot of no producers
        self._job: SnapshotJob | None = None
        self._slices: _Slices | None = None

    def path(self, snapshot: Snapshot) -> str:
        """Return the path of a snapshot's file."""
        return snapshot.path_in(self._log.directory)

    @property
    def bytes_since(self) -> int:
        """The bytes of batches that a recovery would read to rebuild the state of producers."""
        return self.taken_bytes - self._mark if self._log.producers else 0

    @property
    def _wanted(self) -> bool:
        """Return whether a snapshot can be written that has state which no other has, or that is a copy of the newest
        one, so that the older one holds no segments any more.
        """
        log = self._log
        if not log.producers or not log.made_directory or log.offline is not None:
            return False
        newest = self.kept[-1] if self.kept else None
        return newest is None or newest.offset < log.end_offset or (not newest.copy and self.hold_segments)

    @property
    def hold_segments(self) -> bool:
        """Whether the older snapshot keeps segments below the log's start from being removed, or others from being
        compacted.
        """
        log = self._log
        segments, low = log.segments, floor(self.kept)
        if log.settings.compacts and len(segments) > 1 and max(low, log.cleaned_offset) < segments[-2].end_offset:
            return bool(log.producers)
        return bool(segments) and low < segments[0].end_offset <= log.start_offset

    def prepare(self) -> bool:
        """Encode a part of a large snapshot, for about a millisecond. Returns whether more calls are needed before
        job().
        """
        if self._slices is None:
            if len(self._log.producers) <= SLICE_PRODUCERS or not self._wanted:
                return False
            self._begin()
        else:
            self._advance()
        return self._slices is not None and not self._slices.pieces

    def job(self) -> SnapshotJob | None:
        """Return a job that writes the state to a file; None if there is nothing new, or it is not fully encoded
        yet.
        """
        self.adopt()
        if self._slices is not None:
            self._advance()
        elif self._wanted:
            self._begin()
        if self._slices is None or not self._slices.pieces:
            return None
        slices, self._slices = self._slices, None
        payload = b"".join(slices.pieces)
        again = bool(self.kept) and self.kept[-1].offset == slices.offset
        snapshot = Snapshot(slices.offset, empty=False, copy=int(again))
        self._job = SnapshotJob(self._log.disk, self.path(snapshot), snapshot, slices.mark, payload)
        return self._job

    def _begin(self) -> None:
        """Begin a snapshot of the producers at the log's present end, and encode its first slice."""
        self._slices = _Slices(self._log.end_offset, self.taken_bytes)
        self._log.producers.begin_snapshot()
        self._advance()

    def _advance(self) -> None:
        """Encode the next slice of the snapshot that was begun."""
        slices = self._slices
        if slices is not None and not slices.pieces:
            slices.pieces = self._log.producers.advance_snapshot(SLICE_PRODUCERS) or []

    def adopt(self) -> bool:
        """Take over the snapshot that a job wrote, or note that no producer is left. Returns whether either is new."""
        job = self._job
        if job is not None and job.done:
            self._job = None
            insort(self.kept, job.snapshot)
            self._mark = job.mark
            return True
        return not self._log.producers and self._adopt_none()

    def _adopt_none(self) -> bool:
        """Keep a snapshot without producers (and without a file), because the log has no producer at its end. If the
        newest snapshot has none either, and no producer came and went since, it is moved up to flushed_offset instead.
        Returns whether anything has changed.
        """
        log, newest = self._log, self.kept[-1] if self.kept else None
        if newest is not None and newest.empty:
            if newest.offset >= log.flushed_offset:
                return False  # it counts once flushed; replaced each time by a later one, it never would
            if log.producers.emptied == self._emptied:
                self.kept[-1] = Snapshot(log.flushed_offset, empty=True)
                self._mark = self.taken_bytes - log.tail_bytes
                return True
        self._emptied = log.producers.emptied
        self._mark = self.taken_bytes
        self.kept.append(Snapshot(log.end_offset, empty=True))
        return True

    def choose(self) -> tuple[tuple[Snapshot, ...], list[str]]:
        """Choose the snapshots that a manifest names, and forget older ones. Returns (up to two: the newest ones that
        cover flushed records only, the paths of the files of older ones, to be removed).
        """
        flushed_offset = self._log.flushed_offset
        chosen = [each for each in self.kept if each.offset <= flushed_offset][-2:]
        if chosen and chosen[-1].empty:  # nothing of what came before is left, or needed
            del chosen[:-1]
        gone = self.kept[: self.kept.index(chosen[0])] if chosen else []
        del self.kept[: len(gone)]
        return tuple(chosen), [self.path(each) for each in gone if not each.empty]
