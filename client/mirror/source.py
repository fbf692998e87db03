"""Reading the source ahead of the mirror, in the background, for as long as it takes.

The rule: an error of the source is waited out, as the source may come back; one of a partition holds up only that.
Only what would skip or repeat records stops a topic (`Ahead.feed`, and here: a log that ends before the position or
begins after it).
"""

import asyncio
import logging
from collections.abc import Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ..admin.admin import Admin
from ..admin.offsets import EARLIEST, LATEST
from ..net.environment import Environment
from ..values import TopicPartition
from .ahead import Ahead
from .findings import ANEW, StoppedError

log = logging.getLogger("fencepost.client")

IDLE_MS = 100
"""How often the ends are looked up while there is nothing to read."""
RETRY_MS = 1_000
SETTLING_MS = 3_000
"""So long a source may say that a topic is away, or ends earlier: one that has just started may not know all yet."""
AHEAD_BYTES, ALL_AHEAD_BYTES, LEAST_AHEAD_BYTES = 8 << 20, 128 << 20, 1 << 20
"""So much is read ahead of a partition that has a closed cut, of all of them together, and of one of very many."""
AT_ONCE = 8
"""So many partitions are read at the same time."""


class Source:
    """Reads the partitions of a task ahead of the mirror, in the background.

    ends: the last stable offset of each partition, as it was last seen. starts: the first offsets of the log. failed:
    why a topic cannot go on; the task takes the error from here and sets None. trouble: the source's last error, None
    while it answers. unavailable: partitions that could not be read the last time, with the errors. arrived: set when
    something was read, or a topic has failed.
    """

    def __init__(self, admin: Admin, environment: Environment) -> None:
        self._admin = admin
        self._clock = environment.clock
        self._aheads: dict[TopicPartition, Ahead] = {}
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._task: asyncio.Task[None] | None = None
        self.ends: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        self._short_since: dict[TopicPartition, int] = {}  # when a partition was first seen to end before its position
        self.failed: StoppedError | None = None
        self.trouble: KafkaError | None = None
        self.unavailable: dict[TopicPartition, KafkaError] = {}
        self._refused_ms: dict[TopicPartition, int] = {}  # when a read of the partition failed, though it had an end
        self.arrived = asyncio.Event()

    def read(self, aheads: Mapping[TopicPartition, Ahead]) -> None:
        """Read these partitions from now on, and no others. Answers that are still to come for others are dropped."""
        self.close()
        self._aheads = dict(aheads)
        self.unavailable, self._refused_ms = {}, {}
        self.ends = {tp: end for tp, end in self.ends.items() if tp in aheads}
        self.starts = {tp: start for tp, start in self.starts.items() if tp in aheads}
        if aheads:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def drop(self, topic: str) -> None:
        """Read this topic no more."""
        for tp in [tp for tp in self._aheads if tp.topic == topic]:
            del self._aheads[tp]
            self.ends.pop(tp, None)

    def close(self) -> None:
        """Read nothing any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        """Read until cancelled, with a pause after an error, and while there is nothing new."""
        while True:
            try:
                pause_ms = 0 if await self._read_once() else IDLE_MS
                self.trouble = None
            except StoppedError as error:
                self.failed = error
                self.drop(error.topic)
                self.arrived.set()
                pause_ms = 0
            except KafkaError as error:
                if self.trouble is None:
                    log.warning("mirror: the source does not answer as it should: %s", error)
                for ahead in self._aheads.values():
                    _check_again(ahead)
                self.trouble, pause_ms = error, RETRY_MS
            await asyncio.sleep(pause_ms / 1000)

    async def _read_once(self) -> bool:
        """Read once from each partition that has something new and room for it. Returns whether any was read.

        A partition whose leader does not answer holds up no other: it is asked once, and again in the next round.
        """
        aheads, unavailable = dict(self._aheads), dict[TopicPartition, KafkaError]()
        # a topic that is not there any more is stopped by the task, which compares the topics' ids
        ends = await self._admin.ends(aheads, LATEST, "read_committed", skip_missing=True, unavailable=unavailable)
        self.ends |= {tp: end for tp, end in ends.items() if tp in self._aheads}
        self._check_ends(ends)
        share = max(LEAST_AHEAD_BYTES, min(AHEAD_BYTES, ALL_AHEAD_BYTES // max(1, len(aheads))))
        now_ms = self._clock.monotonic_ms()
        self._refused_ms = {tp: at_ms for tp, at_ms in self._refused_ms.items() if now_ms - at_ms < RETRY_MS}
        unavailable |= {tp: error for tp, error in self.unavailable.items() if tp in self._refused_ms and tp in ends}
        due = [aheads[tp] for tp, end in ends.items() if tp not in unavailable and _is_due(aheads[tp], end, share)]
        errors = await asyncio.gather(*(self._fill(each) for each in due), return_exceptions=True)
        read = 0
        for ahead, error in zip(due, errors, strict=True):
            if error is None:
                read += 1
            elif isinstance(error, StoppedError) or not isinstance(error, KafkaError):
                raise error
            else:
                unavailable[ahead.tp], self._refused_ms[ahead.tp] = error, now_ms
        for tp in sorted(unavailable.keys() - self.unavailable.keys()):
            log.warning("mirror: %s of the source cannot be read: %s", tp, unavailable[tp])
        for tp in unavailable:
            _check_again(aheads[tp])
        self.unavailable = unavailable
        return bool(read)

    def _check_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Raise StoppedError for a partition whose end has been before the mirror's position for SETTLING_MS."""
        now_ms = self._clock.monotonic_ms()
        short = {tp: end for tp, end in ends.items() if tp in self._aheads and end < self._aheads[tp].position.offset}
        self._short_since = {tp: self._short_since.get(tp, now_ms) for tp in short}
        for tp, since_ms in self._short_since.items():
            if now_ms - since_ms >= SETTLING_MS:
                raise StoppedError(
                    tp.topic,
                    f"partition {tp.partition} of the source ends at offset {short[tp]}, before the mirror's position"
                    f" {self._aheads[tp].position.offset}: it was restored, or cut",
                    hint=ANEW,
                )

    async def _fill(self, ahead: Ahead) -> None:
        """Read a page of one partition, beginning at the batch that was read last."""
        async with self._limit:
            before = ahead.read_to
            await self._feed(ahead, ahead.read_from)
            if ahead.read_to == before:  # the page had room for nothing but the batch before it
                await self._feed(ahead, before)

    async def _feed(self, ahead: Ahead, offset: int) -> None:
        """Fetch from this offset, and add the batches to the partition's Ahead."""
        tp = ahead.tp
        try:
            page = await self._admin.read_page(tp, offset, isolation_level="read_committed", retry=False)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await self._explain_out_of_range(ahead, offset)
            return
        self.starts[tp] = page.log_start_offset
        if self._aheads.get(tp) is ahead:
            ahead.feed(page.batches, page.aborted, self._clock.monotonic_ms())
            self.arrived.set()

    async def _explain_out_of_range(self, ahead: Ahead, offset: int) -> None:
        """Raise StoppedError if the log begins after the offset up to which it was read. If only the batch before that
        offset is gone, read on from the offset.
        """
        tp, unavailable = ahead.tp, dict[TopicPartition, KafkaError]()
        starts = await self._admin.ends([tp], EARLIEST, unavailable=unavailable)
        if tp in unavailable:
            raise unavailable[tp]
        self.starts[tp] = start = starts[tp]
        if start > ahead.read_to:
            raise StoppedError(
                tp.topic,
                f"partition {tp.partition} of the source begins at offset {start}, after the mirror's position"
                f" {ahead.read_to}: retention was faster than the mirror, or records were deleted",
                hint=ANEW,
            )
        if offset < ahead.read_to:
            await self._feed(ahead, ahead.read_to)


def explain(unavailable: Mapping[TopicPartition, KafkaError]) -> str:
    """Return in one line that these partitions of the source cannot be read; "" if there are none."""
    if not unavailable:
        return ""
    first = min(unavailable)
    more = f", and {len(unavailable) - 1} more partitions of it" if len(unavailable) > 1 else ""
    return f"{first} of the source{more}: {unavailable[first].text}"


def _check_again(ahead: Ahead) -> None:
    """Have it seen again whether the source still has what was mirrored: it may be a restored one when it is back."""
    ahead.is_checked = ahead.read_from == ahead.read_to  # equal: no batch was read, so there is none to look for


def _is_due(ahead: Ahead, end: int, share: int) -> bool:
    """Return whether to read from the partition: it has something new, and room for it; or nobody has seen yet whether
    it still has what was mirrored. end: of the partition. share: as in Ahead.has_room().
    """
    return (end > ahead.read_to and ahead.has_room(share)) or (end >= ahead.read_to and not ahead.is_checked)
