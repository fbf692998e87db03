"""The work of a share consumer between two reads: be a member, wait for records, send what became of them.

The rule: nothing here, and no background task, refers to the ShareConsumer object, so that an abandoned one is
collected; its finalizer then closes these parts.
"""

import base64
import contextlib
import logging
from collections import Counter
from collections.abc import Collection

from ...protocol.messages.share_groups import ShareGroupHeartbeatRequest
from ..errors import IllegalStateError, KafkaError, RequestTimedOutError, UnsupportedVersionError
from ..group.heartbeat import HeartbeatTask
from ..group.missing_topics import MissingTopics
from ..net.cluster import Cluster
from ..net.coordinators import CoordinatorKind
from ..net.environment import Environment
from ..reader_parts import CLOSING_MS, ReaderParts
from ..settings import ShareConsumerSettings
from ..snapshots import ShareConsumerSnapshot, SharePartitionSnapshot, error_text
from ..values import TopicPartition
from .arrivals import Arrivals, Times
from .fetcher import ShareFetcher
from .held import Held, State
from .membership import ShareMembership
from .offset_reset import set_offset_reset

log = logging.getLogger("fencepost.client")


class SharePolls(ReaderParts):
    """The parts of one share consumer."""

    def __init__(self, settings: ShareConsumerSettings, environment: Environment) -> None:
        super().__init__(Cluster(settings, environment), environment, "share consumer", "ShareConsumer")
        self.settings = settings
        self.cluster.on_broken = self._wake
        member_id = base64.urlsafe_b64encode(environment.rng.bytes(16)).rstrip(b"=").decode()
        self.member = ShareMembership(settings.group_id, member_id, settings.client_rack or None)
        MissingTopics(self.cluster, self.member)
        self.held = Held(settings.max_poll_interval_ms)
        self.arrivals = Arrivals(settings, self.held)
        self.fetcher = ShareFetcher(self.cluster, settings, self.member, self.held, self.arrivals, self._wake)
        self._target: tuple[CoordinatorKind, str] = ("group", settings.group_id)
        self._heartbeats = HeartbeatTask(
            self.cluster, settings, self.member, environment, self._news, self._leave_after_missed_poll
        )
        self._failure: BaseException | None = None

    # ---- life ------------------------------------------------------------------------------------------------

    def now(self) -> Times:
        """Return the current time of both clocks."""
        return Times(self._clock.monotonic_ms(), int(self._clock.now_ms()))

    async def start(self) -> None:
        """Connect, check that the broker has share groups, and set auto_offset_reset if given. Raises
        UnsupportedVersionError and errors of the connection.
        """
        self.check_open()
        await self.cluster.start()
        connection = await self.cluster.any_node()  # the group's coordinator may not be there yet
        if not connection.knows(ShareGroupHeartbeatRequest, 1):
            raise UnsupportedVersionError(
                f"{connection.name} has no share groups (KIP-932)",
                hint="use fencepost, or Apache Kafka 4.2 or newer with the feature share.version",
            )
        if self.settings.auto_offset_reset is not None:
            await set_offset_reset(self.cluster, self.settings)
        self.begin()

    def subscribe(self, topics: Collection[str]) -> None:
        """Set the topics to read. A member sends a heartbeat with them at once."""
        self.member.subscribe(topics)
        self.cluster.watch_topics(topics)
        if self._started and self.member.hurries:
            self._heartbeats.hurry()

    def state(self) -> ShareConsumerSnapshot:
        """Return a snapshot of the consumer's state."""
        member, counts = self.member, self.held.counts()
        for place in member.assigned:
            name = self.cluster.metadata.topic_name(place.topic_id)
            if name is not None:
                counts.setdefault(TopicPartition(name, place.partition), Counter())
        return ShareConsumerSnapshot(
            life="closed" if self._closed else "open" if self._started else "not started",
            connections=self.cluster.connection_snapshots(),
            group_id=member.group_id,
            membership=member.state.name.lower(),
            member_id=member.member_id,
            member_epoch=member.generation,
            subscription=member.topics,
            partitions={
                tp: SharePartitionSnapshot(
                    found[State.FETCHED], found[State.RETURNED], found[State.ACKNOWLEDGED], found[State.TAKEN]
                )
                for tp, found in counts.items()
            },
            last_error=error_text(self._failure or self.fetcher.error),
        )

    async def finish(self, timeout_ms: float) -> None:
        """Send acknowledgements, release all other records and leave the group, within timeout_ms. Returned records
        are accepted implicitly only after close() without an error.
        """
        self._closed = True
        self._wake()
        if not self._started:
            return
        self._heartbeats.stop()
        request = self.member.leave()
        try:
            self.arrivals.begin_poll(implicit=self._is_done and self.settings.acknowledgement == "implicit")
            await self.fetcher.close()
        finally:
            await self._send_leave(request, timeout_ms)

    async def _send_leave(self, request: ShareGroupHeartbeatRequest | None, timeout_ms: float) -> None:
        """Send the leaving heartbeat once, if there is one. If it does not arrive, the session timeout removes the
        member.
        """
        if request is not None:
            with contextlib.suppress(KafkaError):
                await self.cluster.ask(self._target, request, timeout_ms=timeout_ms)

    async def release(self) -> None:
        """Close all connections."""
        self._heartbeats.stop()
        await self.cluster.close()

    def abandon(self) -> None:
        """Log a warning that the consumer was never closed, so that its records are delivered again."""
        log.warning(
            "share group %s: the consumer was never closed: what it has is delivered again", self.settings.group_id
        )

    # ---- polls -----------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Note that the application reads, join the group if this consumer is no member, and raise errors of
        background tasks.
        """
        self.check_started()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._heartbeats.check()
        self.cluster.check()
        self.fetcher.check()
        self._heartbeats.times.was_polled = True
        if not self.member.in_generation:
            if not self.member.topics:
                raise IllegalStateError("the share consumer has no topics", hint="pass topics=, or call subscribe()")
            self.member.join()
            self._heartbeats.start()
            self._heartbeats.hurry()

    async def wait(self, deadline_ms: float) -> bool:
        """Wait until there is a record to return or an error to raise. Returns False at deadline_ms (monotonic clock).

        If the deadline is over already, records are fetched nevertheless, for a later call.
        """
        now_ms = self._clock.monotonic_ms()
        if deadline_ms <= now_ms:
            if not self._waiting:
                self.fetcher.hungry_until_ms = now_ms + 1
                self.fetcher.pump()
                self._set_hunger()
            return False
        times = self._heartbeats.times
        try:
            with self._waiting_until(deadline_ms) as future:
                times.poll_begins(now_ms)
                self._set_hunger()
                self.fetcher.pump()
                await future
        finally:
            times.poll_ends(self._clock.monotonic_ms())
            self._set_hunger()
        return True

    def _set_hunger(self) -> None:
        """Set until when the fetcher has to fetch records for waiting calls; None: no call waits."""
        self.fetcher.hungry_until_ms = max(self._waiting.values(), default=None)

    def _wake(self) -> None:
        """Wake the waiting calls, if there is something for them."""
        is_over = self._closed or self._failure is not None or self.fetcher.error is not None
        if is_over or self.arrivals.has_some(self._clock.monotonic_ms()) or not self.member.in_generation:
            self._end_waits()

    def _news(self, failure: BaseException | None) -> None:
        """Wake waiting calls and the fetcher after a heartbeat that changed something. failure: an error for the next
        poll.
        """
        if failure is not None:
            self._failure = failure
        self.member.has_news = False
        self._wake()
        self.fetcher.pump()

    async def _leave_after_missed_poll(self) -> None:
        """Leave the group and release the unreturned records, because the application has not polled for
        max_poll_interval_ms.
        """
        log.warning(
            "share group %s: no poll within max_poll_interval_ms=%d: leaving, and giving back what was not returned",
            self.settings.group_id,
            self.settings.max_poll_interval_ms,
        )
        request = self.member.leave()
        self.held.release_unread()
        self.fetcher.send_soon()
        await self._send_leave(request, CLOSING_MS)

    async def commit(self) -> None:
        """Send all acknowledgements and wait for the answers. Raises the first failure since the last call."""
        self.check_started()
        if not await self.fetcher.flush(self.settings.default_api_timeout_ms):
            raise RequestTimedOutError(
                f"acknowledgements were not answered within {self.settings.default_api_timeout_ms} ms"
            )
        failure, self.held.failure = self.held.failure, None
        if failure is not None:
            raise failure
