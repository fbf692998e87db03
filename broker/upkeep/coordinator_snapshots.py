"""Files with the state of all coordinators, written regularly so that a start need not replay their whole logs.

The rules: a snapshot contains the entries of the state and, for each partition of the logs, the offset from which to
replay. It is taken in steps while the state changes; the replay corrects that, because it begins at the offset where
the log ended at the first step. A snapshot is written to disk when everything it contains is synced. A damaged one is
logged, and then the one before it, or else the whole log, gives the same state. The same holds for a snapshot that
compaction has overtaken, since the tombstones and markers that undo parts of it may have been removed. The last two are
kept; docs/formats.md describes them byte by byte.
"""

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from ...effects.disk import Disk, TryLater
from ...storage import checkpoints, layout
from ...storage.store import BrokerHalted
from ...storage.store_checkpoint import LogEntry
from ..shared import Shared
from ..topics.internal_topic import InternalTopic
from ..topics.names import INTERNAL
from .housekeeping import Housekeeping

if TYPE_CHECKING:
    from ..topics.partition import Partition

log = logging.getLogger("fencepost.broker")

KIND = "coordinators"
VERSION = 1
KEPT = 2
SLICE_ROWS = 1_500  # some 2 ms
SLICE_BYTES = 256 << 10
PAUSE_S = 0.002
AFTER_BYTES = 4 << 20  # appended to the logs after a snapshot, or the snapshot's size if that is more: the next is due

_UNUSABLE = (checkpoints.Damaged, ValueError, TypeError, KeyError, IndexError, msgpack.UnpackException)

Row = tuple[Any, ...]
Positions = dict[str, list[tuple[int, int, int]]]  # by topic: partition, id of its log, offset


class Source(NamedTuple):
    """A coordinator whose state is part of the snapshots.

    topic: the coordinator's log. fields: the names of a row's values; a snapshot with other names was written by
    another version, and is not used. rows: yields the state as rows of plain values and tuples; the state may change
    meanwhile. read: decodes a row. put: applies a decoded row to the state.
    """

    topic: InternalTopic
    fields: tuple[str, ...]
    rows: Callable[[], Iterator[Row]]
    read: Callable[[Row], Any]
    put: Callable[[Any], None]


class Snapshot(NamedTuple):
    """The content of a snapshot file.

    positions: by topic, the offset in each partition of its log up to which the snapshot covers the log. fields: by
    topic, the names of a row's values. slices: by topic, packed rows.
    """

    positions: Positions
    fields: dict[str, Row]
    slices: dict[str, Sequence[bytes]]
    size_bytes: int

    def entries(self, topic: str) -> list[Row]:
        """Return all rows of a topic, unpacked."""
        return [row for rows in self.slices.get(topic, ()) for row in _unpack(rows)]


def snapshot_number(name: str) -> int | None:
    """Return the number in a snapshot's file name; None for another name."""
    return layout.parse_number(name, f"{KIND}-")


def read_snapshot(disk: Disk, path: str) -> Snapshot:
    """Read and decode a snapshot file. Raises checkpoints.Damaged, NewerFormat; ValueError or msgpack's errors for bad
    content.
    """
    payload = checkpoints.read_file(disk, path, KIND, VERSION)
    positions, fields, slices = _unpack(payload)
    if not all(isinstance(part, dict) for part in (positions, fields, slices)):
        raise ValueError("its parts are not by topic")
    for of_topic in positions.values():
        if any(tuple(map(type, row)) != (int, int, int) for row in of_topic):
            raise ValueError("a position in a log does not consist of numbers")
    return Snapshot(positions, fields, slices, len(payload))


def read_from(disk: Disk, directory: str) -> Callable[[LogEntry], int | None]:
    """Return a function that gives the offset from which a start reads a coordinator's log; None for other logs.

    The function reads the newest snapshot when it is first asked about such a log; then it may raise
    checkpoints.NewerFormat, OSError.
    """
    positions: Positions | None = None

    def of(entry: LogEntry) -> int | None:
        """Return from which offset a start reads this log: the one in the newest snapshot, else 0. None if it is not a
        coordinator's log.
        """
        nonlocal positions
        if entry.topic not in INTERNAL:
            return None
        if positions is None:
            positions = _newest_positions(disk, directory)
        this = entry.partition, entry.log_id
        return next((offset for *place, offset in positions.get(entry.topic, ()) if tuple(place) == this), 0)

    return of


def _newest_positions(disk: Disk, directory: str) -> Positions:
    """Return the positions in the newest snapshot that can be read; empty if there is none."""
    for number in _numbers(disk, directory):
        try:
            return read_snapshot(disk, _path(directory, number)).positions
        except (*_UNUSABLE, FileNotFoundError):
            continue  # restore() logs it
    return {}


