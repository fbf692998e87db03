"""Errors of `send` that say what there is no room for. Pure."""

from ...effects.counts import count_text
from ..errors import BufferFullError, UnknownTopicError
from .batching import Accumulator, Topic


def partition_error(topic: Topic, partition: object) -> UnknownTopicError:
    """Return the error for a partition that the topic does not have."""
    return UnknownTopicError(
        f"topic {topic.name!r} has {count_text(topic.count, 'partition')}: there is no partition {partition!r}"
    )


def buffer_full_error(accumulator: Accumulator, waited_ms: float, why: Exception | None) -> BufferFullError:
    """Return the error for a record that found no room for so long. why: the reason, if one is known."""
    limit = accumulator.memory_bytes
    return BufferFullError(
        f"buffer_memory is full: {limit - accumulator.free_bytes:,} of {limit:,} bytes are unacknowledged, "
        f"and none was acknowledged for {waited_ms} ms{'' if why is None else f'; {why}'}"
    )
