"""Leaves out the batches of a fetch response that the reader may not see.

The rule (KIP-98): the broker sends a read_committed reader nothing at or above the last stable offset, and lists the
aborted transactions that overlap with the response; the reader leaves out their batches, and all markers. No batch has
to wait for a commit marker. For the filter a transaction begins at the first batch whose *last* offset is at or above
the transaction's first offset, and ends at its abort marker; a partition may have markers without records.
Source: Kafka's CompletedFetch.nextFetchedRecord and consumeAbortedTransactionsUpTo.
"""

from collections.abc import Iterable

from ...protocol.batches import Batch
from ...protocol.records import Marker, read_marker


class AbortedFilter:
    """Hides aborted records of one partition in one fetch response; `hides` is called for each batch in the order of
    the log.

    aborted: (producer id, first offset) of each listed aborted transaction, in any order, duplicates allowed.
    """

    __slots__ = ("_producers", "_waiting")

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        self._waiting = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
        self._producers: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        """Return whether the batch is a marker or of an aborted transaction. It keeps state: call it for every batch of
        the response, in order. Raises KafkaError for a marker that does not parse.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return batch.is_control
        waiting = self._waiting
        if waiting and waiting[-1][0] <= batch.last_offset:
            last_offset = batch.last_offset
            while waiting and waiting[-1][0] <= last_offset:
                self._producers.add(waiting.pop()[1])
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None and marker[0] is Marker.ABORT:
                self._producers.discard(producer_id)
            return True
        return producer_id in self._producers and batch.is_transactional
