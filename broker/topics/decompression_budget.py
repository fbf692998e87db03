"""Limits how many bytes and records the broker decompresses for one Produce request.

The reason: 1.5 KB of zstd can contain millions of records, and a request can contain thousands of such batches. Data
that is compressed sixteen to one is accepted whatever its size. A batch above the budget is refused as too large,
because clients then split it and try again. Pure.
"""

from ...protocol.batches import HEADER_BYTES, Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import DECOMPRESSED_LIMIT_BYTES, payload_of

RATIO = 16  # of decompressed bytes to those that were sent
LEAST_BYTES = DECOMPRESSED_LIMIT_BYTES // RATIO  # a smaller request counts as one of this size
FAILURE_COSTS_BYTES = 1 << 20  # what does not decompress was decompressed in part


class OverBudget(KafkaError):
    """Raised for a batch that would decompress to more than its request may. The error text names the limit."""

    def __init__(self, limit: str) -> None:
        """limit: how much the batches may hold, as a part of the error's sentence."""
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batches of one request may hold {limit} when decompressed: send smaller ones (batch.size)",
        )


class DecompressionBudget:
    """How much one request may still decompress: RATIO times its own bytes, and one record for each of its bytes."""

    def __init__(self, sent_bytes: int) -> None:
        """sent_bytes: the size of all batches of the request, as sent."""
        counted = max(sent_bytes, LEAST_BYTES)
        self._bytes = self._bytes_left = RATIO * counted
        self._records = self._records_left = counted

    def payload_of(self, batch: Batch) -> bytes:
        """Return the batch's records, decompressed, and subtract their size from the budget. Raises OverBudget;
        KafkaError if they are damaged.
        """
        if batch.record_count > self._records_left:
            raise OverBudget(f"{self._records} records")
        if not self._bytes_left:
            raise self._too_many_bytes()
        limit = min(self._bytes_left, DECOMPRESSED_LIMIT_BYTES)
        if not batch.codec and batch.size - HEADER_BYTES > limit:
            raise self._too_many_bytes()
        try:
            payload = payload_of(batch, limit)
        except KafkaError as error:
            self._bytes_left = max(0, self._bytes_left - FAILURE_COSTS_BYTES)
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise self._too_many_bytes() from None
            raise
        self._bytes_left -= len(payload)
        self._records_left -= batch.record_count
        return payload

    def _too_many_bytes(self) -> OverBudget:
        """Return the error for a batch with too many bytes. Its text names the limit of all batches of the request
        together, and that of each.
        """
        return OverBudget(f"{self._bytes} bytes, each of them {DECOMPRESSED_LIMIT_BYTES},")
