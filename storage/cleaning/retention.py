"""Which records retention gives up: whole segments, oldest first. Pure: a decision on ages and sizes.

The age of a segment is the time since its newest batch was appended, on the store's own clock: uptime, summed over
restarts. Neither wall clock nor record timestamps enter. So nothing expires early when the clock is set forward or a
producer sends old timestamps, and a timestamp in the future keeps nothing for ever; time the broker was down does not
count, so records may stay longer, never shorter, than retention.ms. (Kafka compares record timestamps to the clock.)
"""

from collections.abc import Sequence

from ..log.segment import SegmentState
from ..log.settings import LogSettings


def new_start(
    segments: Sequence[SegmentState],
    start_offset: int,
    bound: int,
    tail_bytes: int,
    now_ms: int,
    settings: LogSettings,
) -> int | None:
    """The offset to which retention moves the start of a log, or None to leave it.

    bound: nothing from here on may go: it is not checkpointed, or belongs to an open transaction.
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
