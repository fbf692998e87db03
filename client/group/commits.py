"""The commits of one member: those it is asked for, and with enable_auto_commit those that come by themselves.

The rule: a commit carries the member and generation of the moment in which it was asked for, and is refused already
here where those may not commit, or where a partition is not the member's. What is committed by itself is what was given
before the poll; a failure is logged.
Source: Kafka's ConsumerCoordinator; KIP-447.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from ...protocol.errors import ErrorCode
from ..errors import CommitFailedError, FencedInstanceIdError, RebalanceInProgressError
from ..net.cluster import Cluster
from ..settings import ConsumerSettings
from ..values import ConsumerGroupMetadata, TopicPartition
from .membership import Membership, Stamp, State
from .offsets import Committed, GroupOffsets, Offsets
from .subscription import Subscription

log = logging.getLogger("fencepost.client")


class GroupCommits:
    """connection, stable_now: those of GroupOffsets, for these alone.

    news is called when a poll has something to do: a commit is due, or one was refused.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        membership: Membership,
        news: Callable[[BaseException | None], None],
    ) -> None:
        assert settings.group_id is not None
        self._settings = settings
        self._subscription = subscription
        self._membership = membership
        self._news = news
        self._group_id = settings.group_id
        self._offsets = GroupOffsets(cluster, settings.group_id)
        self.connection = self._offsets.connection
        self.stable_now = self._offsets.stable_now
        self._timer: asyncio.TimerHandle | None = None
        self._committing: asyncio.Task[None] | None = None
        self._closed = False

    def metadata(self) -> ConsumerGroupMetadata:
        """The member and generation whose partitions these are."""
        if self._subscription.is_subscribed:
            return self._membership.applied
        return ConsumerGroupMetadata(self._group_id, group_instance_id=self._settings.group_instance_id)

    async def commit(self, offsets: Offsets | None = None, *, timeout_ms: float | None = None) -> None:
        """By default, all positions. Tried again until the timeout, always for the generation of this moment.

        Raises CommitFailedError when the member is out or a partition is not its own,
        RebalanceInProgressError while it is joining, and the like.
        """
        wanted = self._subscription.positions() if offsets is None else offsets
        timeout_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        member = self.metadata()
        if self._subscription.is_subscribed:
            self._check()
            self._check_owned(wanted)
        stamp = Stamp(member.generation, member.member_id)
        assigned = self._subscription.assigned
        states = [(state, state.jumps) for tp in wanted if (state := assigned.get(tp)) is not None]
        await self._offsets.commit(
            wanted, member, timeout_ms=timeout_ms, refused=lambda code: self._refused(code, stamp)
        )
        for state, jumps in states:
            if state.jumps == jumps:
                state.note_committed(wanted[state.tp].offset)

    def _check(self) -> None:
        membership = self._membership
        if membership.may_commit:
            return
        if membership.state is State.FENCED:
            raise self.fenced()
        if membership.state is State.UNJOINED or membership.generation < 0:
            raise CommitFailedError(
                f"this consumer is not a member of group {self._group_id}: others may own its partitions",
                code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
        raise RebalanceInProgressError(
            f"group {self._group_id} is rebalancing: poll, then commit what is still assigned"
        )

    def _check_owned(self, offsets: Iterable[TopicPartition]) -> None:
        """The broker knows the member and not what it owns: of what it gave up, a new owner's offsets would go back."""
        gone = [str(tp) for tp in offsets if tp not in self._subscription.assigned]
        if gone:
            raise CommitFailedError(f"not assigned to this consumer, or not any more: {', '.join(sorted(gone))}")

    def fenced(self) -> FencedInstanceIdError:
        """What is raised once another member has this one's group_instance_id."""
        instance_id = self._settings.group_instance_id
        return FencedInstanceIdError(
            f"another member of group {self._group_id} has taken group_instance_id {instance_id}"
        )

    def _refused(self, code: ErrorCode, stamp: Stamp) -> None:
        if stamp.generation >= 0:
            self._membership.on_commit(code, stamp)
            self._news(None)

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        *,
        require_stable: bool = True,
        timeout_ms: float | None = None,
    ) -> Committed:
        """None where nothing was committed. Waits for transactions that hold offsets, up to the timeout."""
        timeout_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return await self._offsets.committed(partitions, timeout_ms=timeout_ms, require_stable=require_stable)

    # ---- by themselves ---------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """The next one, if one is wanted and none is on its way."""
        if self._settings.enable_auto_commit and self._timer is None and not self._closed:
            seconds = self._settings.auto_commit_interval_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._interval_is_over)

    def _interval_is_over(self) -> None:
        self._timer = None
        self._news(None)

    @property
    def are_due(self) -> bool:
        """Whether a poll is to begin one."""
        return self._settings.enable_auto_commit and self._timer is None

    def in_background(self) -> None:
        """What the application was given before this poll, if the interval is over."""
        if not self.are_due:
            return
        self.schedule()
        may = self._membership.may_commit or not self._subscription.is_subscribed
        positions = self._subscription.positions()  # of this moment: what this poll gives is not done yet
        if may and positions and (self._committing is None or self._committing.done()):
            self._committing = asyncio.get_running_loop().create_task(
                self.quietly(self._settings.default_api_timeout_ms, positions)
            )

    async def quietly(self, timeout_ms: float, offsets: Offsets | None = None) -> None:
        """As commit; a failure is logged."""
        try:
            await self.commit(offsets, timeout_ms=timeout_ms)
        except Exception as error:
            log.warning("group %s: auto-commit failed: %s", self._group_id, error)

    def close(self) -> None:
        """None begins by itself any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def stop(self) -> None:
        """What began by itself is not waited for."""
        if self._committing is not None:
            self._committing.cancel()
