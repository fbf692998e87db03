"""Reads one of the broker's own logs as a whole, at start."""

from collections.abc import Iterator

from ...protocol import batches
from ...protocol.batches import Batch
from ...protocol.errors import KafkaError
from ...storage.log.partition_log import PartitionLog
from ...storage.log.reads import ColdRead
from ...storage.system_errors import MISPLACED

READ_BYTES = 1 << 20


def checked_batches(log: PartitionLog, offset: int) -> Iterator[Batch]:
    """Yield all batches from the one that contains `offset` on, each after a check. Raises KafkaError, CorruptBatch.

    Compaction may leave nothing at the end of the segments, so an empty read there is no damage (KAFKA-9065).
    """
    while offset < log.end_offset:
        found = log.read(offset, READ_BYTES, log.end_offset, at_least_one=True)
        if isinstance(found, ColdRead):
            found = found.run()
        if not found.size_bytes:
            offset = log.flushed_offset if offset < log.flushed_offset else log.end_offset
        for batch in batches.walk(memoryview(b"".join(found.buffers))):
            batches.verify(batch)
            yield batch
            offset = batch.next_offset


def raise_system_error(error: Exception, log: PartitionLog) -> None:
    """Raise the OSError that caused `error`, if there is one and it has not put the log offline: such an error of the
    system, for example a lack of memory or file descriptors, does not say that the bytes are damaged.
    """
    if isinstance(error.__cause__, OSError) and log.offline is None:
        raise error.__cause__ from None


def why_refused(error: Exception, log: PartitionLog) -> str:
    """Return, as a text, why a start cannot read or apply this log. If the cause is an OSError that says nothing about
    the log's bytes, raise that instead.
    """
    cause = error.__cause__
    if isinstance(cause, OSError) and not isinstance(cause, MISPLACED):
        raise cause from None
    return log.offline or (error.text if isinstance(error, KafkaError) else str(error))
