"""Limits how many producers all partitions together remember (max.producer.ids).

The rule: a new producer takes the place of the one that has been silent for longest, in whatever partition, and that
has no open transaction there. The number is checked after each round (write of the journal), so the limit can be
exceeded by the new producers of one round. A new producer is refused only if that cannot help: all remembered producers
are in transactions, or its id was never given out. An eviction is not logged (storage/producers/producers.py says why
that is safe). Cost: a round looks at the logs that it has written to; an eviction is O(log n) in the number of logs.
Kafka has no such limit, and forgets producers by time alone. See KAFKA-8092 and KIP-936.
"""

import logging
from collections.abc import Callable, Collection
from heapq import heappop, heappush, heapreplace

from ...storage.log.partition_log import PartitionLog
from ...storage.store import Store

log = logging.getLogger("fencepost.broker")

EVICTED_AT_ONCE = 2000  # after a round, if the setting was lowered (about 4 ms), besides as many as the round brought


class ProducerLimit:
    """Counts the producers of all partitions, and evicts those that were silent for longest."""

    __slots__ = ("_counted", "_drops", "_most", "_queue", "_queued", "_store", "count", "evicted")

    def __init__(self, store: Store, most: Callable[[], int]) -> None:
        """Count the producers of all logs, and evict some if there are too many.

        most: returns the present max.producer.ids.
        """
        self._store = store
        self._most = most
        self._drops = store.drops
        self._counted: dict[int, int] = {}  # by log id
        self._queue: list[tuple[int, int]] = []  # a heap: (age before which no producer is idle there, log id)
        self._queued: set[int] = set()
        self.count = 0
        self.evicted = 0
        self.look(store.logs.values())
        while self.count > most() and self._evict(EVICTED_AT_ONCE):
            pass

    def look(self, moved: Collection[PartitionLog]) -> None:
        """Count the producers of these logs again, and evict some if there are too many. Called after a round (write
        of the journal).
        """
        before = self.count
        for each in moved:
            producers, log_id = each.producers, each.log_id
            if log_id not in self._store.logs:
                continue
            now = len(producers)
            self.count += now - self._counted.get(log_id, 0)
            self._counted[log_id] = now
            since_ms = producers.idle_since_ms
            if since_ms is not None and log_id not in self._queued:
                self._queued.add(log_id)
                heappush(self._queue, (since_ms, log_id))
        self._subtract_deleted()
        if self.count > self._most():
            self._evict(min(self.count - self._most(), EVICTED_AT_ONCE + max(0, self.count - before)))

    @property
    def full(self) -> bool:
        """Whether the limit is reached, so that a new producer needs an eviction."""
        self._subtract_deleted()
        return self.count >= self._most()

    @property
    def may_evict(self) -> bool:
        """Whether there is a producer without an open transaction."""
        return self._longest_silent() is not None

    def _evict(self, count: int) -> bool:
        """Evict up to `count` producers without an open transaction, the longest silent first. Returns whether any was
        evicted.
        """
        went = 0
        while went < count and (of := self._longest_silent()) is not None:
            went += of.producers.evict()
            self._counted[of.log_id] -= 1
        if went and not self.evicted:
            log.warning("max.producer.ids (%s) is reached: the longest silent producers are forgotten", self._most())
        self.count -= went
        self.evicted += went
        return went > 0

    def _longest_silent(self) -> PartitionLog | None:
        """Return the log with the producer that is silent for longest; None if none can be evicted."""
        queue = self._queue
        while queue:
            queued_ms, log_id = queue[0]
            found = self._store.logs.get(log_id)
            since_ms = None if found is None else found.producers.idle_since_ms
            if since_ms is None:
                heappop(queue)
                self._queued.discard(log_id)
            elif since_ms > queued_ms:
                heapreplace(queue, (since_ms, log_id))
            else:
                return found
        return None

    def _subtract_deleted(self) -> None:
        """Subtract the producers of deleted logs."""
        if self._drops != self._store.drops:
            self._drops = self._store.drops
            for log_id in [log_id for log_id in self._counted if log_id not in self._store.logs]:
                self.count -= self._counted.pop(log_id)
