"""Metrics of share groups, in records: acknowledged, archived by reason, locks that timed out. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from ..metrics import AT_THE_LIMIT, NO_DATA, REJECTED, Metrics
from .machine import SharePartition
from .runs import Transaction
from .values import AckType, State, StateBatch


def count_acknowledged(metrics: Metrics, found: Mapping[int, int], archived: int) -> None:
    """Count the records that a request acknowledged in one share partition.

    found: how many records were acknowledged with each type. archived: how many of them were archived.
    """
    for kind, records in found.items():
        metrics.share_acknowledged[AckType(kind).name.lower()] += records
    for kind, reason in ((AckType.REJECT, REJECTED), (AckType.GAP, NO_DATA)):
        records = min(found.get(kind, 0), archived)  # those below the window were counted, but not archived again
        metrics.share_archived[reason] += records
        archived -= records
    metrics.share_archived[AT_THE_LIMIT] += archived


def count_rejected(metrics: Metrics, machines: Iterable[SharePartition], transaction: Transaction) -> None:
    """Count the records that a transaction's commit archives in these share partitions, because they were rejected in
    it.
    """
    for machine in machines:
        metrics.share_archived[REJECTED] += machine.runs.records_where(
            lambda one: one.transaction == transaction and one.becomes is State.ARCHIVED
        )


def count_released(metrics: Metrics, changed: Sequence[StateBatch], *, timed_out: bool) -> None:
    """Count released records that were archived, because they had reached the delivery limit.

    changed: all released ranges, with their new states. timed_out: whether they were released because their locks timed
    out; then all of them are counted as timed out, too.
    """
    metrics.share_archived[AT_THE_LIMIT] += _archived(changed)
    if timed_out:
        metrics.share_locks_timed_out += sum(batch.last - batch.first + 1 for batch in changed)


def count_no_data(metrics: Metrics, archived: Sequence[StateBatch]) -> None:
    """Count the control batches, empty batches and aborted records that a fetch archived."""
    metrics.share_archived[NO_DATA] += _archived(archived)


def _archived(batches: Iterable[StateBatch]) -> int:
    """Return how many records these ranges archive."""
    return sum(batch.last - batch.first + 1 for batch in batches if batch.state is State.ARCHIVED)
