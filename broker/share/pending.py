"""In which share partitions each transaction has acknowledgements pending, and how much its end may have to log. Pure.

The rule: an abort logs what it archives in the unit that ends the transaction, with one record for each share
partition. So the size of that unit must be known when acknowledgements become pending. A range is counted until the
transaction ends, even if it is below the log start offset by then.
"""

from .runs import Transaction
from .values import SharePartitionKey

RANGE_BYTES = 20  # of a range in an update
UPDATE_BYTES = 400
"""Of an update besides its ranges and its group's name: the key, the batch, the part of the unit, and the marker in its
partition of the topic.
"""


class PendingAcknowledgements:
    """The share partitions in which each transaction has pending acknowledgements."""

    def __init__(self) -> None:
        self._ranges: dict[Transaction, dict[SharePartitionKey, int]] = {}
        self._transactions: dict[SharePartitionKey, set[Transaction]] = {}
        self._bytes_of: dict[int, int] = {}  # by producer id

    def keys_of(self, transaction: Transaction) -> list[SharePartitionKey]:
        """Return the share partitions in which this transaction has something pending."""
        return list(self._ranges.get(transaction, ()))

    def bytes_of(self, producer_id: int) -> int:
        """Return an upper limit of the size of all updates that the end of the producer's transaction logs."""
        return self._bytes_of.get(producer_id, 0)

    def more_bytes(self, transaction: Transaction, key: SharePartitionKey, ranges: int) -> int:
        """Return by how many bytes the updates logged at the transaction's end may grow, if `ranges` more ranges are
        pending in this share partition.
        """
        is_new = key not in self._ranges.get(transaction, ())
        return RANGE_BYTES * ranges + (_update_bytes(key) if is_new else 0)

    def add(self, transaction: Transaction, key: SharePartitionKey, ranges: int) -> None:
        """Note that `ranges` more ranges of this share partition are pending in a transaction."""
        self._count(transaction, self.more_bytes(transaction, key, ranges))
        of_transaction = self._ranges.setdefault(transaction, {})
        of_transaction[key] = of_transaction.get(key, 0) + ranges
        self._transactions.setdefault(key, set()).add(transaction)

    def end(self, transaction: Transaction) -> list[SharePartitionKey]:
        """Forget a transaction. Returns the share partitions in which it had something pending."""
        keys = self.keys_of(transaction)
        for key in keys:
            self._discard(transaction, key)
        return keys

    def forget(self, key: SharePartitionKey) -> None:
        """Forget a share partition, with everything that transactions have pending in it."""
        for transaction in list(self._transactions.get(key, ())):
            self._discard(transaction, key)

    def _discard(self, transaction: Transaction, key: SharePartitionKey) -> None:
        """Forget what a transaction has pending in a share partition."""
        of_transaction, of_key = self._ranges[transaction], self._transactions[key]
        self._count(transaction, -RANGE_BYTES * of_transaction.pop(key) - _update_bytes(key))
        of_key.discard(transaction)
        if not of_transaction:
            del self._ranges[transaction]
        if not of_key:
            del self._transactions[key]

    def _count(self, transaction: Transaction, more: int) -> None:
        """Add this number of bytes to the total of the transaction's producer; forget the producer if the total
        is 0.
        """
        producer_id = transaction[1]
        count = self._bytes_of.get(producer_id, 0) + more
        if count:
            self._bytes_of[producer_id] = count
        else:
            del self._bytes_of[producer_id]


def _update_bytes(key: SharePartitionKey) -> int:
    """Return how many bytes an update of this share partition takes in the log besides its ranges."""
    return UPDATE_BYTES + len(key.group.encode())
