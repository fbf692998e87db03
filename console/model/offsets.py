"""The offsets of many partitions, read in an order that leaves start ≤ last stable offset ≤ high watermark.

The rule: the high watermark is read last, so it is never below the others; a partition that is deleted meanwhile is
left out, so that one deleted topic does not hide all others.
"""

from collections.abc import Collection

from ...client.admin.admin import Admin
from ...client.admin.offsets import EARLIEST, LATEST
from ...client.values import TopicPartition
from .view import Offsets


async def read_offsets(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offsets]:
    """Return first offset, last stable offset and high watermark of each partition; one that does not exist is left
    out. Raises KafkaError.
    """
    if not partitions:
        return {}
    stable = await admin.ends(partitions, LATEST, "read_committed", skip_missing=True)
    starts = await admin.ends(partitions, EARLIEST, skip_missing=True)
    ends = await admin.ends(partitions, LATEST, skip_missing=True)
    there = [at for at in partitions if at in stable and at in starts and at in ends]
    return {at: Offsets(starts[at], stable[at], ends[at]) for at in there}
