"""The committed records of a span of a partition's log, read without a consumer: for what a mirror has to look at."""

import asyncio
from collections.abc import AsyncIterator

from ...protocol.batches import Batch
from ..admin.admin import Admin
from ..errors import RequestTimedOutError
from ..records.isolation import AbortedFilter
from ..values import TopicPartition

PAUSE_S = 0.1
STUCK_AFTER = 600  # pauses, without a record


async def committed_batches(admin: Admin, partition: TopicPartition, start: int, end: int) -> AsyncIterator[Batch]:
    """Yield the batches with records that are committed, from `start` up to `end` (exclusive); no markers.

    Waits for the end of transactions that are open below `end`. Raises RequestTimedOutError if one does not end,
    OFFSET_OUT_OF_RANGE if the log begins above `start`.
    """
    position, waited = start, 0
    while position < end:
        page = await admin.read_page(partition, position, isolation_level="read_committed")
        hidden = AbortedFilter(page.aborted)
        for batch in page.batches:
            if batch.base_offset >= end:
                return
            if not hidden.hides(batch):
                yield batch
        if page.next_offset > position:
            position, waited = page.next_offset, 0
            continue
        if page.last_stable_offset >= end:
            return  # what is left was compacted away
        waited += 1
        if waited > STUCK_AFTER:
            raise RequestTimedOutError(
                f"a transaction in {partition} is open at offset {page.last_stable_offset}",
                hint=f"fencepost txn why-blocked {partition.topic} shows whose it is",
            )
        await asyncio.sleep(PAUSE_S)
