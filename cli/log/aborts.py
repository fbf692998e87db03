"""Derives the aborted indexes of one log from its batches, and compares them with the index files.

An index entry that is missing, begins too late, or hides later entries would show aborted records to read_committed
readers. An extra entry, or one that begins too early, would hide committed records. The derived index may have fewer
entries, because records and markers that retention, DeleteRecords or compaction removed are not seen any more.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...protocol.batches import Batch
from ...protocol.records import Marker, read_marker
from ...storage.producers.aborted import AbortedTransaction, TransactionSpans

NO_OFFSET = -1


class _Aborted(NamedTuple):
    """An abort marker. after: offset of the previous marker of the producer. derived: its aborted records, if the
    log still has them.
    """

    after: int
    derived: AbortedTransaction | None


class AbortCheck:
    """Reads all batches of a log, segment by segment, and compares the index after each segment."""

    def __init__(self) -> None:
        self._spans = TransactionSpans()
        self._newest_markers: dict[int, int] = {}  # offsets, by producer id
        self._aborted: dict[tuple[int, int], _Aborted] = {}  # of this segment, by producer id and marker's offset

    def follow(self, batch: Batch) -> None:
        """Take the next batch into account. Raises KafkaError for a marker that cannot be parsed."""
        derived = self._spans.follow(batch)
        if not (batch.is_control and batch.is_transactional):
            return
        marker, producer_id = read_marker(batch), batch.producer_id
        if marker is not None and marker[0] is Marker.ABORT:
            after = self._newest_markers.get(producer_id, NO_OFFSET)
            self._aborted[producer_id, batch.last_offset] = _Aborted(after, derived)
        self._newest_markers[producer_id] = batch.last_offset

    def compare(self, entries: Sequence[AbortedTransaction] | None) -> list[str]:
        """Return a sentence for each error in the aborted index of the segment whose batches were passed to follow().
        After this call, the next batch begins a new segment.

        entries: the entries of the index; None if the index cannot be used.
        """
        aborted, self._aborted = self._aborted, {}
        if entries is None:
            return []
        named = {(entry.producer_id, entry.last_offset): entry for entry in entries}
        missing = [each.derived for key, each in aborted.items() if each.derived is not None and key not in named]
        return [what for key, entry in named.items() for what in _contradictions(entry, aborted.get(key))] + [
            f"{_name(entry)} is not in it: its records are shown to readers under read_committed" for entry in missing
        ]


def _contradictions(entry: AbortedTransaction, found: _Aborted | None) -> Iterator[str]:
    """Yield a sentence for each way in which an entry of the index contradicts the segment's markers."""
    if found is None:
        yield f"{_name(entry)} is in it, but there is no abort marker at its end: committed records are hidden"
        return
    after, derived = found
    if entry.first_offset <= after:
        yield f"{_name(entry)} began after offset {after}, the end of the previous one: committed records are hidden"
    if derived is not None and entry.first_offset > derived.first_offset:
        yield f"{_name(entry)} began at offset {derived.first_offset}: records before are shown under read_committed"
    if derived is not None and entry.last_stable_offset > derived.last_stable_offset:
        stable = f"has last stable offset {entry.last_stable_offset} instead of {derived.last_stable_offset}"
        yield f"{_name(entry)} {stable}: readers do not look for aborted transactions that end later"


def _name(entry: AbortedTransaction) -> str:
    """Return a phrase that names this aborted transaction: by its producer id and its offsets."""
    span = f"from offset {entry.first_offset} to {entry.last_offset}"
    return f"the aborted transaction of producer {entry.producer_id} {span}"
