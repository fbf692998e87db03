"""A member of a consumer group: it joins within polls, sends heartbeats between them, and commits for its generation.

Here is what both protocols of groups share; `classic_group.py` and `consumer_group.py` have the rest.

The rule: the assignment changes only within `poll`, so all records read between two polls are of one generation.
Listeners run within it; it raises their errors after its work is done. After max_poll_interval_ms without a poll the
member leaves, and its commits fail. Source: Kafka's ConsumerCoordinator; KIP-62, KIP-429, KIP-447.
"""

import asyncio
import inspect
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from ..errors import ClosedError, IllegalStateError, InvalidConfigurationError, is_retriable
from ..net.cluster import Cluster, Target
from ..net.environment import Environment
from ..settings import ConsumerSettings
from ..values import TopicPartition
from .commits import GroupCommits
from .consumer_membership import ConsumerMembership
from .heartbeat import HeartbeatTask
from .membership import Membership
from .subscription import Subscription

log = logging.getLogger("fencepost.client")

UNSUBSCRIBED = "the consumer unsubscribed from all topics"
LEAVING_MS = 5_000
"""How long leaving may take by default."""
FAREWELL = 0.25
"""The fraction of that time reserved for LeaveGroup, however long commits and listeners take."""


class Group(ABC):
    """One member of one group; if partitions are assigned with `assign`, only the group's offsets are used.

    metadata, commit, committed, stable_now: those of GroupCommits. on_needs_poll: called when `needs_poll` has become
    true between polls.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        environment: Environment,
        membership: Membership | ConsumerMembership,
    ) -> None:
        if settings.group_id is None:
            raise InvalidConfigurationError("no group_id is set")
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._clock = environment.clock
        self._group_id = settings.group_id
        self._member = membership
        self._commits = GroupCommits(cluster, settings, subscription, membership, self._news)
        self.metadata = self._commits.metadata
        self.commit = self._commits.commit
        self.committed = self._commits.committed
        self.stable_now = self._commits.stable_now
        self._heartbeats = HeartbeatTask(
            cluster, settings, membership, environment, self._news, self._leave_after_missed_poll
        )
        self._heartbeat_times = self._heartbeats.times
        self._leaves_over: Target = self._commits.connection
        self._failure: BaseException | None = None
        self._due = True
        self._matched: re.Pattern[str] | None = None  # the pattern that was matched against all topics once
        self._polling: asyncio.Future[None] | None = None
        self._step: asyncio.Task[None] | None = None  # changes the assignment and calls the listener
        self._cancelled_step: asyncio.Task[None] | None = (
            None  # a step that was cancelled here, so polls do not raise that
        )
        self.leaving = False
        self._leaver: tuple[asyncio.Task[Any] | None, asyncio.Future[None]] | None = (
            None  # the task that leaves, and its end
        )
        self._closed = False
        self.on_needs_poll: Callable[[], None] = lambda: None
        cluster.on_metadata.append(self._metadata_changed)

    def trace_commits(self, around: Callable[[Iterable[TopicPartition], Awaitable[None]], Awaitable[None]]) -> None:
        """Run each commit inside `around`, which gets its partitions and the commit to await."""
        self._commits.around = around

    @property
    def failure(self) -> BaseException | None:
        """Return the error that the next poll raises; None if there is none."""
        return self._failure

    @property
    def member(self) -> tuple[str, str, int]:
        """Return the name of the membership's state, the member id, the generation."""
        member = self._member
        return member.state.name.lower(), member.member_id, member.generation

    # ---- polls -----------------------------------------------------------------------------------------------

    @property
    def needs_poll(self) -> bool:
        """Return whether a poll has work to do. It has none while the member leaves."""
        if self.leaving:
            return False
        pattern = self._subscription.pattern
        if pattern is not None and pattern is not self._matched and not self._is_busy:
            return True  # its topics are not known yet
        topics, joined = self._subscription.topics, self._member.joined_topics
        return self._due or (topics is not joined and topics != joined and self._subscription.is_subscribed)

    @property
    @abstractmethod
    def _is_busy(self) -> bool:
        """Return whether polls have nothing to do until a running task has ended, which then calls `_news`."""

    def may_go_on(self) -> bool:
        """Return whether the next record may be returned without a poll. If so, that counts as a poll."""
        if self._due:
            return False
        self._heartbeat_times.was_polled = True
        return True

    def polled(self) -> None:
        """Count a read of the application as a poll."""
        self._heartbeats.times.polled(self._clock.monotonic_ms())

    @contextmanager
    def polling(self) -> Generator[None]:
        """Stop the clock of max_poll_interval_ms while the application waits within a poll."""
        self._heartbeats.times.poll_begins(self._clock.monotonic_ms())
        try:
            yield
        finally:
            self._heartbeats.times.poll_ends(self._clock.monotonic_ms())

    async def poll(self, deadline_ms: float) -> None:
        """Join if needed, and apply the group's assignment. deadline_ms: of the monotonic clock.

        While the member keeps partitions, it does not wait for a join, which continues in the background.
        Raises errors of the group and of listeners.
        """
        if self.in_listener:
            raise IllegalStateError(
                "a rebalance listener must not read records: it may only seek, commit and query positions"
            )
        if self._polling is not None:
            await self._wait_for_other_poll(deadline_ms)
            return
        self._polling = asyncio.get_running_loop().create_future()
        try:
            with self.polling():
                await self._poll(deadline_ms)
        finally:
            self._polling.set_result(None)
            self._polling = None

    async def _poll(self, deadline_ms: float) -> None:
        """Raise pending errors, start a due commit, and join or apply an assignment, until deadline_ms."""
        self._check_open()
        await self._end_step()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._due = True
            raise failure
        self._heartbeats.check()
        self._commits.commit_if_due()
        if self._subscription.is_subscribed:
            await self._belong(deadline_ms)
        self._due = self._unsettled

    async def _wait_for_other_poll(self, deadline_ms: float) -> None:
        """Wait for the poll of another task instead of polling."""
        assert self._polling is not None
        left_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
        await asyncio.wait([self._polling], timeout=left_ms / 1000)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")

    @property
    def _unsettled(self) -> bool:
        """Return whether a poll has work to do: an error to raise, a due commit, a running change, or a new
        assignment.
        """
        if self._failure is not None or self._commits.are_due or self._step is not None:
            return True
        return self._subscription.is_subscribed and not self._member.settled and not self._is_busy

    @abstractmethod
    async def _belong(self, deadline_ms: float) -> None:
        """Join if needed and apply the group's assignment: the second part of a poll."""

    async def _run_step(self, step: Coroutine[Any, Any, None]) -> None:
        """Run a change of the assignment. If this poll is cancelled, the change goes on; the next poll waits for it."""
        self._step, self._due = asyncio.get_running_loop().create_task(step), True
        await self._end_step()

    async def _end_step(self) -> None:
        """Wait for the running change of the assignment and raise its error, unless it was cancelled because the member
        leaves.
        """
        if (step := self._step) is not None:
            await asyncio.wait([step])
            self._step = None if self._step is step else self._step
            if step is not self._cancelled_step:
                step.result()

    @property
    def in_listener(self) -> bool:
        """Return whether the caller is the rebalance listener."""
        return self._step is not None and self._step is asyncio.current_task()

    async def _topics(self) -> frozenset[str]:
        """Return the subscribed topics, after updating a pattern's matches."""
        topics = self._subscription.topics
        if (pattern := self._subscription.pattern) is not None:
            if self._matched is not pattern:
                self._cluster.watch_all_topics()
                await self._cluster.refresh(all_topics=True)
                self._matched = pattern
            topics = self._subscription.match(self._visible())
        self._cluster.watch_topics(topics)
        return topics

    def _visible(self) -> Iterable[str]:
        """Return the names of all topics that a pattern may match: known, without error, and not internal."""
        topics = self._cluster.metadata.topics.values()
        return [topic.name for topic in topics if not topic.error and not topic.is_internal]

    # ---- giving up -------------------------------------------------------------------------------------------

    @abstractmethod
    async def _give_up(self, *, everything: bool = False) -> None:
        """Revoke the partitions that must not be kept, even if the listener fails. everything: revoke all."""

    async def _call_listener(self, what: str, partitions: Collection[TopicPartition]) -> None:
        """Call one method of the rebalance listener, if it has one, and await its result if that is awaitable. Without
        `on_partitions_lost`, `on_partitions_revoked` is called instead.
        """
        listener = self._subscription.listener
        if what == "on_partitions_lost" and getattr(listener, what, None) is None:
            what = "on_partitions_revoked"  # the default of Kafka's interface
        call = getattr(listener, what, None)
        if call is not None:
            found = call(list(partitions))
            if inspect.isawaitable(found):
                await found

    # ---- between polls ---------------------------------------------------------------------------------------

    def _news(self, failure: BaseException | None) -> None:
        """Note a failure of the heartbeat task, and ask for a poll if one is needed now."""
        if failure is not None:
            self._failure = failure
        was_due, self._due = self._due, self._due or self._unsettled
        if self._due and not was_due:
            self.on_needs_poll()

    @abstractmethod
    def _metadata_changed(self) -> None:
        """Check whether the subscription is affected, after each change of metadata."""

    async def _leave_after_missed_poll(self) -> None:
        """Leave the group because the application has not polled within max_poll_interval_ms."""
        log.warning(
            "group %s: no poll within max_poll_interval_ms=%d: leaving",
            self._group_id,
            self._settings.max_poll_interval_ms,
        )
        request = self._member.leave("consumer poll timeout has expired.")
        await self._stop_joining()
        self._news(None)
        await self._send_leave(request)

    @abstractmethod
    async def _stop_joining(self) -> None:
        """Stop the background tasks that join the group."""

    # ---- leaving ---------------------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Leave the group and remove the subscription. A `subscribe` during LeaveGroup stays in effect. Raises like
        `close`.
        """
        await self._leave_group(UNSUBSCRIBED, LEAVING_MS, self._subscription.unsubscribe)

    async def _leave_group(self, reason: str, timeout_ms: float, gave_up: Callable[[], None]) -> None:
        """Give up all partitions and leave. A static member stays in the group until its session ends (KIP-345).

        gave_up is called before LeaveGroup is sent. Raises errors of the listener.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        failure = None
        self.leaving = True  # a poll of another task starts nothing new
        try:
            async with asyncio.timeout(timeout_ms * (1 - FAREWELL) / 1000):
                failure = await self._give_up_all_once()
        except TimeoutError:
            if self._step is not None:
                self._cancelled_step = self._step
                self._step.cancel()
            log.warning("group %s: leaving without waiting for the listener", self._group_id)
        except Exception as error:
            failure = error
        finally:
            await self._end_membership(reason, deadline_ms, gave_up)
        if failure is not None:
            raise failure

    async def _end_membership(self, reason: str, deadline_ms: float, gave_up: Callable[[], None]) -> None:
        """Send the leaving request, even if this task is cancelled. gave_up: called before it is sent."""
        try:
            await self._stop_joining()
        finally:
            request = self._member.leave(reason)
            self._failure = None
            self._due = True
            self._matched = None
            self.leaving = False  # so that polls can join again
            gave_up()
            await self._send_leave(request, deadline_ms - self._clock.monotonic_ms())

    async def _give_up_all_once(self) -> Exception | None:
        """Call _give_up_all(), and return what it returns. If another task is doing that already, wait for it and
        return None, so that the listener is called once.
        """
        if self._leaver is not None:
            who, done = self._leaver
            if who is not asyncio.current_task():  # a listener that closes the consumer must not wait for itself
                await asyncio.wait([done])
            return None
        done = asyncio.get_running_loop().create_future()
        self._leaver = asyncio.current_task(), done
        try:
            return await self._give_up_all()
        finally:
            self._leaver = None
            done.set_result(None)

    async def _give_up_all(self) -> Exception | None:
        """Wait for a running change of the assignment, then revoke all partitions before leaving. Returns the error of
        that change, None without one; raises an error of the listener in the revocation.
        """
        failure = None
        if not self.in_listener:
            try:
                await self._end_step()
            except Exception as error:
                failure = error
        await self._give_up(everything=True)
        return failure

    async def _send_leave(self, request: Any, timeout_ms: float = LEAVING_MS) -> None:
        """Send the last request once. If it does not arrive, the session timeout removes the member."""
        if request is None:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._cluster.ask(self._leaves_over, request, timeout_ms=timeout_ms)
        except Exception as error:
            if not is_retriable(error) and not isinstance(error, TimeoutError):
                log.warning("group %s: leaving: %s", self._group_id, error)

    def warn_unclosed(self) -> None:
        """Warn that the consumer was never closed, and which records are not committed. Its event loop has ended, so
        nothing can be sent any more.
        """
        if self._subscription.is_subscribed and self._member.member_id:
            log.warning(
                "group %s: the consumer was never closed: its partitions wait until its session ends",
                self._group_id,
            )
        self._commits.warn_unclosed()

    async def close(
        self, timeout_ms: float = LEAVING_MS, unfinished: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit with enable_auto_commit, and leave the group, within timeout_ms. Idempotent. Raises errors of the
        listener.

        unfinished: by partition, the offset from which records are left out of an automatic commit.
        """
        if self._closed:
            return
        self._closed = True
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._commits.close(unfinished or {})
        if self._settings.enable_auto_commit and not self._subscription.is_subscribed:
            await self._commits.commit_or_log(timeout_ms)
        try:
            left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            await self._leave_group("the consumer is being closed", left_ms, self.on_needs_poll)
        finally:
            self._heartbeats.stop()
            self._commits.stop()
            self._cluster.on_metadata.remove(self._metadata_changed)
