"""The states of a consumer group and of its members, and what a member's heartbeat does in each: one table. Pure.

A row is what the heartbeat shows, a column the state of the member. Only ADVANCE gives partitions to a member, as
reconciling.py says. Source: KIP-848; Kafka's ConsumerGroup and CurrentAssignmentBuilder.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum

from .records import MemberState


class GroupState(IntEnum):
    """The state of a group, which follows from its members and epochs. `shown`: its name for clients."""

    EMPTY = 0  # it has no members
    ASSIGNING = 1  # the target assignment is of an older epoch than the group
    RECONCILING = 2  # some member has not reached its target assignment yet
    STABLE = 3

    @property
    def shown(self) -> str:
        return self.name.capitalize()


class Shows(Enum):
    """What a heartbeat shows about its member; if several apply, the first one counts."""

    GAVE_UP = "the member owns nothing any more of what it is to give up"
    OTHER_TARGET = "the target assignment is of another epoch than the member"
    OTHER_SUBSCRIPTION = "the member subscribes to something else now"
    NOTHING_NEW = "nothing of these"


class Step(Enum):
    """What happens to the member's current assignment."""

    KEEP = "it stays"
    DROP_UNSUBSCRIBED = "partitions of topics that the member does not subscribe to any more are to be given up"
    ADVANCE = "the next step to the target: first give up what is not in it, then get what is free of it"


TABLE: Mapping[Shows, tuple[Step, ...]] = {
    # STABLE, UNREVOKED, UNRELEASED
    Shows.GAVE_UP: (Step.ADVANCE, Step.ADVANCE, Step.ADVANCE),
    Shows.OTHER_TARGET: (Step.ADVANCE, Step.KEEP, Step.ADVANCE),
    Shows.OTHER_SUBSCRIPTION: (Step.DROP_UNSUBSCRIBED, Step.DROP_UNSUBSCRIBED, Step.ADVANCE),
    Shows.NOTHING_NEW: (Step.KEEP, Step.KEEP, Step.ADVANCE),
}


def step_of(state: MemberState, *, gave_up: bool, other_target: bool, other_subscription: bool) -> Step:
    """Return what a heartbeat does to the member's assignment, by TABLE. gave_up: whether the member owns none of
    the partitions any more that it has to give up.

    A member that has to give up partitions does that before it moves to another target.
    """
    if state is MemberState.UNREVOKED:
        shows = Shows.GAVE_UP if gave_up else Shows.OTHER_SUBSCRIPTION if other_subscription else Shows.NOTHING_NEW
    elif other_target:
        shows = Shows.OTHER_TARGET
    else:
        shows = Shows.OTHER_SUBSCRIPTION if other_subscription else Shows.NOTHING_NEW
    return TABLE[shows][state]
