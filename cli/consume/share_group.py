"""`fencepost consume --share`: prints the records that a share group delivers to this consumer, and accepts them.

The rule: a record is accepted after it is printed. With -e the command ends when nothing was delivered for IDLE_MS,
because the records that are left may be acquired by another consumer for now.
"""

import errno

from ..arguments.connecting import Target
from ..output.record_text import Form
from ..output.writing import flush, nobody_reads, show_bytes

POLL_MS = 200
IDLE_MS = 2_000
MAX_PER_POLL = 500


async def print_shared(
    to: Target, topic: str, group_id: str, reset: str | None, limit: int | None, until_end: bool, write: Form
) -> int:
    """Print records of a share group. reset: the share.auto.offset.reset to begin with, for a group without this
    setting. Returns how many were printed. Raises BrokenPipeError once nobody reads the output.
    """
    printed, idle_ms = 0, 0
    most = MAX_PER_POLL if limit is None else min(MAX_PER_POLL, limit)
    async with to.share_consumer(
        group_id=group_id, auto_offset_reset=reset, max_poll_records=most, strict=limit is not None
    ) as consumer:
        consumer.subscribe([topic])
        while limit is None or printed < limit:
            wanted = most if limit is None else min(most, limit - printed)
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=wanted)
            show_bytes(b"".join(map(write, found)))
            printed += len(found)
            if found:
                flush()
                for record in found:
                    consumer.acknowledge(record)
                await consumer.commit()
            elif nobody_reads():
                raise BrokenPipeError(errno.EPIPE, "nobody reads the output")
            idle_ms = 0 if found else idle_ms + POLL_MS
            if until_end and idle_ms >= IDLE_MS:
                break
    return printed
