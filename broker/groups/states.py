"""The states of a classic consumer group, and what each event does in each of them, as one table. Pure.

Each row is an event, each column a state. An entry is either what to do, or the error to answer. Questions that are not
events, such as which offsets may expire, look at the state itself.

Source: Kafka's ClassicGroup and GroupMetadataManager.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum

from ...protocol.errors import ErrorCode


class State(IntEnum):
    """The state of a group. `shown`: its name for clients."""

    EMPTY = 0
    PREPARING_REBALANCE = 1
    COMPLETING_REBALANCE = 2
    STABLE = 3
    DEAD = 4

    @property
    def shown(self) -> str:
        return _SHOWN[self]


_SHOWN = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")

MAY_FOLLOW: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE, State.STABLE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}
"""The states that each may go to."""


class Event(Enum):
    """What can happen to a group."""

    JOIN = "somebody who is no member yet joins"
    JOIN_AGAIN = "a member joins again"
    JOIN_RETURNING = "a static member joins without the id that it had"
    SYNC = "a member asks for its assignment"
    HEARTBEAT = "a member sends a heartbeat"
    COMMIT = "a member commits offsets"
    COMMIT_IN_TRANSACTION = "a member commits offsets in a transaction"
    MEMBER_GONE = "a member left or was given up"
    NEWCOMER_GONE = "somebody about to be a member left or was given up"
    JOIN_TIMEOUT = "the time for joining is over"
    SYNC_TIMEOUT = "the time for asking for assignments is over"
    DELETE = "an admin deletes the group"


class Step(Enum):
    """What a group does at an event."""

    NOTHING = "nothing"
    ADMIT = "take the member in, and rebalance or go on with that"
    AWAIT_JOIN = "delay the answer until all members have joined"
    REPEAT_OR_REBALANCE = "answer again with the current generation; rebalance if the member changed"
    ANSWER_OR_REBALANCE = "answer with the current generation; rebalance if the member changed or leads"
    REPLACE = "give the place of the member to its successor"
    REPLACE_AND_REBALANCE = "the same, and begin a rebalance, because the leader may have got the old id"
    REPLACE_IN_PLACE = "the same, and keep generation and assignment if the protocol stays"
    AWAIT_ASSIGNMENT = "delay the answer until the leader sends the assignments"
    ANSWER_ASSIGNMENT = "answer with the assignment"
    TOUCH = "the session timeout is restarted"
    COMPLETE_IF_ALL = "end the joining if everybody has joined"
    REBALANCE = "have everybody join again"
    COMPLETE = "end the joining with those who have joined"
    DROP_SILENT = "drop who never asked for its assignment, and rebalance"


_GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE  # clients look for the coordinator again, and find a new group
_UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
_FULL = ErrorCode.NON_EMPTY_GROUP
_NO_GROUP = ErrorCode.GROUP_ID_NOT_FOUND

TABLE: Mapping[Event, tuple[Step | ErrorCode, ...]] = {
    # Empty, PreparingRebalance, CompletingRebalance, Stable, Dead
    Event.JOIN: (Step.ADMIT, Step.ADMIT, Step.ADMIT, Step.ADMIT, _GONE),
    Event.JOIN_AGAIN: (_UNKNOWN, Step.AWAIT_JOIN, Step.REPEAT_OR_REBALANCE, Step.ANSWER_OR_REBALANCE, _GONE),
    Event.JOIN_RETURNING: (_UNKNOWN, Step.REPLACE, Step.REPLACE_AND_REBALANCE, Step.REPLACE_IN_PLACE, _GONE),
    Event.SYNC: (_UNKNOWN, _REBALANCING, Step.AWAIT_ASSIGNMENT, Step.ANSWER_ASSIGNMENT, _GONE),
    Event.HEARTBEAT: (_UNKNOWN, _REBALANCING, Step.TOUCH, Step.TOUCH, _GONE),
    Event.COMMIT: (Step.NOTHING, Step.TOUCH, _REBALANCING, Step.TOUCH, _GONE),
    Event.COMMIT_IN_TRANSACTION: (Step.NOTHING, Step.NOTHING, Step.NOTHING, Step.NOTHING, _GONE),
    Event.MEMBER_GONE: (Step.NOTHING, Step.COMPLETE_IF_ALL, Step.REBALANCE, Step.REBALANCE, Step.NOTHING),
    Event.NEWCOMER_GONE: (Step.NOTHING, Step.COMPLETE_IF_ALL, Step.NOTHING, Step.NOTHING, Step.NOTHING),
    Event.JOIN_TIMEOUT: (Step.NOTHING, Step.COMPLETE, Step.NOTHING, Step.NOTHING, Step.NOTHING),
    Event.SYNC_TIMEOUT: (Step.NOTHING, Step.NOTHING, Step.DROP_SILENT, Step.DROP_SILENT, Step.NOTHING),
    Event.DELETE: (Step.NOTHING, _FULL, _FULL, _FULL, _NO_GROUP),
}
