"""The commits of one member: explicit ones, and automatic ones with enable_auto_commit.

The rule: a commit has the member and generation of the time of the call. It is refused here if the member may not
commit, or a partition is not assigned to it. An automatic commit contains the positions before the poll; its failure
is only logged.
Source: Kafka's ConsumerCoordinator; KIP-447.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ...effects.counts import list_text
from ...protocol.errors import ErrorCode
from ..errors import CommitFailedError, FencedInstanceIdError, RebalanceInProgressError
from ..net.cluster import Cluster
from ..settings import ConsumerSettings
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .consumer_membership import ConsumerMembership
from .membership import Membership, Stamp
from .offsets import Committed, GroupOffsets, Offsets
from .subscription import PartitionState, Subscription

log = logging.getLogger("fencepost.client")


class GroupCommits:
    """Commits of one group member: those of the application, and automatic ones.

    connection, stable_now: those of GroupOffsets. news: called when a poll has work to do, because a commit is due or
    was refused.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        membership: Membership | ConsumerMembership,
        news: Callable[[BaseException | None], None],
    ) -> None:
        assert settings.group_id is not None
        self._settings = settings
        self._subscription = subscription
        self._membership = membership
        self._news = news
        self._group_id = settings.group_id
        self._offsets = GroupOffsets(cluster, settings.group_id, membership.member_for_reading)
        self.connection = self._offsets.connection
        self.stable_now = self._offsets.stable_now
        self._timer: asyncio.TimerHandle | None = None
        self._committing: asyncio.Task[None] | None = None
        self._closed = False
        self._unfinished: Mapping[TopicPartition, int] = {}
        # what a commit that is sent is awaited in, where it is traced
        self.around: Callable[[Iterable[TopicPartition], Awaitable[None]], Awaitable[None]] | None = None

    def metadata(self) -> ConsumerGroupMetadata:
        """Return the member and generation that own the assigned partitions."""
        if self._subscription.is_subscribed:
            return self._membership.applied
        return ConsumerGroupMetadata(self._group_id, group_instance_id=self._settings.group_instance_id)

    async def commit(self, offsets: Offsets | None = None, *, timeout_ms: float | None = None) -> None:
        """Commit these offsets, by default all positions. Retries until the timeout, always for the current
        generation.

        Raises CommitFailedError if the member is out of the group or a partition is not assigned to it,
        RebalanceInProgressError while it is joining, and others.
        """
        wanted = self._subscription.positions() if offsets is None else offsets
        timeout_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        member = self.metadata()
        if self._subscription.is_subscribed:
            if not wanted and member.generation < 0 and not self._membership.is_fenced:
                return  # it has not joined yet, so it has read nothing
            self._check()
            self._check_owned(wanted)
        stamp = Stamp(member.generation, member.member_id)
        assigned = self._subscription.assigned
        states = [(state, state.jumps) for tp in wanted if (state := assigned.get(tp)) is not None]
        newest = None
        if isinstance(self._membership, ConsumerMembership) and stamp.generation >= 0:
            newest = self._newest(states)
            member = newest()
        work = self._offsets.commit(
            wanted, member, timeout_ms=timeout_ms, newest=newest, refused=lambda code: self._note_refusal(code, stamp)
        )
        await (work if self.around is None else self.around(wanted, work))
        for state, jumps in states:
            if state.jumps == jumps:
                state.note_committed(wanted[state.tp].offset)

    def _newest(self, states: list[tuple[PartitionState, int]]) -> Callable[[], ConsumerGroupMetadata]:
        """Return a function that returns the member with its newest epoch, to be called at each attempt, because the
        broker refuses an older epoch (STALE_MEMBER_EPOCH). It raises CommitFailedError once the member is out of the
        group, or a partition is no longer assigned.
        """
        membership, since = self._membership, self._membership.stamp

        def member() -> ConsumerGroupMetadata:
            """Return member and generation to commit with now. Raises CommitFailedError if the membership has changed
            since the commit began, or one of the partitions is no longer assigned.
            """
            if membership.stamp != since:
                raise self._out()
            lost = [state.tp for state, _ in states if not self._subscription.is_current(state)]
            self._check_owned(lost)
            return membership.metadata_for([state.tp for state, _ in states])

        return member

    def _out(self) -> CommitFailedError:
        """Return the error of a commit by a consumer that is no longer a member."""
        return CommitFailedError(
            f"this consumer is not a member of group {self._group_id}: others may own its partitions",
            code=ErrorCode.UNKNOWN_MEMBER_ID,
        )

    def _check(self) -> None:
        """Raise CommitFailedError, FencedInstanceIdError or RebalanceInProgressError if the member may not commit."""
        membership = self._membership
        if membership.may_commit:
            return
        if membership.is_fenced:
            raise self.fenced()
        if membership.is_out:
            raise self._out()
        raise RebalanceInProgressError(
            f"group {self._group_id} is rebalancing: poll, then commit what is still assigned"
        )

    def _check_owned(self, offsets: Iterable[TopicPartition]) -> None:
        """Raise CommitFailedError unless all partitions are assigned: the broker does not check it, and a commit could
        set back another owner's offset.
        """
        foreign = [str(tp) for tp in offsets if tp not in self._subscription.assigned]
        if foreign:
            raise CommitFailedError(f"these partitions are not assigned to this consumer: {', '.join(sorted(foreign))}")

    def fenced(self) -> FencedInstanceIdError:
        """Return the error for a member that was replaced by another with its group_instance_id."""
        instance_id = self._settings.group_instance_id
        return FencedInstanceIdError(
            f"another member of group {self._group_id} has taken group_instance_id {instance_id}"
        )

    def _note_refusal(self, code: ErrorCode, stamp: Stamp) -> None:
        """Apply a refused commit to the membership, and ask for a poll. stamp: the membership that committed."""
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
        """Return committed offsets, None for a partition without one. require_stable: wait for open transactions."""
        timeout_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return await self._offsets.committed(partitions, timeout_ms=timeout_ms, require_stable=require_stable)

    # ---- automatic commits -----------------------------------------------------------------------------------

    def schedule(self) -> None:
        """If enable_auto_commit is on, start the timer of the next automatic commit, unless it runs."""
        if self._settings.enable_auto_commit and self._timer is None and not self._closed:
            seconds = self._settings.auto_commit_interval_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._end_interval)

    def _end_interval(self) -> None:
        """Wake the poll that makes the next automatic commit, because the interval has ended. Called by the timer."""
        self._timer = None
        self._news(None)

    @property
    def are_due(self) -> bool:
        """Return whether a poll must start an automatic commit: it is enabled, and its interval is over."""
        return self._settings.enable_auto_commit and self._timer is None

    def commit_if_due(self) -> None:
        """If the interval is over, start a commit of the records returned before this poll."""
        if not self.are_due:
            return
        self.schedule()
        may = self._membership.may_commit or not self._subscription.is_subscribed
        positions = self._subscription.positions()  # now: records that this poll returns are not processed yet
        if may and positions and (self._committing is None or self._committing.done()):
            self._committing = asyncio.get_running_loop().create_task(
                self.commit_or_log(self._settings.default_api_timeout_ms, positions)
            )

    async def commit_or_log(self, timeout_ms: float, offsets: Offsets | None = None) -> None:
        """Commit these offsets, by default those of finished records; a failure is only logged."""
        if offsets is None:
            offsets = self._finished()
        try:
            await self.commit(offsets, timeout_ms=timeout_ms)
        except Exception as error:
            log.warning("group %s: auto-commit failed: %s", self._group_id, error)

    def _finished(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions, without records that the application may not have processed."""
        found = self._subscription.positions()
        for tp, first in self._unfinished.items():
            if tp in found and found[tp].offset > first:
                found[tp] = OffsetAndMetadata(first)
        return found

    def warn_unclosed(self) -> None:
        """If enable_auto_commit is on, warn which records were read and are not committed, because the consumer was
        never closed.
        """
        left = [
            f"{state.tp} from offset {max(0, state.committed_below)}"
            for state in self._subscription.assigned.values()
            if state.is_known and state.position > state.committed_below
        ]
        if left and self._settings.enable_auto_commit:
            log.warning(
                "group %s: the consumer was never closed: records since the last automatic commit are read again: %s",
                self._group_id,
                list_text(left, "partition"),
            )

    def close(self, unfinished: Mapping[TopicPartition, int]) -> None:
        """Start no more automatic commits than the last one, which leaves out the records from `unfinished` on (an
        offset for each partition).
        """
        self._unfinished = unfinished
        if unfinished and self._settings.enable_auto_commit:
            log.warning(
                "group %s: not committed, as the work on these records may not be done: %s",
                self._group_id,
                list_text([f"{tp} from offset {first}" for tp, first in unfinished.items()], "partition"),
            )
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def stop(self) -> None:
        """Cancel a running automatic commit."""
        if self._committing is not None:
            self._committing.cancel()
