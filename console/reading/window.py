"""Reads a range of batches of a partition, each with its fate: committed, aborted, open or undecided.

The rule: below the last stable offset all transactions have ended, and a read_committed fetch lists the aborted ones.
Above the last stable offset, batches are fetched read_uncommitted and their markers decide. If the marker of a shown
batch is not among them, reading continues to the high watermark, but not beyond a limit: then the batch's fate is
undecided, unless the partition itself lists its transaction as open. Every limit is in bytes or batches, so one request
costs little.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...client.admin.admin import Admin
from ...client.admin.reading import FetchedPage
from ...client.errors import ClientError, CorruptRecordError, RecordTooLargeError
from ...client.records.fates import Entry, Fates, marker_word, settled_fate
from ...client.records.isolation import AbortedFilter
from ...client.values import TopicPartition
from ...protocol.batches import Batch
from ...protocol.errors import KafkaError

LARGEST_BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a window ends: at offset `end` (exclusive), or after these numbers of records, batches or bytes.

    scan_bytes: how many bytes after the window are searched for markers. hidden: fates (such as "aborted") whose
    batches are left out; only below the last stable offset, where the fate is known at once. Up to hidden_bytes of such
    batches are read for one window.
    """

    end: int
    records: int = 1 << 62
    batches: int = 2_000
    bytes: int = 8 << 20
    scan_bytes: int = 8 << 20
    hidden: frozenset[str] = frozenset()
    hidden_bytes: int = 64 << 20


@dataclass(slots=True)
class Window:
    """The batches that were read: one entry for each, whose `record` is the Batch. next_offset: where the next window
    begins.

    problem: why the window ends early, if a batch is damaged or too large.
    """

    start: int
    entries: list[Entry] = field(default_factory=list[Entry])
    next_offset: int = 0
    log_start_offset: int = 0
    last_stable_offset: int = 0
    high_watermark: int = 0
    records: int = 0
    bytes: int = 0
    problem: str = ""


async def read_window(admin: Admin, partition: TopicPartition, start: int, limits: Limits) -> Window:
    """Read from offset `start` on until a limit is reached. A damaged or too large batch ends the window, with its
    `problem` set. Raises KafkaError, OFFSET_OUT_OF_RANGE among others.
    """
    reading = _Reading(Window(start, next_offset=start), limits)
    try:
        await _read(admin, partition, reading)
    except (CorruptRecordError, RecordTooLargeError) as error:
        reading.window.problem = str(error)
    needs_list = reading.fates.has_undecided and not reading.at_end
    open_from = await _open_from(admin, partition) if needs_list else {}
    _drain(reading.fates.rest(open_from, at_end=reading.at_end))
    return reading.window


class _Reading:
    """The state while a window is being read. at_end: the end of the log was reached. is_full: the window takes no
    more batches.
    """

    def __init__(self, window: Window, limits: Limits) -> None:
        self.window, self.limits = window, limits
        self.fates = Fates()
        self.at_end = False
        self.is_full = False
        self._scanned = 0
        self._hidden_bytes = 0

    def is_complete(self) -> bool:
        """Return whether nothing must be read any more: the window is full, and the fates of its batches are known
        or finding them would need to read too much.
        """
        return self.is_full and (not self.fates.has_undecided or self._scanned >= self.limits.scan_bytes)

    def add(self, batch: Batch, fate: str) -> None:
        """Take the next batch: into the window or, after the window's end, only if it is a marker that decides
        fates. fate: "" if it is not known yet.
        """
        window, limits = self.window, self.limits
        is_shown = not self.is_full and batch.base_offset < limits.end
        self.is_full = not is_shown
        if is_shown and fate in limits.hidden:
            window.next_offset = batch.next_offset
            self._hidden_bytes += batch.size
            self.is_full = batch.next_offset >= limits.end or self._hidden_bytes >= limits.hidden_bytes
            return
        marker = marker_word(batch) if batch.is_control else ""
        if not is_shown and not marker:
            self._scanned += batch.size
            return
        entry = Entry(batch.base_offset, batch.producer_id, batch.producer_epoch, batch.is_transactional, marker)
        entry.fate = fate
        if is_shown:
            entry.record = batch
            window.entries.append(entry)
            window.next_offset = batch.next_offset
            window.bytes += batch.size
            if not marker:
                window.records += min(batch.record_count, batch.next_offset - max(window.start, batch.base_offset))
            self.is_full = (
                batch.next_offset >= limits.end
                or window.records >= limits.records
                or len(window.entries) >= limits.batches
                or window.bytes >= limits.bytes
            )
        else:
            self._scanned += batch.size
        _drain(self.fates.feed(entry))

    def note_ends(self, page: FetchedPage) -> None:
        """Store the partition's offsets as this fetch returned them."""
        window = self.window
        window.log_start_offset, window.high_watermark = page.log_start_offset, page.high_watermark
        window.last_stable_offset = page.last_stable_offset


async def _read(admin: Admin, partition: TopicPartition, reading: _Reading) -> None:
    """Fetch batches and add them until the reading is complete: read_committed up to the last stable offset, then
    read_uncommitted.
    """
    position, is_settled = reading.window.start, True
    while not reading.is_complete():
        page = await admin.read_page(
            partition,
            position,
            isolation_level="read_committed" if is_settled else "read_uncommitted",
            most_bytes=LARGEST_BATCH_BYTES,
        )
        reading.note_ends(page)
        aborted = AbortedFilter(page.aborted)
        for batch in page.batches:
            reading.add(batch, settled_fate(batch, aborted) if is_settled else "")
            if reading.is_complete():
                return
        if page.next_offset == position:
            if not is_settled:
                reading.at_end = True
                return
            is_settled = False  # the rest of the log is above the last stable offset
        position = page.next_offset


async def _open_from(admin: Admin, partition: TopicPartition) -> dict[int, int]:
    """Return by producer id the first offset of each open transaction in the partition. Empty if this login or broker
    does not allow it.
    """
    try:
        found = await admin.open_transactions([partition])
    except (ClientError, KafkaError):  # before Kafka 2.8, or not allowed: they stay undecided
        return {}
    return {each.producer.producer_id: each.start_offset for each in found}


def _drain(entries: Iterable[Entry]) -> None:
    """Run a generator to its end and drop what it yields: here only its effects are needed."""
    deque(entries, maxlen=0)
