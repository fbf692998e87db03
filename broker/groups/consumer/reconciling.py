"""How a member gets from its current to its target assignment, one heartbeat at a time. Pure.

The rule: revocation before assignment. A partition is in the assignment of a member, or pending revocation, until the
member itself reports that it owns it no more; only then may it be in that of another. While a member has to give up
anything it stays in its epoch and gets nothing. It gets partitions that are not free yet with a later heartbeat. Each
partition keeps the epoch in which the member got it, which decides whether a commit is accepted (KIP-1251).
Source: KIP-848; Kafka's CurrentAssignmentBuilder.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ..targets import Partitions, TopicId
from .records import Current, Held, MemberState
from .states import Step, step_of

Owned = Mapping[TopicId, Collection[int]]


class Goal(NamedTuple):
    """The target that a member has to reach.

    topics: the ids of the topics it subscribes to. is_free: returns whether no other member has a partition.
    """

    epoch: int
    target: Partitions
    topics: Collection[TopicId]
    is_free: Callable[[TopicId, int], bool]


def reconcile(current: Current, goal: Goal, owned: Owned | None, *, other_subscription: bool) -> Current:
    """Return the member's current assignment after a heartbeat. owned: the partitions that it reports as its own; None
    if it reports nothing about them.
    """
    step = step_of(
        current.state,
        gave_up=not owns_any(owned, current.revoking),
        other_target=current.epoch != goal.epoch,
        other_subscription=other_subscription,
    )
    if step is Step.KEEP:
        return current
    if step is Step.DROP_UNSUBSCRIBED:
        return _without_unsubscribed(current, goal.topics, owned)
    return _advance(current, goal, owned)


def owns_any(owned: Owned | None, held: Held) -> bool:
    """Return whether the member may still own a partition in `held`. If it does not report which partitions it owns, it
    may.
    """
    if owned is None:
        return True
    return any(partition in held.get(topic_id, ()) for topic_id, parts in owned.items() for partition in parts)


def owns_only(owned: Owned | None, held: Held) -> bool:
    """Return whether the member reports which partitions it owns, and all of them are in `held`."""
    if owned is None:
        return False
    return all(
        topic_id in held and all(partition in held[topic_id] for partition in parts)
        for topic_id, parts in owned.items()
    )


def _without_unsubscribed(current: Current, topics: Collection[TopicId], owned: Owned | None) -> Current:
    """Return the member's assignment without the partitions of topics to which it no longer subscribes.

    If it may still own some of them, it has to give them up first (UNREVOKED).
    """
    kept = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id in topics}
    if len(kept) == len(current.assigned):
        return current
    dropped = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in topics}
    revoking = merge(current.revoking, dropped)
    if owns_any(owned, revoking):
        return Current(current.epoch, current.epoch, MemberState.UNREVOKED, kept, revoking)
    return Current(current.epoch, current.epoch, current.state, kept, current.revoking)


def _advance(current: Current, goal: Goal, owned: Owned | None) -> Current:
    """Move the member one step towards its target. It first gives up what is not in the target; then it gets the
    target's epoch and those partitions that are free.
    """
    assigned: dict[TopicId, dict[int, int]] = {}
    revoking: dict[TopicId, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        wanted = goal.target.get(topic_id, frozenset()) if topic_id in goal.topics else frozenset()
        for partition, epoch in epochs.items():
            (assigned if partition in wanted else revoking).setdefault(topic_id, {})[partition] = epoch
    if revoking and owns_any(owned, revoking):
        return Current(current.epoch, current.epoch, MemberState.UNREVOKED, assigned, revoking)
    waits = False
    for topic_id, partitions in goal.target.items():
        if topic_id not in goal.topics:
            continue
        has, was_revoking = current.assigned.get(topic_id, {}), current.revoking.get(topic_id, {})
        for partition in sorted(partitions):
            if partition in has:
                continue
            if partition in was_revoking or goal.is_free(topic_id, partition):
                assigned.setdefault(topic_id, {})[partition] = goal.epoch
            else:
                waits = True
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return Current(goal.epoch, current.epoch, state, assigned)


def merge(one: Held, other: Held) -> Held:
    """Return the partitions in either; for a partition in both, the epoch in `other`."""
    found = {topic_id: dict(epochs) for topic_id, epochs in one.items()}
    for topic_id, epochs in other.items():
        found.setdefault(topic_id, {}).update(epochs)
    return found
