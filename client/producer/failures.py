"""Records that are not delivered: each fails for those who wait for it, and is counted and logged for everybody else.

The rule: no batch ends with an error in another way than by this module; after a close, or the end of the program, the
log says how many records were dropped.
"""

from collections.abc import Iterable

from ...effects.counts import count_text, list_text
from ...protocol.errors import KafkaError
from ..errors import BrokerUnreachableError, ClientError, DeliveryTimeoutError, ErrorCode, error_of
from ..net.connection import log
from .batching import Accumulator, Batch


class Failures:
    """Ends batches with errors. transactional: nothing is logged for a failed batch, because its transaction fails and
    reports the error.
    """

    def __init__(self, accumulator: Accumulator, transactional: bool) -> None:
        self._accumulator = accumulator
        self._transactional = transactional

    def fail(self, batches: list[Batch], error: Exception) -> None:
        """Fail these batches; log those that no caller awaits."""
        silent = [batch for batch in batches if not batch.is_awaited]
        if silent and not self._transactional:
            log.error("delivery failed for %s: %s", describe(silent), error)
        for batch in batches:
            self._accumulator.finish(batch, error)

    def drop_all(self, error: KafkaError) -> None:
        """Fail all unfinished batches because the producer is closed, and log how many records they have and whether
        these may have been written. Batches that a caller awaits are logged, too.
        """
        left = list(self._accumulator.incomplete)
        if left:
            unsure = sum(len(batch.timestamps) for batch in left if batch.maybe_written)
            fate = f"{unsure:,} of them may have been written nevertheless" if unsure else "they were not written"
            log.error("%s: dropped %s; %s", error.text, describe(left), fate)
        for batch in left:
            self._accumulator.finish(batch, error)

    def lose_all(self, error: KafkaError) -> None:
        """Like drop_all, but callable from any thread after the event loop has ended: no callback of a batch is
        called.
        """
        for batch in list(self._accumulator.incomplete):
            batch.on_done.clear()
        self.drop_all(error)


def describe(batches: Iterable[Batch]) -> str:
    """Return a text such as "3 records to orders-0": how many records the batches have, and of which partitions."""
    counts: dict[str, int] = {}
    for batch in batches:
        name = str(batch.partition.topic_partition)
        counts[name] = counts.get(name, 0) + len(batch.timestamps)
    records = count_text(sum(counts.values()), "record")
    if len(counts) == 1:
        return f"{records} to {next(iter(counts))}"
    return f"{records} ({list_text([f'{name}: {count}' for name, count in counts.items()], 'partition')})"


def timeout_error(batch: Batch, timeout_ms: int, cause: KafkaError | None) -> DeliveryTimeoutError:
    """Return the error for a batch that was not acknowledged before its deadline. cause: the error that kept it from
    being written; None if unknown.
    """
    tried = f"sent {count_text(batch.attempts, 'time')}" if batch.attempts else "never sent"
    fate = "they may have been written nevertheless" if batch.maybe_written else "they were not written"
    where = batch.partition.topic_partition
    detail = f"no acknowledgement of records for {where} within {timeout_ms} ms ({tried}); {fate}"
    if cause is None:
        return DeliveryTimeoutError(detail, maybe_written=batch.maybe_written)
    hint = cause.hint if isinstance(cause, ClientError) else ""
    late = DeliveryTimeoutError(f"{detail}; {cause}", hint=hint, maybe_written=batch.maybe_written)
    late.__cause__ = cause
    return late


def no_leader(batch: Batch) -> KafkaError:
    """Return LEADER_NOT_AVAILABLE with a text that names the batch's partition."""
    words = "has no leader: its broker is down, or its log is offline; the broker's log says why"
    return error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"{batch.partition.topic_partition} {words}")


class ClosedByLoop(BrokerUnreachableError):
    """The error for a request whose future was cancelled."""

    def __init__(self) -> None:
        super().__init__("the request was given up", sent=True)
