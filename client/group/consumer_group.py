"""A member of a group whose broker assigns the partitions (KIP-848): heartbeats carry everything, polls apply it.

The rule: what is to be given up is given up, and reported, before anything is added; the listener runs within polls.
Source: Kafka's AsyncKafkaConsumer, ConsumerMembershipManager; KIP-848.
"""

import asyncio
import base64
import logging
from collections.abc import Collection

from ...protocol.messages.cluster import MetadataRequest
from ..errors import KafkaError
from ..net.cluster import Cluster
from ..net.environment import Environment
from ..settings import ConsumerSettings
from ..values import TopicPartition
from .consumer_membership import ConsumerMembership, ConsumerTerms, State
from .group import Group
from .subscription import Subscription

log = logging.getLogger("fencepost.client")


class ConsumerGroup(Group):
    """A member of a group with the newer protocol (KIP-848), whose heartbeats bring the assignment."""

    def __init__(
        self, cluster: Cluster, settings: ConsumerSettings, subscription: Subscription, environment: Environment
    ) -> None:
        terms = ConsumerTerms(
            settings.group_id or "",
            settings.group_instance_id,
            settings.max_poll_interval_ms,
            settings.client_rack or None,
            settings.group_remote_assignor,
        )
        self._environment = environment
        self._membership = ConsumerMembership(terms, self._new_id())
        self._heard = asyncio.Event()
        self._listener_called = False  # whether the listener was called since it joined
        self._finding: asyncio.Task[None] | None = None  # looks up the names of assigned topics
        super().__init__(cluster, settings, subscription, environment, self._membership)
        self._leaves_over = "group", self._group_id  # the connection of heartbeats, so that none comes after it

    def _new_id(self) -> str:
        return base64.urlsafe_b64encode(self._environment.rng.bytes(16)).rstrip(b"=").decode()

    # ---- polls -----------------------------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        return False

    @property
    def needs_poll(self) -> bool:
        """Return whether a poll has work to do."""
        if super().needs_poll:
            return True
        return not self.leaving and self._subscription.expression != self._membership.expression

    @property
    def _unsettled(self) -> bool:
        return super()._unsettled or self._has_changed

    @property
    def _has_changed(self) -> bool:
        """Return whether the subscription differs from what the group knows."""
        subscription, membership = self._subscription, self._membership
        if not subscription.is_subscribed or not membership.in_generation:
            return False
        return subscription.topics != membership.joined_topics or subscription.expression != membership.expression

    async def _belong(self, deadline_ms: float) -> None:
        """Apply assignments and join again until the member is stable or the deadline is over. Raises
        FencedInstanceIdError if another member has taken its group_instance_id.
        """
        membership = self._membership
        while not self.leaving and self._subscription.is_subscribed:
            if membership.is_fenced:
                await self._run_step(self._give_up())
                raise self._commits.fenced()
            unsubscribed = membership.subscribe(await self._topics(), self._subscription.expression)
            if unsubscribed:
                await self._run_step(self._revoke(unsubscribed))
            elif membership.state is State.UNJOINED:
                await self._run_step(self._give_up())
                if membership.state is State.UNJOINED and not self.leaving and self._subscription.is_subscribed:
                    membership.join(self._new_id())
                    self._listener_called = False
                    self._heartbeats.start()
                    self._heartbeats.hurry()
            elif not membership.settled:
                await self._run_step(self._reconcile())
            else:
                self._hurry()
                if not await self._wait_for_group(deadline_ms):
                    return
                self._check_open()

    async def _wait_for_group(self, deadline_ms: float) -> bool:
        """Wait until deadline_ms while the member joins and has no partitions. Returns whether a heartbeat brought
        news. Raises the error with which a heartbeat has failed.
        """
        if self._subscription.assigned or self._membership.state not in (State.JOINING, State.RECONCILING):
            return False
        self._heard.clear()
        left_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._heard.wait()
        except TimeoutError:
            return False
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return True

    async def _reconcile(self) -> None:
        """Revoke and add partitions until they are those that the group assigned. Raises the first error of the
        listener, after that.
        """
        membership, subscription = self._membership, self._subscription
        failure: Exception | None = None
        changed = not self._listener_called
        while membership.state is State.RECONCILING and not membership.settled:
            plan = membership.plan(self._cluster.metadata.topic_name)
            if plan.unknown and self._finding is None:
                self._finding = asyncio.get_running_loop().create_task(self._find_names(plan.unknown))
            if plan.revoked:
                try:
                    await self._revoke(plan.revoked)
                except Exception as error:
                    failure = failure or error
                changed = True
                continue  # meanwhile there may be a newer assignment
            membership.take_over(plan)
            self._hurry()
            if self._membership.state is State.RECONCILING:
                break  # what is added comes later
            subscription.assign_from_group(plan.partitions, held=plan.added)
            subscription.has_assignment = bool(plan.partitions) or membership.may_be_empty
            self._commits.schedule()
            self._listener_called = True
            try:
                if plan.added or changed:
                    await self._call_listener("on_partitions_assigned", plan.added)
            except Exception as error:
                failure = failure or error
            finally:
                subscription.release(plan.added)
        if failure is not None:
            raise failure

    async def _give_up(self, *, everything: bool = True) -> None:
        """Revoke all partitions that the group has assigned to this consumer. With assign() there are none. everything:
        has no effect in this protocol.
        """
        if self._subscription.is_subscribed and self._subscription.assigned:
            await self._revoke(tuple(self._subscription.assigned))

    async def _revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Commit if automatic commits are enabled, call the listener, and remove these partitions, even if the
        listener fails.
        """
        if self._settings.enable_auto_commit and self._membership.may_commit:
            await self._commits.commit_or_log(self._settings.request_timeout_ms)
        try:
            what = "on_partitions_lost" if self._membership.is_out else "on_partitions_revoked"
            await self._call_listener(what, partitions)
        finally:
            self._subscription.revoke(partitions)
            self._membership.give_up(partitions)

    def _hurry(self) -> None:
        """Send the next heartbeat now, if the member has something to report."""
        if self._membership.hurries:
            self._heartbeats.hurry()

    # ---- between polls ---------------------------------------------------------------------------------------

    def _news(self, failure: BaseException | None) -> None:
        """Wake a waiting poll after a heartbeat's response, and send the next heartbeat at once if needed."""
        self._heard.set()
        self._hurry()
        super()._news(failure)

    def _metadata_changed(self) -> None:
        """Note that names of assigned topics may be known now, or that a pattern may match other topics."""
        if not self._subscription.is_subscribed or self._closed:
            return
        self._membership.note_names()
        if self._subscription.pattern is not None and self._membership.in_generation:
            self._subscription.match(self._visible())
        self._news(None)

    async def _find_names(self, unknown: Collection[bytes]) -> None:
        """Ask for the names of topics by their ids, until all assigned ones are known."""
        attempt = 0
        try:
            while unknown:
                request = MetadataRequest(
                    topics=[MetadataRequest.Topic(topic_id=topic_id, name=None) for topic_id in unknown],
                    allow_auto_topic_creation=False,
                )
                try:
                    response = await self._cluster.ask("any", request)
                    names = [topic.name for topic in response.topics if topic.name and not topic.error_code]
                    self._cluster.watch_topics(names)
                    if names:
                        await self._cluster.refresh(names)
                except KafkaError as error:
                    log.info("group %s: the names of its topics are not known yet: %s", self._group_id, error)
                unknown = self._membership.unknown_topics(self._cluster.metadata.topic_name)
                delay_ms = self._cluster.backoff.delay_ms(attempt, self._environment.rng.random())
                attempt += 1
                if unknown:
                    await asyncio.sleep(delay_ms / 1000)
        finally:
            self._finding = None

    async def _stop_joining(self) -> None:
        """Cancel the search for names of assigned topics, and wait until its task has ended."""
        task, self._finding = self._finding, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
