"""How many producers all partitions remember together, and whether that is as many as there may be.

The rule: memory for producers is bounded (`max.producer.ids`). Above it a producer that a partition does not know is
refused; those that are known go on, and there is room again when silent ones have been forgotten. Looked at once a
round, so the bound is passed by no more than one round brings. Kafka has no such bound; see KAFKA-8092 and KIP-936.
"""

from collections.abc import Callable, Collection, Mapping

from ..storage.log import PartitionLog

RECOUNT_AFTER_MS = 1000  # while it is full; forgetting is not told to anybody
FORGOTTEN_LOGS = 1000  # so many deleted logs may still be counted


class ProducerLimit:
    """Counts producers as rounds are released."""

    __slots__ = ("_counted", "_counted_ms", "_logs", "_most", "count", "full")

    def __init__(self, logs: Mapping[int, PartitionLog], most: Callable[[], int], now_ms: int) -> None:
        """logs: all there are at any time. most: the setting of the time."""
        self._logs = logs
        self._most = most
        self.count = 0  # never too low
        self.full = False
        self._recount(now_ms)

    def look(self, moved: Collection[PartitionLog], now_ms: int) -> None:
        """These logs have grown."""
        counted = self._counted
        for log in moved:
            now = len(log.producers)
            self.count += now - counted.get(log.log_id, 0)
            counted[log.log_id] = now
        if self.full:
            if now_ms - self._counted_ms >= RECOUNT_AFTER_MS:
                self._recount(now_ms)
        elif self.count >= self._most() or len(counted) > len(self._logs) + FORGOTTEN_LOGS:
            self._recount(now_ms)

    def refuses(self, now_ms: int) -> bool:
        """Whether a producer that its partition does not know is turned away now.

        Newcomers alone bring no round: without a look here they would be turned away for ever.
        """
        if self.full and now_ms - self._counted_ms >= RECOUNT_AFTER_MS:
            self._recount(now_ms)
        return self.full

    def _recount(self, now_ms: int) -> None:
        self._counted_ms = now_ms
        self._counted = {log_id: len(log.producers) for log_id, log in self._logs.items()}
        self.count = sum(self._counted.values())
        self.full = self.count >= self._most()