class CoordinatorSnapshots:
    """Takes and restores snapshots of all coordinators of one broker."""

    def __init__(
        self,
        shared: Shared,
        disk: Disk,
        housekeeping: Housekeeping,
        halt: Callable[[BaseException], None],
        sources: Sequence[Source],
    ) -> None:
        """halt: halts the broker, because of an error after which the bytes on disk are unknown."""
        self._store = shared.store
        self._topics = shared.topics
        self._housekeeping = housekeeping
        self._disk = disk
        self._halt = halt
        self._directory = shared.settings.now.log_dir
        self._sources = sources
        self._taken_bytes = 0  # appended to the logs when the last one was begun
        self._size_bytes = 0  # of the last one
        self._positions: Positions = {}  # in the last one
        self._taking = False
        self._has_time: Callable[[], bool] = lambda: True
        self.complete = False  # all coordinators have read their logs to the end: what they know may be written down
        self.taken = 0

    # ---- start -----------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Load the newest valid snapshot; the coordinators' loads then replay what came after it.

        Raises checkpoints.NewerFormat.
        """
        names = [name for name in self._disk.list(self._directory) if name.startswith(f"{KIND}-")]
        foreign = [name for name in names if snapshot_number(name.removesuffix(checkpoints.UNFINISHED)) is None]
        for warning in layout.foreign_warnings(self._directory, foreign):
            log.warning(warning)
        found = self._numbers()
        for number in found:
            try:
                self._restore(number)
                return
            except (*_UNUSABLE, FileNotFoundError) as error:  # a link to nothing
                log.warning("%s is not used: %s", self._path(number), error)
        log_bytes = sum(partition.log.size_bytes for partition in self._partitions())
        if found or log_bytes > AFTER_BYTES:
            log.warning("no snapshot of the coordinators: all %d bytes of their logs are read", log_bytes)

    def _restore(self, number: int) -> None:
        """Load one snapshot into the coordinators. Raises ValueError and others if it is not usable; then nothing was
        changed.
        """
        found = read_snapshot(self._disk, self._path(number))
        positions = found.positions
        self._check(positions, found.fields)
        decoded = [(source, [source.read(row) for row in found.entries(source.topic.name)]) for source in self._sources]
        for source, entries in decoded:
            for entry in entries:
                source.put(entry)
            of_topic = positions.get(source.topic.name, ())
            source.topic.replay_from = {partition: offset for partition, _, offset in of_topic}
        self._size_bytes, self._positions = found.size_bytes, positions
        if all(partition.log.end_offset == _known_through(positions, partition) for partition in self._partitions()):
            self._taken_bytes = self._appended_bytes()  # a new snapshot would have the same content

    def _check(self, positions: Positions, fields: dict[str, Row]) -> None:
        """Raise ValueError unless the logs are those of the snapshot and contain all offsets that it covers."""
        if any(fields.get(each.topic.name, each.fields) != each.fields for each in self._sources):
            raise ValueError("its entries are of another version")
        by_name = self._topics.by_name
        topics = {source.topic.name: source.topic for source in self._sources}
        for name, of_topic in positions.items():
            for index, log_id, offset in of_topic:
                found = by_name[name].partitions[index].log
                if found.offline is not None:
                    raise ValueError(f"{name}-{index} is offline")
                if found.log_id != log_id or found.end_offset < offset:
                    raise ValueError(f"{name}-{index} is not the log that it was taken of")
                if found.cleaned_offset > offset:
                    raise ValueError(f"{name}-{index} was compacted above offset {offset}, up to which it knows")
                if not topics[name].is_sound(index, offset):  # else it would be known in part
                    raise ValueError(f"{name}-{index} is offline")

    def _partitions(self) -> Iterator["Partition"]:
        """Return the partitions of all coordinators' topics."""
        names = [source.topic.name for source in self._sources]
        return (each for name in names if (topic := self._topics.by_name.get(name)) for each in topic.partitions)

    # ---- taking one ------------------------------------------------------------------------------------------

    async def take_if_due(self) -> None:
        """Take a snapshot if much was appended since the last one, or if compaction has removed records that a replay
        after the last one needs. If it cannot be taken now, that is logged, and the last one stays.
        """
        if self._overtaken() or self._appended_bytes() - self._taken_bytes >= max(AFTER_BYTES, self._size_bytes):
            try:
                await self.take()
            except TryLater as error:
                log.warning("no snapshot of the coordinators, the last one still counts: %s", error)

    async def take_last(self, has_time: Callable[[], bool] = lambda: True) -> None:
        """Take a snapshot at an orderly stop, if anything was appended since the last one and the whole state was
        loaded.

        has_time: returns whether there is still time; if not, the snapshot is dropped.
        """
        self._has_time = has_time
        wanted = self.complete and not self._taking and self._store.halted is None and has_time()
        if not wanted or self._appended_bytes() <= self._taken_bytes:
            return
        try:
            await self.take()
        except (TryLater, BrokerHalted):
            pass  # the logs have it all
        except Exception as error:
            self._halt(error)

    def _overtaken(self) -> bool:
        """Return whether compaction has cleaned a log beyond the offset that the last snapshot covers."""
        return any(each.log.cleaned_offset > _known_through(self._positions, each) for each in self._partitions())

    def _appended_bytes(self) -> int:
        """Return how many bytes were appended to the coordinators' topics since the broker started."""
        return sum(partition.appended_bytes for partition in self._partitions())

    async def take(self) -> None:
        """Write a snapshot, in slices. Raises TryLater (the last snapshot stays valid), BrokerHalted.

        Does nothing while a partition is offline, because its state may not have been loaded; the last snapshot has
        that state.
        """
        if any(each.log.offline is not None for each in self._partitions()):
            return
        self._taking = True
        try:
            await self._take()
        finally:
            self._taking = False

    async def _take(self) -> None:
        """Write one snapshot of all coordinators, in slices. Raises TryLater if the broker stops meanwhile."""
        housekeeping, store = self._housekeeping, self._store
        taken_bytes = self._appended_bytes()
        positions: Positions = {}  # noted before the rows, which may contain later changes: a replay repeats those
        for partition in self._partitions():
            at = partition.index, partition.log.log_id, partition.log.end_offset
            positions.setdefault(partition.topic.name, []).append(at)
        slices: dict[str, list[bytes]] = {}
        for source in self._sources:
            of_source = slices.setdefault(source.topic.name, [])
            for packed in _slice(source.rows()):
                of_source.append(packed)
                await housekeeping.pause(PAUSE_S)
                if not self._has_time():
                    raise TryLater(errno.ETIME, "the broker is stopping")
        number = max(self._numbers(), default=0) + 1
        await housekeeping.synced(store.last_unit)
        self._size_bytes = await housekeeping.job(lambda: self._write(number, positions, slices))
        self._taken_bytes, self._positions = taken_bytes, positions
        self.taken += 1

    def _write(self, number: int, positions: Positions, slices: dict[str, list[bytes]]) -> int:
        """Write a snapshot file and delete old ones, in a worker thread. Returns its size in bytes."""
        fields = {source.topic.name: source.fields for source in self._sources}
        payload = _pack([positions, fields, slices])
        checkpoints.write_file(self._disk, self._path(number), KIND, VERSION, payload)
        for old in self._numbers()[KEPT:]:
            self._disk.unlink(self._path(old))
        return len(payload)

    def _numbers(self) -> list[int]:
        """Return the numbers of the snapshot files in the directory."""
        return _numbers(self._disk, self._directory)

    def _path(self, number: int) -> str:
        return _path(self._directory, number)


