"""Where a recovery reads the units after its checkpoint, and where the next ones are written.

One is the journal of the data directory; another is a store of objects (storage/objects/source.py).
"""

from collections.abc import Iterator
from typing import Protocol

from ..effects.disk import Disk
from ..effects.rng import Rng
from . import layout, store_checkpoint, store_mark
from .journal.any_journal import AnyJournal
from .journal.format import FlatPart
from .journal.journal import Journal
from .store import StoreSettings
from .store_checkpoint import StoreCheckpoint


class StoreDamaged(Exception):
    """Raised if opening the data directory would silently lose something. Nothing was changed."""

    def __init__(self, path: str, reason: str, hint: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.hint = hint


class FoundUnits(Protocol):
    """The units of a journal that count (are applied by recovery). Scan in journal/scan.py explains the fields."""

    @property
    def incarnation(self) -> int:
        """The highest incarnation (count of starts) that was found."""
        ...

    @property
    def highest_unit(self) -> int:
        """The highest number of a unit that was found, also of units that are dropped."""
        ...

    @property
    def highest_round(self) -> int:
        """The highest number of a round that was found, also of rounds that are dropped."""
        ...

    @property
    def age_ms(self) -> int:
        """The age (uptime over all starts) that the newest round names; 0 if rounds of this journal name none."""
        ...

    @property
    def cut_bytes(self) -> int:
        """The size of the journal's end that was written but never synced, and is cut off."""
        ...

    @property
    def cut_reason(self) -> str:
        """Why the end of the journal was cut off; "" if it was not."""
        ...

    def parts(self, above: int = 0) -> Iterator[FlatPart]:
        """Yield the parts of the units above a number, in order."""
        ...


class JournalSource(Protocol):
    """What a recovery uses of a journal."""

    def prepare(self) -> None:
        """Check the directory, once it is locked, before anything else is called. May refuse it, or fill an empty one
        from a store.
        """
        ...

    def scan(self, start: StoreCheckpoint) -> FoundUnits:
        """Read the journal, and decide which units after the checkpoint count. Changes nothing in the data
        directory.
        """
        ...

    def begin(self, end: StoreCheckpoint) -> AnyJournal:
        """Begin an empty journal. Only to be called when all units of earlier journals are in segments that the durable
        checkpoint `end` names.
        """
        ...


class JournalOfDirectory:
    """The journal in the data directory."""

    def __init__(self, disk: Disk, rng: Rng, directory: str, settings: StoreSettings) -> None:
        self._disk = disk
        self._rng = rng
        self._directory = directory
        self._settings = settings

    def prepare(self) -> None:
        """Check that the journal is in this directory. Raises: StoreDamaged if it is in a store."""
        mark = store_mark.read_mark(self._disk, self._directory)
        check_complete(self._directory, mark)
        if mark is not None and mark.adopting:
            raise adoption_cut_short(self._directory)
        if mark is not None:
            path = store_mark.mark_path(self._directory)
            raise StoreDamaged(path, "the journal of this directory is in a store of objects", _WITH_THE_STORE)

    def scan(self, start: StoreCheckpoint) -> FoundUnits:
        """Read the journal's files, and decide which units after the checkpoint count. Raises: JournalDamaged,
        NewerFormat.
        """
        return store_checkpoint.scan_journal(self._disk, self._directory, start)

    def begin(self, end: StoreCheckpoint) -> AnyJournal:
        """Create the first journal file of this start, and remove the files of earlier starts, whose units are all in
        segments that the durable checkpoint `end` names.
        """
        return Journal(
            self._disk,
            layout.journal_directory(self._directory),
            incarnation=end.incarnation,
            next_unit=end.next_unit,
            next_round=end.next_round,
            max_bytes=self._settings.journal_max_bytes,
            keep_free_bytes=self._settings.min_free_bytes,
            salt=self._rng.bytes(8),
        )


def check_complete(directory: str, mark: store_mark.Mark | None) -> None:
    """Raise StoreDamaged if the mark says that a restore into the directory was cut short."""
    if mark is not None and mark.identity == store_mark.CUT_SHORT:
        raise StoreDamaged(directory, "a restore into it was cut short", "restore again, into another folder")


def adoption_cut_short(directory: str) -> StoreDamaged:
    """Return the error for a directory that was being copied into an object store when the copying was cut short; a
    start with that store finishes it.

    The directory's own journal is still complete. To serve it without that store, an admin renames the mark file to
    that of a restored directory: another broker may have served the store meanwhile, so clients must be fenced as after
    a restore.
    """
    return StoreDamaged(
        directory,
        "it was being put into a store of objects, which was not finished",
        "start with that store again, which finishes it; only if that store is gone for good: "
        f"mv {store_mark.mark_path(directory)} {directory}/{layout.RESTORED}, then start without it or with another",
    )


_WITH_THE_STORE = "start with that store, or with another --data-dir; nothing was changed"
