"""Which requests a consumer group accepts, by their member id, instance id and epoch. Pure.

The rules: a commit is refused if its epoch was never given out, or is older than the assignment of one of its
partitions. A fetch of offsets needs the member's present epoch. So a member that was removed because it seemed dead
commits nothing any more. Members of the classic protocol get the error codes of that protocol.
Sources: Kafka's ConsumerGroup.validateOffsetCommit, validateOffsetFetch; KIP-848, KIP-1251.
"""

from collections.abc import Collection

from ....protocol.errors import ErrorCode, KafkaError
from ..targets import TopicId
from .roster import Roster

WITH_EPOCHS_SINCE = 9  # the first version of OffsetCommit that members of the newer protocol may use


class FencedRoster(Roster):
    """The part of a consumer group that accepts or refuses requests by their member id, instance id and epoch."""

    def _no_member(self, member_id: str) -> str:
        """Return the error text for a member id that the group does not have."""
        return f"Member {member_id} is not a member of group {self.group_id}."

    def _check_owner(self, member_id: str, instance_id: str) -> None:
        """Raise UNKNOWN_MEMBER_ID if no member has this instance id, FENCED_INSTANCE_ID if another has it."""
        owner = self.static.get(instance_id)
        if owner is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if owner != member_id:
            text = f"Static member {member_id} with instance id {instance_id} was fenced by member {owner}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, text)

    # ---- offsets ---------------------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        partitions: Collection[tuple[TopicId, int]],
        *,
        version: int | None,
    ) -> None:
        """Check that a member may commit offsets of these partitions. Raises KafkaError if not.

        version: of OffsetCommit; None for TxnOffsetCommit. An epoch older than the member's is accepted if each
        partition was already assigned to the member at that epoch (KIP-1251). A commit without an epoch is accepted
        while the group has no members, and a TxnOffsetCommit without member and epoch always.
        """
        if epoch < 0 and not self.subscriptions:
            return
        if version is None and epoch == -1 and not member_id and instance_id is None:
            return
        subscription = self.subscriptions.get(member_id)
        if subscription is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, self._no_member(member_id))
        is_classic = subscription.classic is not None
        if version is not None and not is_classic and version < WITH_EPOCHS_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "members of this group commit with OffsetCommit v9 or newer"
            )
        stale = KafkaError(
            ErrorCode.ILLEGAL_GENERATION if is_classic or version is None else ErrorCode.STALE_MEMBER_EPOCH
        )
        current = self.current(member_id)
        if epoch == current.epoch:
            return
        if epoch > current.epoch:
            raise stale
        for topic_id, partition in partitions:
            since = current.assigned.get(topic_id, {}).get(partition)
            if since is None:
                since = current.revoking.get(topic_id, {}).get(partition)
            if since is None or epoch < since:
                raise stale

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member may fetch offsets with this epoch. A fetch without member and epoch is always accepted.

        Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, and for a classic member ILLEGAL_GENERATION.
        """
        if member_id is None and epoch < 0:
            return
        subscription = self.subscriptions.get(member_id or "")
        if member_id is None or subscription is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, self._no_member(str(member_id)))
        if epoch != self.current(member_id).epoch:
            is_classic = subscription.classic is not None
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH)
