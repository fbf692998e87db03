"""A consumer's place in its group: it joins inside of polls, heartbeats between them, and commits for its generation.

The rule: `poll` is the only place where partitions come and go, so what is read between two polls is all of one
generation. Listeners run in it; what they raise comes out of it, once all is done. Past max_poll_interval_ms without a
poll the member leaves by itself, and its commits fail. Source: Kafka's ConsumerCoordinator; KIP-62, KIP-429, KIP-447.
"""

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from ..assignors.assignors import assignors_of
from ..errors import ClosedError, IllegalStateError, InvalidConfigurationError, is_retriable
from ..net.cluster import Cluster
from ..net.environment import Environment
from ..settings import ConsumerSettings
from ..values import TopicPartition
from .commits import GroupCommits
from .heartbeat import HeartbeatTask
from .joining import Joining
from .membership import Membership, State, Terms
from .subscription import Subscription

log = logging.getLogger("fencepost.client")

UNSUBSCRIBED = "the consumer unsubscribed from all topics"
LEAVING_MS = 5_000
"""How long leaving may take where nobody says."""
FAREWELL = 0.25
"""How much of that is kept for LeaveGroup, however long commits and listeners take."""


class Group:
    """One member of one group; or, for partitions assigned by hand, only its offsets.

    metadata, commit, committed, stable_now: those of GroupCommits. on_needs_poll is called when `needs_poll` has
    become true between polls.
    """

    def __init__(
        self, cluster: Cluster, settings: ConsumerSettings, subscription: Subscription, environment: Environment
    ) -> None:
        if settings.group_id is None:
            raise InvalidConfigurationError("no group_id is set")
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._clock = environment.clock
        self._group_id = settings.group_id
        terms = Terms(
            settings.group_id,
            settings.group_instance_id,
            settings.session_timeout_ms,
            settings.max_poll_interval_ms,
            settings.client_rack or None,
        )
        self._membership = Membership(terms, assignors_of(settings.partition_assignment_strategy))
        self._commits = GroupCommits(cluster, settings, subscription, self._membership, self._news)
        self.metadata = self._commits.metadata
        self.commit = self._commits.commit
        self.committed = self._commits.committed
        self.stable_now = self._commits.stable_now
        self._exchange = Joining(cluster, settings, self._membership, environment)
        self._heartbeats = HeartbeatTask(
            cluster, settings, self._membership, environment, self._news, self._left_behind
        )
        self._heartbeat_times = self._heartbeats.times
        self._joining: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._due = True
        self._matched: re.Pattern[str] | None = None  # with all topics there are; of new ones metadata tell
        self._polling: asyncio.Future[None] | None = None
        self._step: asyncio.Task[None] | None = None  # partitions are assigned or revoked, and the listener is called
        self._given_up: asyncio.Task[None] | None = None  # cancelled by us, which is no cancellation of who polls
        self.leaving = False
        self._leaver: tuple[asyncio.Task[Any] | None, asyncio.Future[None]] | None = None  # who, until when
        self._closed = False
        self.on_needs_poll: Callable[[], None] = lambda: None
        cluster.on_metadata.append(self._metadata_changed)

    @property
    def failure(self) -> BaseException | None:
        """What the next poll raises."""
        return self._failure

    @property
    def member(self) -> tuple[str, str, int]:
        """What it is in the group: the state's name, the member id, the generation."""
        membership = self._membership
        return membership.state.name.lower(), membership.member_id, membership.generation

    # ---- polls -----------------------------------------------------------------------------------------------

    @property
    def needs_poll(self) -> bool:
        """Whether a poll has something to do. It has none while the member leaves."""
        if self.leaving:
            return False
        pattern = self._subscription.pattern
        if pattern is not None and pattern is not self._matched and self._joining is None:
            return True  # its topics are not known, and may be none so far
        topics, joined = self._subscription.topics, self._membership.joined_topics
        return self._due or (topics is not joined and topics != joined and self._subscription.is_subscribed)

    def may_go_on(self) -> bool:
        """Whether the next record may be given without a poll; giving it counts as one."""
        if self._due:
            return False
        self._heartbeat_times.was_polled = True
        return True

    def polled(self) -> None:
        """The application is alive."""
        self._heartbeats.times.polled(self._clock.monotonic_ms())

    @contextmanager
    def polling(self) -> Generator[None]:
        """While the application waits inside of a poll, its time does not run out."""
        self._heartbeats.times.poll_begins(self._clock.monotonic_ms())
        try:
            yield
        finally:
            self._heartbeats.times.poll_ends(self._clock.monotonic_ms())

    async def poll(self, deadline_ms: float) -> None:
        """Join if need be, and take over what the group has assigned. deadline_ms: of the monotonic clock.

        While the member has partitions that it may keep, a join is not waited for: it goes on in the background.
        Raises what the group refuses with, and what listeners raise.
        """
        if self.in_listener:
            raise IllegalStateError(
                "a rebalance listener must not read records: it may seek, commit and query positions"
            )
        if self._polling is not None:
            await self._other_poll(deadline_ms)
            return
        self._polling = asyncio.get_running_loop().create_future()
        try:
            with self.polling():
                await self._poll(deadline_ms)
        finally:
            self._polling.set_result(None)
            self._polling = None

    async def _poll(self, deadline_ms: float) -> None:
        self._check_open()
        await self._end_step()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._due = True
            raise failure
        self._heartbeats.check()
        self._commits.in_background()
        if self._subscription.is_subscribed:
            await self._belong(deadline_ms)
        self._due = self._unsettled

    async def _other_poll(self, deadline_ms: float) -> None:
        """Another task polls already: what it does is done for all."""
        assert self._polling is not None
        left_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
        await asyncio.wait([self._polling], timeout=left_ms / 1000)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")

    @property
    def _unsettled(self) -> bool:
        if self._failure is not None or self._commits.are_due or self._step is not None:
            return True
        # A join under way says itself when it is done.
        return self._subscription.is_subscribed and not self._membership.settled and self._joining is None

    async def _belong(self, deadline_ms: float) -> None:
        membership = self._membership
        while not self.leaving and self._subscription.is_subscribed:
            if membership.state is State.FENCED:
                await self._finish(self._give_up())
                raise self._commits.fenced()
            if self._joining is None:
                if membership.state is State.ASSIGNED:
                    await self._finish(self._take_over())
                    continue
                topics = await self._topics()
                if topics != membership.joined_topics:
                    membership.rejoin("the subscription has changed")
                self._look_after_topics()
                if membership.settled:
                    return
                await self._finish(self._give_up())
                if membership.state is not State.PREPARING or self.leaving:
                    continue  # out meanwhile: what was kept is lost
                self._join(topics)
            if not await self._joined(deadline_ms):
                return
            self._check_open()

    async def _finish(self, step: Coroutine[Any, Any, None]) -> None:
        """Let partitions come or go. If this poll is cancelled, that goes on, and the next poll waits for its end."""
        self._step, self._due = asyncio.get_running_loop().create_task(step), True
        await self._end_step()

    async def _end_step(self) -> None:
        if (step := self._step) is not None:
            await asyncio.wait([step])
            self._step = None if self._step is step else self._step
            if step is not self._given_up:
                step.result()

    @property
    def in_listener(self) -> bool:
        """Whether the rebalance listener is who asks."""
        return self._step is not None and self._step is asyncio.current_task()

    async def _topics(self) -> frozenset[str]:
        """Those wanted now."""
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
        topics = self._cluster.metadata.topics.values()
        return [topic.name for topic in topics if not topic.error and not topic.is_internal]

    # ---- joining ---------------------------------------------------------------------------------------------

    def _join(self, topics: frozenset[str]) -> None:
        self._heartbeats.start()
        owned = tuple(self._subscription.assigned)
        self._joining = asyncio.get_running_loop().create_task(self._exchange_once(topics, owned))

    async def _exchange_once(self, topics: frozenset[str], owned: Collection[TopicPartition]) -> None:
        before = self._membership.generation
        try:
            await self._exchange.run(topics, owned)
        except Exception as error:
            self._failure = error
        finally:
            if self._joining is asyncio.current_task():
                self._joining = None
            if self._membership.generation != before:
                self._heartbeats.joined()
        self._news(None)

    async def _joined(self, deadline_ms: float) -> bool:
        """Wait for the join, if there is nothing to read meanwhile. Returns whether it is done. Raises its error."""
        task = self._joining
        if task is not None:
            left_s = 0.0 if self._subscription.assigned else max(0.0, deadline_ms - self._clock.monotonic_ms()) / 1000
            await asyncio.wait([task], timeout=left_s)
            if not task.done():
                return False
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return True

    async def _give_up(self, *, everything: bool = False) -> None:
        """What may not be kept while joining. All of it is done, whatever the listener does."""
        owned = tuple(self._subscription.assigned) if self._subscription.is_subscribed else ()
        if owned and self._settings.enable_auto_commit and self._membership.may_commit:
            await self._commits.quietly(self._settings.request_timeout_ms)
        giving = self._membership.prepare(owned, () if everything else self._subscription.topics)
        if giving.partitions:
            try:
                await self._tell("on_partitions_lost" if giving.lost else "on_partitions_revoked", giving.partitions)
            finally:
                self._subscription.revoke(giving.partitions)

    async def _take_over(self) -> None:
        membership, subscription = self._membership, self._subscription
        owned = tuple(subscription.assigned)
        fits = all(place.topic in subscription.topics for place in membership.assignment)
        taking = membership.take_over(owned, fits)
        if not taking.fits:
            return
        failure: BaseException | None = None
        if taking.revoked:
            try:
                await self._tell("on_partitions_revoked", taking.revoked)
            except Exception as error:
                failure = error
        if membership.state is State.STABLE:  # still, after what may have been a long listener
            subscription.assign_from_group(taking.partitions, held=taking.added)
            self._commits.schedule()
            try:
                await self._tell("on_partitions_assigned", taking.added)
            finally:
                subscription.release(taking.added)
        if failure is not None:
            raise failure

    async def _tell(self, what: str, partitions: Collection[TopicPartition]) -> None:
        listener = self._subscription.listener
        if what == "on_partitions_lost" and getattr(listener, what, None) is None:
            what = "on_partitions_revoked"  # as Kafka's interface does by default
        call = getattr(listener, what, None)
        if call is not None:
            found = call(list(partitions))
            if inspect.isawaitable(found):
                await found

    # ---- between polls ---------------------------------------------------------------------------------------

    def _news(self, failure: BaseException | None) -> None:
        if failure is not None:
            self._failure = failure
        was_due, self._due = self._due, self._due or self._unsettled
        if self._due and not was_due:
            self.on_needs_poll()

    def _metadata_changed(self) -> None:
        """The leader looks after the group's topics; a pattern may match more of them."""
        membership = self._membership
        if not self._subscription.is_subscribed or self._closed:
            return
        self._look_after_topics()
        if self._subscription.pattern is not None and membership.state is State.STABLE:
            before = membership.joined_topics
            if self._subscription.match(self._visible()) != before:
                membership.rejoin("the topics that match have changed")
        self._news(None)

    def _look_after_topics(self) -> None:
        membership = self._membership
        if membership.leads and membership.state is State.STABLE and self._exchange.has_changed():
            membership.rejoin("the group's topics have changed")

    async def _left_behind(self) -> None:
        log.warning(
            "group %s: no poll within max_poll_interval_ms=%d: leaving",
            self._group_id,
            self._settings.max_poll_interval_ms,
        )
        request = self._membership.leave("consumer poll timeout has expired.")
        await self._stop_joining()
        self._news(None)
        await self._say(request)

    async def _stop_joining(self) -> None:
        task, self._joining = self._joining, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # ---- leaving ---------------------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Leave, and want nothing. What is subscribed to while the group hears of it holds. Raises as `close`."""
        await self._leave(UNSUBSCRIBED, LEAVING_MS, self._subscription.unsubscribe)

    async def _leave(self, reason: str, timeout_ms: float, gave_up: Callable[[], None]) -> None:
        """Give everything up and be no member. A static member stays one until its session ends (KIP-345).

        gave_up is called before LeaveGroup is sent. Raises what a listener raises.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        failure = None
        self.leaving = True  # a poll of another task begins nothing anew
        try:
            async with asyncio.timeout(timeout_ms * (1 - FAREWELL) / 1000):
                failure = await self._give_everything_up()
        except TimeoutError:
            if self._step is not None:
                self._given_up = self._step
                self._step.cancel()
            log.warning("group %s: leaving without waiting for the listener", self._group_id)
        except Exception as error:
            failure = error
        finally:
            await self._go(reason, deadline_ms, gave_up)
        if failure is not None:
            raise failure

    async def _go(self, reason: str, deadline_ms: float, gave_up: Callable[[], None]) -> None:
        """Be no member any more, wherever this is cancelled."""
        try:
            await self._stop_joining()
        finally:
            request = self._membership.leave(reason)
            self._failure = None
            self._due = True
            self._matched = None
            self.leaving = False  # or no poll would ever join again
            gave_up()
            await self._say(request, deadline_ms - self._clock.monotonic_ms())

    async def _give_everything_up(self) -> Exception | None:
        """Once the step that a cancelled poll has left is done. Returns what its listener raised.

        Where another task does so already, the listener is called once, and this waits for that.
        """
        if self._leaver is not None:
            who, done = self._leaver
            if who is not asyncio.current_task():  # but the listener itself, which closes the consumer
                await asyncio.wait([done])
            return None
        done = asyncio.get_running_loop().create_future()
        self._leaver = asyncio.current_task(), done
        try:
            return await self._give_everything_up_alone()
        finally:
            self._leaver = None
            done.set_result(None)

    async def _give_everything_up_alone(self) -> Exception | None:
        failure = None
        if not self.in_listener:
            try:
                await self._end_step()
            except Exception as error:
                failure = error
        await self._give_up(everything=True)
        return failure

    async def _say(self, request: Any, timeout_ms: float = LEAVING_MS) -> None:
        """Tell the coordinator that the member goes, once. If it does not hear, the session ends by itself."""
        if request is None:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._cluster.ask(self._commits.connection, request, timeout_ms=timeout_ms)
        except Exception as error:
            if not is_retriable(error) and not isinstance(error, TimeoutError):
                log.warning("group %s: leaving: %s", self._group_id, error)

    async def close(self, timeout_ms: float = LEAVING_MS) -> None:
        """Commit if that was asked for, and leave; in that time. Idempotent. Raises what a listener raises."""
        if self._closed:
            return
        self._closed = True
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._commits.close()
        if self._settings.enable_auto_commit and not self._subscription.is_subscribed:
            await self._commits.quietly(timeout_ms)
        try:
            left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            await self._leave("the consumer is being closed", left_ms, self.on_needs_poll)
        finally:
            self._heartbeats.stop()
            self._commits.stop()
            self._cluster.on_metadata.remove(self._metadata_changed)
