"""Gives out producer ids that are never given twice, from blocks of 1000 logged before their first id is used.

The rule: the unused ids of a block are never given out after the broker has ended, however it ended (S-16).

Source: Kafka's RPCProducerIdManager; its AllocateProducerIds is a record of our catalogue.
"""

from .catalogue import PRODUCER_ID_BLOCK, producer_ids_given
from .catalogue_log import CatalogueLog


class ProducerIds:
    """Gives out producer ids. A reply with an id waits, as every reply does, until the unit with the id's block is
    durable.
    """

    def __init__(self, log: CatalogueLog) -> None:
        self._log = log
        self._next = self._end = 0

    def next(self) -> int:
        """Return an id that was never given out. Raises KafkaError if a new block is needed and cannot be written."""
        if self._next == self._end:
            start = self._log.catalogue.next_producer_id
            self._log.commit([producer_ids_given(start + PRODUCER_ID_BLOCK)])
            self._next, self._end = start, start + PRODUCER_ID_BLOCK
        self._next += 1
        return self._next - 1

    def skip(self, count: int) -> None:
        """Never give out the next `count` ids, because producers may have them. Raises KafkaError if that cannot be
        written.
        """
        self._log.commit([producer_ids_given(self._log.catalogue.next_producer_id + count)])
        self._next = self._end = 0  # the rest of the present block is given up, too

    def gave(self, producer_id: int) -> bool:
        """Return whether this id may have been given out. Unused ids of earlier blocks count as given out."""
        used_up = self._next == self._end
        return producer_id < (self._log.catalogue.next_producer_id if used_up else self._next)
