"""The offset at which a page of records begins, given as an offset, a time, or a number of records before the end.

The rule: for an offset outside of the log the nearest one inside is used, so a link stays useful after retention.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...client.admin.admin import Admin
from ...client.admin.offsets import EARLIEST, LATEST
from ...client.values import TopicPartition
from ..http.parameters import Parameter

PLACES = (
    Parameter("offset", "number", "The first offset to read."),
    Parameter("time_ms", "number", "Read from the first record of this time on, if there is no offset."),
    Parameter(
        "last",
        "number",
        "Otherwise, how many offsets before the end to begin: HW, or LSO for read_committed.",
        low=1,
        high=1_000_000,
    ),
)


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of a partition: its first offset, last stable offset and high watermark."""

    start: int
    stable: int
    high: int

    def inside(self, offset: int) -> int:
        """Return the offset, or the nearest one from start to high watermark."""
        return min(max(offset, self.start), self.high)


async def ends_of(admin: Admin, partition: TopicPartition) -> Ends:
    """Read first offset, last stable offset and high watermark now. Raises KafkaError, UnknownTopicError."""
    high = (await admin.ends([partition], LATEST))[partition]
    stable = (await admin.ends([partition], LATEST, "read_committed"))[partition]
    start = (await admin.ends([partition], EARLIEST))[partition]
    return Ends(start, min(stable, high), high)  # `stable` was read after `high` and may have passed it


async def first_offset(
    admin: Admin, partition: TopicPartition, ends: Ends, asked: Mapping[str, Any], last: int, end: int
) -> int:
    """Return the offset at which to begin. asked: the values of the query parameters PLACES (offset, time_ms, last).
    last: how many records before `end` to begin if none of them is given. end: where reading stops.
    """
    if asked["offset"] is not None:
        return ends.inside(asked["offset"])
    if asked["time_ms"] is not None:
        found = await admin.list_offsets({partition: asked["time_ms"]})
        offset = found[partition].offset
        return ends.inside(offset if offset >= 0 else ends.high)
    return ends.inside(end - (asked["last"] or last))