def _numbers(disk: Disk, directory: str) -> list[int]:
    """Return the numbers of the snapshots on disk, newest first."""
    numbers = [snapshot_number(name) for name in disk.list(directory)]
    found = [each for each in numbers if each is not None and not disk.is_directory(_path(directory, each))]
    return sorted(found, reverse=True)


def _path(directory: str, number: int) -> str:
    return f"{directory}/{KIND}-{number}"


def _known_through(positions: Positions, partition: "Partition") -> int:
    """Return the offset (exclusive) up to which a snapshot covers a partition."""
    found = positions.get(partition.topic.name, ())
    return next((offset for index, _, offset in found if index == partition.index), 0)


def _slice(rows: Iterator[Row]) -> Iterator[bytes]:
    """Yield packed lists of at most SLICE_ROWS rows and about SLICE_BYTES bytes."""
    pack = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass").pack
    some: list[bytes] = []
    size = 0
    for row in rows:
        some.append(pack(row))
        size += len(some[-1])
        if len(some) == SLICE_ROWS or size >= SLICE_BYTES:
            yield _packed_list(some)
            some, size = [], 0
    if some:
        yield _packed_list(some)


def _packed_list(rows: Sequence[bytes]) -> bytes:
    """Return a msgpack list made of rows that are packed already."""
    head: bytes = msgpack.Packer().pack_array_header(len(rows))
    return head + b"".join(rows)


def _pack(content: Any) -> bytes:
    """Encode a row as msgpack. Names that are not valid UTF-8 are kept as they are."""
    packed: bytes = msgpack.packb(content, use_bin_type=True, unicode_errors="surrogatepass")
    return packed


def _unpack(packed: bytes) -> Any:
    """Decode what `_pack` wrote; lists come back as tuples."""
    return msgpack.unpackb(packed, raw=False, use_list=False, strict_map_key=False, unicode_errors="surrogatepass")
