"""The work of a consumer between two reads: update the assignment, look up positions, wait for records.

The rule: nothing here, and no background task, refers to the Consumer object, so that an abandoned one is collected;
its finalizer then closes these parts.
"""

import asyncio
import logging
from collections.abc import Collection

from ..group.any_group import group_of
from ..group.group import Group
from ..group.missing_topics import MissingTopics
from ..group.subscription import Subscription
from ..net.cluster import Cluster
from ..net.environment import Environment
from ..reader_parts import CLOSING_MS, LONGEST_WAIT_MS, ReaderParts
from ..settings import ConsumerSettings
from ..snapshots import ConsumerSnapshot, PartitionSnapshot, error_text
from ..values import TopicPartition
from .fetcher import Fetcher
from .positions import Positions
from .reading import Reading
from .whole_topics import WholeTopics

log = logging.getLogger("fencepost.client")


class Polls(ReaderParts):
    """The parts of one consumer, and the order in which a poll calls them.

    group: None without a group_id. whole: assigns all partitions of the topics without a group_id; None with one.
    """

    def __init__(self, settings: ConsumerSettings, environment: Environment) -> None:
        super().__init__(Cluster(settings, environment), environment, "consumer", "Consumer")
        self.cluster.on_broken = self._end_waits
        self.settings = settings
        self.subscription = Subscription(settings.group_id is not None)
        MissingTopics(self.cluster, self.subscription)
        self.group: Group | None = None
        self.whole: WholeTopics | None = None
        if settings.group_id is not None:
            self.group = group_of(self.cluster, settings, self.subscription, environment)
            self.group.on_needs_poll = self._end_waits
        else:
            self.whole = WholeTopics(self.cluster, settings, self.subscription, self._end_waits)
        self.reading = Reading(settings, self.subscription, self)
        self.fetcher = Fetcher(self.cluster, settings, self.subscription, self._end_waits)
        self.positions = Positions(self.cluster, settings, self.subscription, self.group, self._go_on)
        self._is_idle = False

    # ---- life --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start, after the cluster is connected."""
        super().begin()
        self.subscription.on_change = self._go_on
        self._go_on()

    async def close(self, timeout_ms: float = CLOSING_MS, *, is_done: bool = True) -> None:
        if not self._closed:
            self.reading.settle()
        await super().close(timeout_ms, is_done=is_done)

    async def finish(self, timeout_ms: float) -> None:
        """Commit, leave the group and stop fetching. After an error of the application, or without close(), the records
        returned last are not committed, because they may not have been processed.
        """
        unfinished = {} if self._is_done else self.reading.unfinished()
        self._closed = True
        self.subscription.on_change = lambda: None
        self.fetcher.close()
        self._end_waits()
        self.positions.close()
        if self.positions.places is not None:
            await self.positions.places.close(timeout_ms)
        if self.group is not None and self._started:
            await self.group.close(timeout_ms, unfinished)

    async def release(self) -> None:
        """Close all connections."""
        await self.cluster.close()

    def abandon(self) -> None:
        """Log the uncommitted records, which are read again, because the event loop has ended without close()."""
        self.reading.settle()
        if self.group is not None:
            self.group.warn_unclosed()

    def state(self, group_id: str | None) -> ConsumerSnapshot:
        """Return a snapshot of the consumer's state."""
        self.reading.settle()  # else the position stays before the records that `async for` iterates over
        now_ms = self._clock.monotonic_ms()
        membership, member_id, generation = (None, "", -1) if self.group is None else self.group.member
        return ConsumerSnapshot(
            life="closed" if self._closed else "open" if self._started else "not started",
            connections=self.cluster.connection_snapshots(),
            group_id=group_id,
            membership=membership,
            member_id=member_id,
            generation=generation,
            subscription=self.subscription.topics,
            partitions={
                tp: PartitionSnapshot(
                    state.position,
                    state.paused,
                    state.fetched_bytes,
                    state.high_watermark,
                    error_text(state.refused),
                    state.unstable_ms(now_ms),
                )
                for tp, state in self.subscription.assigned.items()
            },
            last_error=None if self.group is None else error_text(self.group.failure),
        )

    # ---- polls -------------------------------------------------------------------------------------------------

    async def poll(self, deadline_ms: float, wanted: Collection[TopicPartition] = ()) -> None:
        """Do the work that must happen between two reads: join, commit, look up positions. Raises background errors.

        wanted: the partitions that are read now, empty for all. deadline_ms: of the monotonic clock.
        """
        self.reading.settle()
        self.fetcher.wanted = wanted
        self.check_started()
        group = self.group
        if group is not None:
            if group.needs_poll:
                await group.poll(min(deadline_ms, self._clock.monotonic_ms() + LONGEST_WAIT_MS))
                self.check_open()
            else:
                group.polled()
        elif self.whole is not None and self.whole.needs_poll:
            self.whole.poll()
        self.cluster.check()
        self.fetcher.check()
        if self.subscription.needs_positions:
            self.positions.find()

    async def look(self, deadline_ms: float) -> None:
        """Do the work of poll(), to look up a position without reading. In a rebalance listener, do only the lookup."""
        if self.group is None or not self.group.in_listener:
            await self.poll(deadline_ms)
            return
        self.check_open()
        self.cluster.check()
        self.positions.find()

    async def wait(self, deadline_ms: float, wanted: Collection[TopicPartition] = (), *, news: bool = False) -> bool:
        """Wait until the next poll or read may have something to do, and return True; return False at deadline_ms.
        news: wait even if fetched records are there.
        """
        if deadline_ms <= self._clock.monotonic_ms():
            return False
        if not news and self.reading.has_some(wanted):
            return True
        self._warn_if_idle()
        if self.group is not None and self.group.needs_poll and not self.group.in_listener:
            await asyncio.sleep(0)  # a join that did not finish in time starts again at once
            return True
        if self.whole is not None and self.whole.needs_poll:
            return True
        with self._waiting_until(deadline_ms) as future:
            if self.group is None:
                await future
            else:
                with self.group.polling():
                    await future
        return True

    def _warn_if_idle(self) -> None:
        """Log once that there is nothing to read: the wait for it is silent otherwise."""
        is_idle = not self.subscription.is_subscribed and not self.subscription.assigned
        if is_idle and not self._is_idle:
            log.warning("the consumer has no topics and no partitions: it waits for subscribe() or assign()")
        self._is_idle = is_idle

    def _go_on(self) -> None:
        """Send fetches and wake waiting reads, after a change of the assignment or of a position."""
        self.fetcher.pump()
        self._end_waits()
