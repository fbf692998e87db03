"""Everything a store holds that anybody could see, as plain values to compare: records, producers, aborted, topics."""

from collections.abc import Iterable
from typing import Any

from fencepost.protocol import batches
from fencepost.protocol.batches import Batch
from fencepost.storage.log.partition_log import PartitionLog
from fencepost.storage.store import Store
from one_partition import contents

NOT_COMPARED = ("age_ms",)  # a restart may make it a little less


def batches_of(log: PartitionLog) -> list[Batch]:
    """Return every batch that a consumer reads, with each CRC checked. Raises KafkaError, CorruptBatch."""
    found: list[Batch] = []
    offset = log.start_offset
    while offset < log.high_watermark:
        piece: Any = log.read(offset, 1 << 20, log.high_watermark, at_least_one=True)
        if hasattr(piece, "run"):
            piece = piece.run()
        if not piece.buffers:
            break  # compaction took what was here
        for batch in batches.walk(memoryview(b"".join(piece.buffers))):
            batches.verify(batch)
            found.append(batch)
        offset = piece.next_offset
    return found


def committed(log: PartitionLog, found: Iterable[Batch]) -> list[int]:
    """Return the base offsets of the batches that a read_committed reader gets, by the log's list of aborted
    transactions.
    """
    below = log.last_stable_offset
    aborted: Any = log.aborted_between(log.start_offset, below)
    if not isinstance(aborted, list):
        aborted = aborted.run()
    spans = [(one.producer_id, one.first_offset, one.last_offset) for one in aborted]
    return [
        batch.base_offset
        for batch in found
        if batch.last_offset < below
        and not batch.is_control
        and not (
            batch.is_transactional
            and any(who == batch.producer_id and first <= batch.base_offset <= last for who, first, last in spans)
        )
    ]


def dump_log(log: PartitionLog, times: Iterable[int] = ()) -> dict[str, Any]:
    """Return everything that can be observed of a log. times: timestamps to look up."""
    found = batches_of(log)
    looked_up = {}
    for timestamp in times:
        job = log.offset_for_time(timestamp, log.high_watermark)
        looked_up[timestamp] = None if job is None else job.run()
    producers = contents(log.producers.snapshot())
    for producer in producers.values():
        for name in NOT_COMPARED:
            producer.pop(name)
    return {
        "start": log.start_offset,
        "end": log.end_offset,
        "high watermark": log.high_watermark,
        "last stable": log.last_stable_offset,
        "batches": [bytes(batch.buffer) for batch in found],
        "committed": committed(log, found),
        "producers": producers,
        "times": looked_up,
    }


def dump(store: Store) -> dict[tuple[str, int], dict[str, Any]]:
    """Return everything that can be observed of all logs, by topic and partition, the catalogue included."""
    return {
        (log.topic, log.partition): {"topic id": store.topic_ids[log.log_id]} | dump_log(log)
        for log in store.logs.values()
    }
