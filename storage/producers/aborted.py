"""Which offsets each aborted transaction spans, so that a read_committed reader can skip them.

An entry is written next to the segment that has the abort marker, in Kafka's `.txnindex` format, and can be derived
from the batches. A reader of [offset, below) needs each transaction with first offset < below and last offset ≥ offset.

Source: Kafka's TransactionIndex, AbortedTxn version 0.
"""

from bisect import bisect_left
from collections.abc import Iterable
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from ...protocol.batches import Batch
from ...protocol.records import Marker, read_marker

TXN_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction of a producer in a partition. last_offset: the offset of the marker. last_stable_offset:
    that of the partition when this transaction ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def pack(aborted: Iterable[AbortedTransaction]) -> bytes:
    """Encode the entries of a `.txnindex` file."""
    return b"".join([TXN_ENTRY.pack(_VERSION, *entry) for entry in aborted])


def unpack(entries: bytes) -> list[AbortedTransaction]:
    """Decode what pack() encoded. Raises ValueError at an entry of a newer version."""
    found = []
    for version, *fields in TXN_ENTRY.iter_unpack(entries):
        if version != _VERSION:
            raise ValueError(f"an aborted transaction has version {version}, {_VERSION} is known")
        found.append(AbortedTransaction(*fields))
    return found


by_first_offset = itemgetter(1)
_last_offset = itemgetter(2)


def overlapping(entries: list[AbortedTransaction], offset: int, below: int) -> tuple[list[AbortedTransaction], bool]:
    """Return the transactions that overlap [offset, below), in the order of their markers, and whether no later entry
    can overlap.
    """
    first = bisect_left(entries, offset, key=_last_offset)
    end = bisect_left(entries, below, first, key=_last_offset)
    found = entries[first:end]
    if found and found[-1].last_stable_offset >= below:
        return found, True
    for number in range(end, len(entries)):
        entry = entries[number]
        if entry.first_offset < below:
            found.append(entry)
        if entry.last_stable_offset >= below:
            return found, True
    return found, False


class TransactionSpans:
    """Follows the batches of a log in order, and finds the aborted transactions; used to derive a lost index."""

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}  # of open transactions, by producer id

    def copy(self) -> "TransactionSpans":
        """Return a copy: follow() of the one does not change the other."""
        twin = TransactionSpans()
        twin._first_offsets = self._first_offsets.copy()
        return twin

    def follow(self, batch: Batch) -> AbortedTransaction | None:
        """Take the next batch of the log into account. Returns the transaction that it aborts, if it is the abort
        marker of a transaction with data; else None.
        """
        if not batch.is_transactional:
            return None
        if not batch.is_control:
            if batch.record_count:  # compaction empties batches of decided transactions only: they open none
                self._first_offsets.setdefault(batch.producer_id, batch.base_offset)
            return None
        marker = read_marker(batch)
        first_offset = self._first_offsets.pop(batch.producer_id, None) if marker is not None else None
        if marker is None or marker[0] is not Marker.ABORT or first_offset is None:
            return None
        last_offset = batch.last_offset
        stable = min(self._first_offsets.values(), default=last_offset + 1)
        return AbortedTransaction(batch.producer_id, first_offset, last_offset, stable)
