"""Targets: what is read from a data directory, file by file.

The rule: any file content is either read, or refused with the error for damaged files. Checksums are
made right first, or nothing would come past them: so this is more than a disk can do to a file.
"""

import struct
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import disk_files
import msgpack
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches
from fencepost.protocol.batches import CRC_COVERS_FROM, LENGTH_ENDS_AT
from fencepost.protocol.records import Marker, control_marker
from fencepost.storage import checkpoints, layout, store_checkpoint
from fencepost.storage.backup import manifest as backups
from fencepost.storage.checkpoints import Damaged, NewerFormat
from fencepost.storage.journal import format as journal
from fencepost.storage.journal import kept_parts
from fencepost.storage.journal.format import BLOCK_BYTES, JournalStart, Malformed, Part, RoundHeader
from fencepost.storage.journal.preparing import file_name
from fencepost.storage.journal.reading import FoundFile, round_units, rounds
from fencepost.storage.journal.scan import scan as scan_journal
from fencepost.storage.log.index import Indexes, IndexGrowth
from fencepost.storage.log.manifest import Manifest
from fencepost.storage.log.segment import SegmentDamaged, SegmentState, Span, read_span
from fencepost.storage.log.segment import scan as scan_segment
from fencepost.storage.log.settings import LogSettings
from fencepost.storage.producers import encoding
from fencepost.storage.producers.aborted import TXN_ENTRY, AbortedTransaction, overlapping
from fencepost.storage.producers.aborted import pack as pack_aborted
from fencepost.storage.producers.aborted import unpack as unpack_aborted
from fencepost.storage.store_checkpoint import LogEntry, StoreCheckpoint
from fuzz.target import REFUSED, Target, all_joined, outcome, several, with_crc
from log_driver import batch_of, keyed

PATH = "/data/file"


