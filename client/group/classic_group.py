"""A member of a group whose members assign the partitions: JoinGroup, and the leader's SyncGroup, within polls.

Source: Kafka's ConsumerCoordinator; KIP-62, KIP-429.
"""

import asyncio
from collections.abc import Collection

from ..assignors.assignors import assignors_of
from ..net.cluster import Cluster
from ..net.environment import Environment
from ..settings import ConsumerSettings
from ..values import TopicPartition
from .group import Group
from .joining import Joining
from .membership import Membership, State, Terms
from .subscription import Subscription


class ClassicGroup(Group):
    """A member of a group with the classic protocol: JoinGroup and SyncGroup."""

    def __init__(
        self, cluster: Cluster, settings: ConsumerSettings, subscription: Subscription, environment: Environment
    ) -> None:
        terms = Terms(
            settings.group_id or "",
            settings.group_instance_id,
            settings.session_timeout_ms,
            settings.max_poll_interval_ms,
            settings.client_rack or None,
        )
        self._membership = Membership(terms, assignors_of(settings.partition_assignment_strategy))
        super().__init__(cluster, settings, subscription, environment, self._membership)
        self._join_requests = Joining(cluster, settings, self._membership, environment)
        self._joining: asyncio.Task[None] | None = None

    @property
    def _is_busy(self) -> bool:
        return self._joining is not None

    async def _belong(self, deadline_ms: float) -> None:
        """Join and sync until the member has an assignment or the deadline is over. Raises FencedInstanceIdError if
        another member has taken its group_instance_id.
        """
        membership = self._membership
        while not self.leaving and self._subscription.is_subscribed:
            if membership.state is State.FENCED:
                await self._run_step(self._give_up())
                raise self._commits.fenced()
            if self._joining is None:
                if membership.state is State.ASSIGNED:
                    await self._run_step(self._take_over())
                    continue
                topics = await self._topics()
                if topics != membership.joined_topics:
                    membership.rejoin("the subscription has changed")
                self._check_group_topics()
                if membership.settled:
                    return
                await self._run_step(self._give_up())
                if membership.state is not State.PREPARING or self.leaving:
                    continue  # no longer a member: it has lost the partitions that it kept
                self._join(topics)
            if not await self._wait_for_join(deadline_ms):
                return
            self._check_open()

    # ---- joining ---------------------------------------------------------------------------------------------

    def _join(self, topics: frozenset[str]) -> None:
        """Start heartbeats, and join the group in a background task."""
        self._heartbeats.start()
        owned = tuple(self._subscription.assigned)
        self._joining = asyncio.get_running_loop().create_task(self._run_join(topics, owned))

    async def _run_join(self, topics: frozenset[str], owned: Collection[TopicPartition]) -> None:
        """Run one JoinGroup and SyncGroup as a background task. An error is kept for the next poll to raise."""
        before = self._membership.generation
        try:
            await self._join_requests.run(topics, owned)
        except Exception as error:
            self._failure = error
        finally:
            if self._joining is asyncio.current_task():
                self._joining = None
            if self._membership.generation != before:
                self._heartbeats.joined()
        self._news(None)

    async def _wait_for_join(self, deadline_ms: float) -> bool:
        """Wait for the join, unless there are partitions to read. Returns whether it is done. Raises its error."""
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
        """Revoke the partitions that must not be kept during a join, even if the listener fails. everything: revoke
        all.
        """
        owned = tuple(self._subscription.assigned) if self._subscription.is_subscribed else ()
        if owned and self._settings.enable_auto_commit and self._membership.may_commit:
            await self._commits.commit_or_log(self._settings.request_timeout_ms)
        giving = self._membership.prepare(owned, () if everything else self._subscription.topics)
        if giving.partitions:
            try:
                await self._call_listener(
                    "on_partitions_lost" if giving.lost else "on_partitions_revoked", giving.partitions
                )
            finally:
                self._subscription.revoke(giving.partitions)

    async def _take_over(self) -> None:
        """Apply the new assignment and call the rebalance listener. Raises at last what the listener raised."""
        membership, subscription = self._membership, self._subscription
        owned = tuple(subscription.assigned)
        fits = all(place.topic in subscription.topics for place in membership.assignment)
        taking = membership.take_over(owned, fits)
        if not taking.fits:
            return
        failure: BaseException | None = None
        if taking.revoked:
            try:
                await self._call_listener("on_partitions_revoked", taking.revoked)
            except Exception as error:
                failure = error
        if membership.state is State.STABLE:  # a listener may have taken long
            subscription.assign_from_group(taking.partitions, held=taking.added)
            self._commits.schedule()
            try:
                await self._call_listener("on_partitions_assigned", taking.added)
            finally:
                subscription.release(taking.added)
        if failure is not None:
            raise failure

    def _metadata_changed(self) -> None:
        """Join again if this member is the leader and the group's topics have changed, or if its pattern matches other
        topics.
        """
        membership = self._membership
        if not self._subscription.is_subscribed or self._closed:
            return
        self._check_group_topics()
        if self._subscription.pattern is not None and membership.state is State.STABLE:
            before = membership.joined_topics
            if self._subscription.match(self._visible()) != before:
                membership.rejoin("the topics that match have changed")
        self._news(None)

    def _check_group_topics(self) -> None:
        """As the group's leader, join again if the partitions of its topics have changed."""
        membership = self._membership
        if membership.leads and membership.state is State.STABLE and self._join_requests.has_changed():
            membership.rejoin("the group's topics have changed")

    async def _stop_joining(self) -> None:
        """Cancel a running join, and wait until its task has ended."""
        task, self._joining = self._joining, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
