"""The recovery oracle: what must hold of a data directory found after a crash (R1 to R6, R8, R10).

A workload notes on the simulated disk what it sends before it is written and what is acknowledged after; an image of
a cut carries the notes taken before it. `check` recovers on the image and compares. `check_and_serve` also notes what
that recovery found: consumers may read it from then on, so later crashes must keep it, and what it did not find must
never come back.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.protocol import batches
from fencepost.protocol.records import Marker, control_marker, records
from fencepost.storage.log.partition_log import PartitionLog
from fencepost.storage.producers.producers import RETIRED_EPOCH
from fencepost.storage.store import StoreSettings
from store_driver import Driven, batch_of, values_of
from store_dump import batches_of, committed

SETTINGS = StoreSettings(journal_max_bytes=512 << 10, tail_max_bytes=1 << 20, min_free_bytes=0, max_open_files=16)


@dataclass(frozen=True)
class Sent:
    """Note: a batch is being sent, with the offset that it will have. unit: the journal entry, shared by batches that
    must be there together.
    """

    topic: str
    offset: int
    values: tuple[bytes, ...]
    unit: int
    producer: tuple[int, int, int] | None = None  # id, epoch, first sequence
    transactional: bool = False
    ends: Marker | None = None  # it is the marker that ends the producer's transaction


@dataclass(frozen=True)
class Acknowledged:
    """Note: every unit (journal entry) up to this one is on disk, says the broker; consumers may have read it."""

    unit: int


@dataclass(frozen=True)
class Trimmed:
    """Note: the start of a log is to be moved here, in this unit (journal entry)."""

    topic: str
    offset: int
    unit: int


@dataclass(frozen=True)
class Dropped:
    """Note: a topic is to be deleted, in this unit (journal entry)."""

    topic: str
    unit: int


@dataclass(frozen=True)
class Created:
    """Note: a topic is to be created, in this unit (journal entry)."""

    topic: str
    unit: int


@dataclass(frozen=True)
class Recovered:
    """Note: a recovery has served these batches, and these log starts. Whatever it did not find is gone for ever."""

    present: frozenset[Sent]
    starts: tuple[tuple[str, int], ...]


class Workload(Driven):
    """A store whose every step is noted on its disk."""

    def __init__(self, disk: Any, settings: StoreSettings = SETTINGS, clock: Any = None) -> None:
        super().__init__(disk, clock or SimulatedClock(), settings)
        self.sequences: dict[tuple[str, int, int], int] = defaultdict(int)
        self.fill()

    def make(self, topic: str, **settings: Any) -> PartitionLog:
        self.disk.note(Created(topic, self.store.last_unit + 1))
        return self.create(topic, **settings)

    def send(
        self,
        log: PartitionLog,
        *values: bytes,
        producer: tuple[int, int] | None = None,
        transactional: bool = False,
    ) -> None:
        """Append one batch: plain, or of a (producer id, epoch) with its next sequence number."""
        fields: dict[str, Any] = {}
        identity = None
        if producer is not None:
            key = (log.topic, *producer)
            identity = (*producer, self.sequences[key])
            fields = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": self.sequences[key]}
            fields["transactional"] = transactional
            self.sequences[key] = (self.sequences[key] + len(values)) & 0x7FFF_FFFF
        unit = self.store.last_unit + 1
        self.disk.note(Sent(log.topic, log.end_offset, values, unit, identity, transactional))
        self.append(log, values, **fields)

    def end(self, kind: Marker, producer: tuple[int, int], *logs: PartitionLog) -> None:
        """Append the markers that end a transaction of (producer id, epoch), in one unit (journal entry)."""
        marker = control_marker(kind, *producer, 0, 1_000)
        values = tuple(record.value for record in records(batches.read(memoryview(marker))))
        unit = self.store.last_unit + 1
        for log in logs:
            self.disk.note(Sent(log.topic, log.end_offset, values, unit, (*producer, -1), True, kind))
        self.store.commit([self.store.append_part(log.log_id, marker) for log in logs])

    def send_together(self, *pairs: tuple[PartitionLog, Sequence[bytes]]) -> None:
        """Append several batches in one unit (journal entry): after a crash all or none of them must be there."""
        unit = self.store.last_unit + 1
        ends = {log: log.end_offset for log, _ in pairs}
        parts = []
        for log, values in pairs:
            self.disk.note(Sent(log.topic, ends[log], tuple(values), unit))
            ends[log] += len(values)
            parts.append(self.store.append_part(log.log_id, batch_of(values)))
        self.store.commit(parts)

    def trim(self, log: PartitionLog, offset: int) -> None:
        self.disk.note(Trimmed(log.topic, offset, self.store.last_unit + 1))
        self.store.commit([self.store.log_start_part(log, offset)])

    def drop(self, log: PartitionLog) -> None:
        self.disk.note(Dropped(log.topic, self.store.last_unit + 1))
        self.store.commit([self.store.drop_part(log)])

    def sync(self) -> None:
        """Write and sync the journal, and note the acknowledgement; then fill the journal ahead."""
        self.round(sync=True)
        self.disk.note(Acknowledged(self.store.released_unit))
        self.fill()


@dataclass
class Expected:
    """What a recovery must find, by the notes taken before a crash."""

    acknowledged: int = 0
    sent: list[Sent] = field(default_factory=list)
    trimmed: list[Trimmed] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    created: list[Created] = field(default_factory=list)
    certain: set[Any] = field(default_factory=set)  # notes that a recovery has settled

    @classmethod
    def of(cls, notes: Sequence[Any]) -> "Expected":
        found = cls()
        for note in notes:
            if isinstance(note, Recovered):
                found.settle(note)
            elif isinstance(note, Acknowledged):
                found.acknowledged = max(found.acknowledged, note.unit)
            elif isinstance(note, Sent):
                found.sent.append(note)
            elif isinstance(note, Trimmed):
                found.trimmed.append(note)
            elif isinstance(note, Dropped):
                found.dropped.append(note)
            elif isinstance(note, Created):
                found.created.append(note)
        return found

    def settle(self, note: Recovered) -> None:
        """Take what a recovery found: it must stay; the rest was never acknowledged, and is gone for ever."""
        starts = dict(note.starts)
        self.sent = [one for one in self.sent if one in note.present]
        self.trimmed = [one for one in self.trimmed if starts.get(one.topic, -1) >= one.offset]
        self.dropped = [one for one in self.dropped if one.topic not in starts]
        gone = {one.topic for one in self.dropped}
        self.created = [one for one in self.created if one.topic in starts or one.topic in gone]
        self.certain = {*self.sent, *self.trimmed, *self.dropped, *self.created}

    def surely(self, note: Any) -> bool:
        """Return whether somebody may know of this note, so that it must be found."""
        return note in self.certain or note.unit <= self.acknowledged


def check(image: Any, settings: StoreSettings = SETTINGS) -> Driven:
    """Recover the disk of a crash and compare it with the notes on it. Returns the recovered store, open."""
    return check_present(image, settings)[0]


def check_and_serve(image: Any, settings: StoreSettings = SETTINGS) -> Workload:
    """Recover the disk of a crash, compare it with the notes, and note what is served from now on. Returns a workload
    that continues on that disk.
    """
    recovered, present = check_present(image, settings)
    starts = [(log.topic, log.start_offset) for log in recovered.store.logs.values() if log.log_id]
    image.note(Recovered(frozenset(present), tuple(starts)))
    recovered.store.close()
    life = Workload(image, settings)
    for note in sorted(present, key=lambda note: note.offset):
        if note.producer is not None and note.ends is None:
            producer_id, epoch, sequence = note.producer
            life.sequences[note.topic, producer_id, epoch] = (sequence + len(note.values)) & 0x7FFF_FFFF
    return life


def check_present(image: Any, settings: StoreSettings = SETTINGS) -> tuple[Driven, set[Sent]]:
    """Do what check() does, and also return the batches that were found."""
    expected = Expected.of(image.notes)
    recovered = Driven(image, SimulatedClock(), settings)
    assert not recovered.report.offline, recovered.report.offline
    present = _check_records(recovered, expected)
    _check_units(expected, present)
    _check_producers(recovered, present)
    _check_transactions(recovered, present)
    assert recovered.store.last_unit >= expected.acknowledged  # R6: no number is given twice
    return recovered, present


def _check_records(recovered: Driven, expected: Expected) -> set[Sent]:
    """Check R1, R2, R4: acknowledged batches are there, every batch there was sent, and is whole."""
    gone = {note.topic for note in expected.dropped}
    surely_gone = {note.topic for note in expected.dropped if expected.surely(note)}
    surely_there = {note.topic for note in expected.created if expected.surely(note)} - gone
    logs = {log.topic: log for log in recovered.store.logs.values() if log.log_id}
    assert surely_there <= logs.keys(), "an acknowledged topic is gone"
    assert not surely_gone & logs.keys(), "a deleted topic is back"
    present: set[Sent] = set()
    for topic, log in logs.items():
        starts = [note for note in expected.trimmed if note.topic == topic]
        least = max((n.offset for n in starts if expected.surely(n)), default=0)
        most = max((n.offset for n in starts), default=0)
        assert least <= log.start_offset <= most, "the start of a log went back, or too far"
        found = dict(values_of(log))
        here = [note for note in expected.sent if note.topic == topic]
        covered: set[int] = set()
        for note in here:
            offsets = range(note.offset, note.offset + len(note.values))
            visible = [offset for offset in offsets if offset >= log.start_offset]
            matches = [found.get(offset) == note.values[offset - note.offset] for offset in visible]
            if visible and all(matches) and offsets.stop <= log.end_offset:
                present.add(note)
                covered.update(visible)
            elif not visible and offsets.stop <= log.end_offset:
                present.add(note)
            else:
                assert not expected.surely(note), f"acknowledged or seen, and lost: {note}"
        assert found.keys() == covered, f"nobody sent what stands at {sorted(found.keys() - covered)}"
        assert log.end_offset == log.high_watermark
    return present


def _check_units(expected: Expected, present: set[Sent]) -> None:
    """Check that of each unit with several parts all are there, or none."""
    gone = {note.topic for note in expected.dropped}
    by_unit: dict[int, list[Sent]] = defaultdict(list)
    for note in expected.sent:
        if note.topic not in gone:
            by_unit[note.unit].append(note)
    for notes in by_unit.values():
        assert len({note in present for note in notes}) == 1, f"a torn unit: {notes}"


def _check_producers(recovered: Driven, present: set[Sent]) -> None:
    """Check R5: the last five batches of a producer are recognised, with their offsets, and its next one
    is accepted.
    """
    histories: dict[tuple[str, int], list[Sent]] = defaultdict(list)
    for note in sorted(present, key=lambda note: note.offset):
        if note.producer is not None:
            histories[note.topic, note.producer[0]].append(note)
    for (topic, producer_id), notes in histories.items():
        log = recovered.log(topic)
        epoch = notes[-1].producer[1]
        if epoch == RETIRED_EPOCH:
            assert producer_id not in log.producers, f"not forgotten: {notes[-1]}"
        recent = [note for note in notes if note.producer[1] == epoch and note.ends is None][-5:]
        for note in recent:
            duplicate = log.producers.judge(_batch(note, note.producer[2]))
            assert duplicate is not None, f"forgotten: {note}"
            assert duplicate.base_offset == note.offset
        if recent:
            following = (recent[-1].producer[2] + len(recent[-1].values)) & 0x7FFF_FFFF
            assert log.producers.judge(_batch(recent[-1], following)) is None


def _check_transactions(recovered: Driven, present: set[Sent]) -> None:
    """Check R3: a read_committed reader gets what was committed, up to the first transaction that is open, and no
    more.
    """
    for log in recovered.store.logs.values():
        begun: dict[int, list[Sent]] = defaultdict(list)
        aborted: list[Sent] = []
        here = sorted((note for note in present if note.topic == log.topic), key=lambda note: note.offset)
        for note in here:
            if note.ends is not None:
                ended = begun.pop(note.producer[0], [])
                aborted += ended if note.ends is Marker.ABORT else []
            elif note.transactional:
                begun[note.producer[0]].append(note)
        stable = min((notes[0].offset for notes in begun.values()), default=log.high_watermark)
        data = [note for note in here if note.ends is None and note not in aborted]
        visible = [note.offset for note in data if note.offset < stable]
        assert log.last_stable_offset == max(stable, log.start_offset)
        if log.log_id:
            found = [offset for offset in committed(log, batches_of(log)) if offset >= log.start_offset]
            assert found == [offset for offset in visible if offset >= log.start_offset], "not what was committed"


def _batch(note: Sent, sequence: int) -> batches.Batch:
    producer_id, epoch, _ = note.producer
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return batches.check_produced(memoryview(batch_of(note.values, **fields, transactional=note.transactional)))
