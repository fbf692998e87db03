"""Decides by ages and sizes which segments retention removes: whole segments, the oldest first. Pure.

The age of a segment is the time since its newest batch was appended, by the store's own clock, which counts uptime over
all restarts. Neither the wall clock nor record timestamps have an influence. So nothing expires early if the clock is
set forward or a producer sends old timestamps, and a timestamp in the future keeps nothing for ever. Time in which the
broker was stopped does not count, so records may stay longer than retention.ms, but never shorter. (Kafka compares
record timestamps to the clock.)
"""

from collections.abc import Sequence

from ..log.partition_log import PartitionLog
from ..log.segment import SegmentState
from ..log.settings import LogSettings


def expired(log: PartitionLog, now_ms: int) -> int | None:
    """Return the offset to which retention moves the log's start; None if no segment has expired, or the log is
    offline. Records above the newest checkpoint, and those that an open transaction needs, are kept.

    now_ms: the store's age.
    """
    if log.offline is not None or not log.segments:
        return None
    first_open = log.producers.first_open_offset()
    bound = log.checkpointed_offset if first_open is None else min(first_open, log.checkpointed_offset)
    return new_start(log.segments, log.start_offset, bound, log.tail_bytes, now_ms, log.settings)


def new_start(
    segments: Sequence[SegmentState],
    start_offset: int,
    bound: int,
    tail_bytes: int,
    now_ms: int,
    settings: LogSettings,
) -> int | None:
    """Return the offset to which retention moves the start of a log; None to leave it.

    bound: records from this offset on are kept, because no checkpoint has them or an open transaction needs them.
    """
    if not settings.deletes:
        return None
    living = [state for state in segments if state.end_offset > start_offset]
    surplus_bytes = sum(state.size_bytes for state in living) + tail_bytes - settings.retention_bytes
    start = start_offset
    for state in living:
        aged = settings.retention_ms >= 0 and now_ms - state.last_age_ms > settings.retention_ms
        heavy = settings.retention_bytes >= 0 and surplus_bytes >= state.size_bytes
        if state.end_offset > bound or not (aged or heavy):
            break
        surplus_bytes -= state.size_bytes
        start = state.end_offset
    return start if start > start_offset else None
