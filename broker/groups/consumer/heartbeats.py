"""A heartbeat of a member of a consumer group, and the answer to it, as values. Pure."""

from typing import NamedTuple

from ...security.principals import Session
from .reconciling import Owned
from .records import Classic, Held

JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
"""Special epochs: the member joins; it leaves; it is static and leaves, but will come back."""

NO_TIMEOUT = -1


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat. A field that is None, or a timeout of NO_TIMEOUT, has not changed since the member's
    last heartbeat.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Owned | None = None
    client_id: str = ""
    client_host: str = ""
    classic: Classic | None = None  # of a member of the classic protocol, whose JoinGroup stands for a heartbeat
    user: Session | None = None  # the user whose access rights apply to the member

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat contains the rebalance timeout, the subscription and the owned partitions. The member
        then expects its whole assignment in the answer.
        """
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT and subscribes and self.owned is not None


class Answer(NamedTuple):
    """The answer to a heartbeat. assigned: the partitions that the member may read now; None if they have not
    changed.
    """

    member_id: str
    epoch: int
    assigned: Held | None = None