def disk_with(path: str, content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(history=False)
    for each in (path.rpartition("/")[0], "/again"):
        disk.make_directory(each)
    disk_files.write(disk, path, content)
    return disk


# ---- journal -----------------------------------------------------------------------------------------------------

HEADER = journal.FileHeader(3, 5, 0, False, b"saltsalt", 5, 10, 100)
_UNITS_OF = struct.Struct(">QQI")


def journal_file(data: bytes) -> bytes:
    """A file out of short pieces: its header's fields, then of each round the header's fields and the units.

    Sizes and checksums are made right where the piece ends in an even byte.
    """
    head, *bodies = several(data) or [b""]
    content = bytearray()
    for body in bodies:
        content += _round(body, BLOCK_BYTES + len(content))
    size = BLOCK_BYTES + len(content)
    fields = bytearray(journal.pack_file_header(HEADER._replace(size_bytes=size)))
    fields[12 : 12 + len(head[:60])] = head[:60]
    if not head or head[-1] % 2 == 0:
        fields[32:40] = size.to_bytes(8, "big")  # FileHeader.size_bytes
        with_crc(fields, 8, slice(12, None))
    return bytes(fields + content)


def _round(body: bytes, position: int) -> bytes:
    head, units = body[:41], bytearray(body[41:])
    is_right = not head or head[-1] % 2 == 0
    if is_right:
        _right_units(units)
    made = bytearray(journal.ROUND_HEADER_BYTES)
    made[:4] = journal.ROUND_MAGIC
    made[8 : 8 + len(head[:40])] = head[:40]
    if is_right:
        made[-4:] = len(units).to_bytes(4, "big")
        place = journal.crc32c(position.to_bytes(8, "big"), HEADER.seed)
        with_crc(made, 4, slice(8, None), place)
    return bytes(made + units).ljust(journal.blocks(len(made) + len(units)), b"\0")


def _right_units(units: bytearray) -> None:
    """Correct the checksums of the units whose lengths fit."""
    at = 0
    while len(units) - at >= journal.LEAST_UNIT_BYTES:
        end = at + journal.PREFIX_BYTES + int.from_bytes(units[at : at + 4], "big")
        if end > len(units):
            break
        with_crc(units, at + 4, slice(at + journal.PREFIX_BYTES, end))
        at = end


def _framed_round(number: int, first: int, units: list[list[Part]], *, ends: bool = False) -> bytes:
    body = b"".join(b"".join(journal.frame_unit(3, first + n, parts)) for n, parts in enumerate(units))
    header = RoundHeader(3, number, first, number - 1, len(units), len(body), ends)
    return journal.pack_round_header(header, HEADER.seed, 0)[8:48] + b"\0" + body


def _some_units() -> list[list[Part]]:
    produced = batches.read(memoryview(batch_of([b"one", b"two"])))
    stamped = [batches.stamp_header(produced, 5), produced.buffer[16:]]
    append, start = Part(journal.APPEND, 7, 5, stamped), Part(journal.LOG_START, 7, 5, [])
    made = Part(journal.CREATE, 8, 0, [msgpack.packb(["t", bytes(16), 0, {}])])
    return [[append], [append, start], [made, Part(journal.DROP, 7, 0, [])]]


def _journals() -> Iterator[bytes]:
    units = _some_units()
    first = _framed_round(10, 100, units[:1])
    yield all_joined([b"", first])
    yield all_joined([b"", first, _framed_round(11, 101, units)])
    yield all_joined([b"", first, _framed_round(11, 101, []), _framed_round(12, 101, units[1:], ends=True)])
    yield all_joined([b"", b"", first])
    yield all_joined([b"\0\0\0\1\0\0\0\1\0", first])
    yield b""


def look_at_journal(data: bytes) -> None:
    """Scan it as a start does, and as `fencepost log` does."""
    path = f"{layout.journal_directory('/data')}/{file_name(HEADER.sequence)}"
    disk = disk_with(path, journal_file(data))
    refusals = Damaged, NewerFormat
    found = outcome(lambda: scan_journal(disk, path.rpartition("/")[0]), *refusals)
    if found is not REFUSED:
        units = outcome(lambda: list(found.units()), *refusals)
        parts = outcome(lambda: list(found.parts()), *refusals)
        assert (units is REFUSED) == (parts is REFUSED)
        if units is not REFUSED:
            assert [unit.number for unit in units] == list(range(found.first_unit, found.last_unit + 1))
            flat = [(u.number, p.kind, p.log_id, p.offset, b"".join(p.data)) for u in units for p in u.parts]
            assert [(number, kind, log, at, bytes(data)) for number, kind, log, at, data in parts] == flat
    listed = outcome(lambda: list(rounds(disk, path)), *refusals)
    if listed is not REFUSED:
        file = journal.read_file_header(disk_files.read(disk, path)[:BLOCK_BYTES])
        for one in listed:
            if not one.fault:
                outcome(partial(round_units, disk, FoundFile(path, file), one), *refusals)


def look_at_units(data: bytes) -> None:
    """Decode the units of one round. A valid round encodes to the same bytes again."""
    first, count = int.from_bytes(data[:1], "big"), int.from_bytes(data[1:2], "big")
    units = bytearray(data[2:])
    _right_units(units)
    for body in (memoryview(data)[2:], memoryview(bytes(units))):
        header = RoundHeader(3, 1, first, 0, count, len(body), False)
        journal.highest_number(body, 3)
        if journal.first_fault(body, header):
            continue
        assert journal.highest_number(body, 3) == (header.last_unit if count else 0)
        parts = outcome(lambda body=body: list(journal.read_parts(body)), Malformed)
        found = outcome(lambda body=body, header=header: list(journal.read_units(body, header, PATH, 0)), Malformed)
        assert (parts is REFUSED) == (found is REFUSED)
        if found is not REFUSED:
            again = b"".join(b"".join(journal.frame_unit(3, unit.number, unit.parts)) for unit in found)
            assert again == bytes(body)
            assert sum(len(unit.parts) for unit in found) == len(parts)


def _bodies() -> Iterator[bytes]:
    units = _some_units()
    for count in range(4):
        frames = [b"".join(journal.frame_unit(3, 9 + n, parts)) for n, parts in enumerate(units[:count])]
        yield bytes((9, count)) + b"".join(frames)


# ---- checkpoints and snapshots -----------------------------------------------------------------------------------

KINDS = (store_checkpoint.KIND, "producers", "coordinators", kept_parts.KIND)


def look_at_checkpoint_file(data: bytes) -> None:
    """Read the bytes as they are, and with a corrected header."""
    kind = KINDS[int.from_bytes(data[:1], "big") % len(KINDS)]
    content = bytearray(data[1:])
    disk = disk_with(PATH, content)
    payload = outcome(lambda: checkpoints.read_file(disk, PATH, kind, 1), Damaged, NewerFormat)
    assert payload is REFUSED or bytes(content[-len(payload) :] if payload else b"") == payload
    if len(content) >= 12:
        disk_files.write(disk, PATH, with_crc(content, 8, slice(12, None)))
        outcome(lambda: checkpoints.read_file(disk, PATH, kind, 1), Damaged, NewerFormat)


def written(kind: str, payload: bytes) -> bytes:
    disk = disk_with(PATH, b"")
    checkpoints.write_file(disk, PATH, kind, 1, payload)
    return disk_files.read(disk, PATH)


def _checkpoint_files() -> Iterator[bytes]:
    for index, kind in enumerate(KINDS):
        for payload in (b"", b"payload"):
            yield bytes([index]) + written(kind, payload)


def look_at_store_checkpoint(data: bytes) -> None:
    disk = disk_with(layout.checkpoint_path("/data", 1), written(store_checkpoint.KIND, data))
    content = outcome(lambda: store_checkpoint.read(disk, "/data", 1), Damaged, NewerFormat)
    if content is REFUSED:
        return
    numbers = content.incarnation, content.journal_incarnation, content.through_unit, content.next_unit
    numbers += content.next_round, content.next_log_id, content.age_ms, content.synced_unit, *content.journal_start
    assert all(type(each) is int for each in numbers)
    for entry in content.logs:
        assert (type(entry.log_id), type(entry.partition), type(entry.topic)) == (int, int, str)
        assert type(entry.topic_id) is bytes
        manifest = outcome(partial(Manifest.from_row, entry.manifest), TypeError, ValueError)
        if manifest is not REFUSED:
            again = Manifest.from_row(msgpack.unpackb(msgpack.packb(manifest), strict_map_key=False))
            assert again == manifest
            numbers = *manifest[:3], *(number for state in manifest.segments for number in state[:8])
            assert all(type(each) is int for each in numbers)
    again = store_checkpoint.unpack(store_checkpoint.pack(content))
    assert store_checkpoint.pack(again) == store_checkpoint.pack(content)


def _store_checkpoints() -> Iterator[bytes]:
    log = segment()
    manifest = Manifest(0, 24, 0, (), (log.state,))
    entry = LogEntry(1, "t", bytes(16), 0, LogSettings(segment_bytes=7).pack(), manifest)
    head = 1, 1, 10, 11, 12, 2, 1_000, 9
    yield store_checkpoint.pack(StoreCheckpoint(*head))
    yield store_checkpoint.pack(StoreCheckpoint(*head, JournalStart(3, 7)))
    yield store_checkpoint.pack(StoreCheckpoint(*head, logs=[entry, entry]))


def look_at_producers(data: bytes) -> None:
    found = outcome(lambda: encoding.unpack(data), ValueError)
    if found is not REFUSED:
        again = encoding.unpack(encoding.pack(found))
        assert encoding.pack(again) == encoding.pack(found)
        assert all(type(sequence) is int for one in found.values() for batch in one.window for sequence in batch)


def _producer_states() -> Iterator[bytes]:
    producers = {}
    for number in range(3):
        producer = producers[number] = encoding.Producer(number)
        producer.next_sequence = 5 * number
        producer.window = [(n, 100 + n, 7) for n in range(number * 2)]
        yield encoding.pack(producers)


def look_at_kept_parts(data: bytes) -> None:
    disk = disk_with(PATH, written(kept_parts.KIND, data))
    parts = outcome(lambda: kept_parts.read(disk, PATH, 7), Damaged, NewerFormat)
    if parts is not REFUSED:
        assert b"".join(kept_parts._payloads(parts)) == data
    disk_files.write(disk, "/data/old", data)
    old, fault = kept_parts.read_old(disk, "/data/old", 7)
    assert (sum(len(each.data[0]) for each in old) == len(data)) == (not fault)


def _kept() -> Iterator[bytes]:
    parts = [part for unit in _some_units()[:2] for part in unit]
    yield b"".join(kept_parts._payloads(parts))
    yield batch_of([b"one"]) + batch_of([b"two"])


def look_at_backup_manifest(data: bytes) -> None:
    disk = disk_with("/backup/manifest", written(backups.KIND, data))
    contents = outcome(lambda: backups.read(disk, "/backup"), Damaged, NewerFormat)
    if contents is not REFUSED:
        backups.write(disk, "/again", contents)
        assert backups.read(disk, "/again") == contents
        assert all(type(file.size_bytes) is type(file.crc) is int for file in contents.files.values())


def _backups() -> Iterator[bytes]:
    disk = disk_with("/backup/manifest", b"")
    files = {"checkpoint-1": backups.BackupFile(100, 7), "logs/t-0.1/0.log": backups.BackupFile(5, 2**32 - 1)}
    for contents in (
        backups.Contents("0.1", 1_000, True, 1, 50, ["a warning"], files),
        backups.Contents("0.1", 1, False, 1, 5),
    ):
        backups.write(disk, "/backup", contents)
        yield checkpoints.read_file(disk, "/backup/manifest", backups.KIND, 1)


def look_at_aborted(data: bytes) -> None:
    """Entries as a .txnindex file has them; their size was looked at before."""
    entries = data[: len(data) // TXN_ENTRY.size * TXN_ENTRY.size]
    found = outcome(lambda: unpack_aborted(entries), ValueError)
    if found is not REFUSED:
        assert pack_aborted(found) == entries
        overlapping(found, 5, 50)


# ---- segments ----------------------------------------------------------------------------------------------------


class _Segment:
    """A segment, its state and its index, as they were written."""

    def __init__(self, *, compacted: bool) -> None:
        produced = [batch_of([b"v" * 20, b"w"]) for _ in range(5)]
        produced += [keyed([(b"k", b"v")], codec=1), control_marker(Marker.ABORT, 9, 1, 3, 1_000)]
        growth = IndexGrowth(0, -1 if compacted else 300)
        self.content = b""
        offset = 0
        for number, each in enumerate(produced):
            batch = batches.read(memoryview(each))
            if compacted and number % 2:
                offset += batch.last_offset_delta + 1
                continue
            last = offset + batch.last_offset_delta
            growth.add(last, len(self.content), len(each), batch.max_timestamp)
            self.content += batches.stamp_header(batch, offset) + each[16:]
            offset = last + 1
        self.state = SegmentState(0, int(compacted), len(self.content), offset, 1_001, 1)
        self.entries = b"".join(growth.offset_entries), b"".join(growth.time_entries)


@cache
def segment(compacted: bool = False) -> _Segment:
    return _Segment(compacted=compacted)


def look_at_segment(data: bytes) -> None:
    """Replace the content by another of the same size; read it from any offset, and scan it."""
    log = segment(data[:1] >= b"\x80")
    offset, max_bytes = int.from_bytes(data[1:2], "big") % 16, int.from_bytes(data[2:4], "big")
    changed = data[4 : 4 + len(log.content)]
    changed += log.content[len(changed) :]
    for content in (changed, bytes(_right_batches(bytearray(changed)))):
        file = _File(content)
        scanned = outcome(partial(_scanned, file, log.state), SegmentDamaged)
        indexes = Indexes(*log.entries, covers_bytes=log.state.size_bytes)
        span = Span(offset, max_bytes, log.state.end_offset, True)
        found = outcome(partial(read_span, file.read, PATH, log.state, indexes, span), SegmentDamaged)
        if found is REFUSED or not found.size_bytes:
            continue
        assert found.next_offset <= log.state.end_offset
        (buffer,) = found.buffers
        place = content.find(buffer)
        assert place >= 0
        if content is changed:  # no checksum was corrected
            assert buffer in log.content, "damage is given out as records"
            assert (max_bytes and len(buffer) <= max_bytes) or len(list(batches.walk(memoryview(buffer)))) == 1
        if scanned is not REFUSED:
            assert place in scanned


def _scanned(file: Any, state: SegmentState) -> list[int]:
    return [position for position, _ in scan_segment(file, state)]


class _File:
    path = PATH

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, size: int, position: int) -> bytes:
        assert 0 <= position <= position + size <= len(self._content)
        return self._content[position : position + size]


def _right_batches(content: bytearray) -> bytearray:
    at = 0
    while len(content) - at >= batches.HEADER_BYTES:
        end = at + LENGTH_ENDS_AT + int.from_bytes(content[at + 8 : at + LENGTH_ENDS_AT], "big")
        if not at + batches.HEADER_BYTES <= end <= len(content):
            break
        with_crc(content, at + 17, slice(at + CRC_COVERS_FROM, end))
        at = end
    return content


def _segments() -> Iterator[bytes]:
    for kind in (0, 0x80):
        log = segment(bool(kind))
        for offset in (0, 3, 9):
            yield bytes((kind, offset, 1, 0)) + log.content
            yield bytes((kind, offset, 0, 0)) + log.content


TARGETS = [
    # So much, because two bytes of the input make a block of a file.
    Target("journal", look_at_journal, _journals, lines=80_000, memory_per_byte=16_000),
    Target("units", look_at_units, _bodies),
    Target("checkpoint-files", look_at_checkpoint_file, _checkpoint_files),
    Target("store-checkpoints", look_at_store_checkpoint, _store_checkpoints),
    Target("producers", look_at_producers, _producer_states),
    Target("kept-parts", look_at_kept_parts, _kept),
    Target("backup-manifests", look_at_backup_manifest, _backups),
    Target("aborted", look_at_aborted, lambda: [pack_aborted([AbortedTransaction(9, 5, 7, 5)] * 3)]),
    Target("segments", look_at_segment, _segments),
]
