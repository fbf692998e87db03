"""A journal without a store: rounds and fill jobs run inline, in the order a test says, on files of a few blocks."""

from typing import Any, NamedTuple

from disk_files import read
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.journal.journal import APPEND, Journal, Part, RoundWrite
from fencepost.storage.journal.scan import Scan, scan

DIRECTORY = "/journal"
BLOCK = 4096
SMALL: dict[str, Any] = {"first_file_bytes": 4 * BLOCK, "largest_file_bytes": 8 * BLOCK, "max_bytes": 64 * BLOCK}
HEAD = b"sixteen bytes .."


class Found(NamedTuple):
    """A recovered unit, as tests compare it."""

    number: int
    data: bytes


class Driven:
    """A journal, and what a store would do with it, as calls."""

    def __init__(self, disk: Any, *, salt: bytes = b"saltsalt", fill: bool = True, **sizes: Any) -> None:
        """Recover what is on the disk (it is in `recovered`), and begin a fresh journal."""
        self.disk = disk
        disk.make_directory(DIRECTORY)
        disk.sync_directory("/")
        self.scan: Scan = scan(disk, DIRECTORY)
        self.recovered = found_units(self.scan)
        self.journal = Journal(
            disk,
            DIRECTORY,
            incarnation=self.scan.incarnation + 1,
            next_unit=self.scan.highest_unit + 1,
            next_round=self.scan.highest_round + 1,
            salt=salt,
            **{**SMALL, **sizes},
        )
        if fill:
            self.fill()

    def append(self, data: bytes) -> int:
        """Append a unit (journal entry) with one batch. If there is no room for it, the journal is filled ahead
        before.
        """
        self.room(len(HEAD) + len(data))
        return self.journal.append_batch(7, self.journal.next_unit, HEAD, memoryview(data))

    def commit(self, *datas: bytes) -> int:
        """Append a unit (journal entry) with several parts."""
        self.room(sum(map(len, datas)) + 21 * len(datas) + 24)
        return self.journal.append([Part(APPEND, log_id, 5, (data,)) for log_id, data in enumerate(datas)])

    def room(self, size_bytes: int) -> None:
        if not self.journal.admits(size_bytes):
            self.fill()
            assert self.journal.admits(size_bytes)

    def fill(self) -> None:
        while (job := self.journal.fill_job()) is not None:
            job.run()
            self.journal.filled(job)

    def round(self, *, sync: bool = True) -> RoundWrite | None:
        write = self.journal.take_round(sync=sync)
        if write is not None:
            write.run()
            self.journal.finished(write)
        return write

    def seal(self) -> None:
        """Sync as an idle broker does: an empty round says that the round before was synced."""
        self.round(sync=True)

    @property
    def ready_bytes(self) -> int:
        """Return how many bytes of zero-filled space are ready, in the current file and the next."""
        return max(0, self.journal._room) + sum(file.capacity for file in self.journal._files.ready)

    def files(self) -> list[str]:
        return [f"{DIRECTORY}/{name}" for name in self.disk.list(DIRECTORY)]


def found_units(result: Scan, above: int = 0) -> list[Found]:
    """Return number and bytes of each recovered unit; the bytes of its parts are joined by "|"."""
    return [
        Found(unit.number, b"|".join(b"".join(part.data) for part in unit.parts).removeprefix(HEAD))
        for unit in result.units(above)
    ]


def recovered(disk: Any) -> list[Found]:
    """Return the units that a scan of the journal finds now."""
    return found_units(scan(disk, DIRECTORY))


def small_disk(**settings: Any) -> SimulatedDisk:
    return SimulatedDisk(**settings)


def patch(disk: Any, path: str, position: int, data: bytes) -> None:
    """Change bytes of a file, durably."""
    file = disk.open(path)
    file.write([data], position)
    file.sync()
    file.close()


def place(disk: Any, unit: int) -> tuple[str, int]:
    """Return the path of the file with this unit and the position of its length field."""
    return next((one.path, one.position) for one in scan(disk, DIRECTORY).units() if one.number == unit)


def spoil(disk: Any, path: str, position: int, length: int = 1) -> None:
    patch(disk, path, position, bytes(byte ^ 0xFF for byte in read(disk, path)[position : position + length]))


def fill_up(driven: Driven, rounds: int = 24) -> None:
    for _ in range(rounds):
        driven.append(b"x" * 3000)
        driven.round()
