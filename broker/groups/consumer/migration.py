"""How a classic group becomes a consumer group and back, while its members stay (KIP-848). Pure.

    classic group ──the first heartbeat of epoch 0──► consumer group with members of both kinds
          ▲                                                  │
          └──the last member of the newer protocol is gone───┘

Upgrade: the generation becomes the group's epoch, the target's epoch and each member's epoch. Each member's record has
what the last leader assigned to it, so no partition is free before its reader gives it up. During a cooperative
rebalance a member may still read partitions that it reported as owned when it joined; they are recorded as to be given
up (Kafka counts them as free). The new member then begins an epoch, as any other would.
Downgrade: the group's epoch becomes the generation. Each member keeps what it may read until it joins the rebalance
that follows at once, also after a restart. (Kafka forgets that rebalance at a restart: the partitions of the last
member then wait until some member joins or leaves.)
Either is one unit with the old group's tombstones and the new group's records, so a restart finds the one or the other.
Source: Kafka's GroupMetadataManager, ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ..assigned.topic_view import FIRST_EPOCH, TopicView, metadata_hash
from ..consumer_protocol import (
    ByTopic,
    Subscribed,
    UnreadableMetadata,
    assignment_for,
    read_assignment,
    read_subscription,
)
from ..machine import Group
from ..members import Member
from ..states import State
from ..subscriptions import CONSUMER
from ..targets import Target, TargetEpoch, TopicId
from .records import Change, Classic, Current, GroupEpoch, Held, Kind, MemberState, Subscription
from .roster import Roster


class Policy(Enum):
    """The setting `group.consumer.migration.policy`: whether classic groups with members are converted to consumer
    groups, and back.
    """

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (Policy.UPGRADE, Policy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (Policy.DOWNGRADE, Policy.BIDIRECTIONAL)


def upgraded(group: Group, topics: TopicView, policy: Policy, max_size: int) -> list[Change]:
    """Return the changes that convert a classic group with members to a consumer group.

    Raises GROUP_ID_NOT_FOUND if the policy, the group's size or the members' metadata do not allow that.
    """
    wrong = None
    if not policy.upgrades:
        wrong = "online upgrade is disabled."
    elif group.protocol_type != CONSUMER:
        wrong = "the group does not use the consumer embedded protocol."
    elif len(group.members) > max_size:
        wrong = "the group size exceeds the consumer group maximum size."
    if wrong is None:
        try:
            return _upgraded(group, topics)
        except UnreadableMetadata:
            wrong = "the embedded consumer protocol is malformed."
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {wrong}"
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _upgraded(group: Group, topics: TopicView) -> list[Change]:
    """Return the tombstone of the classic group and the records of the consumer group: members, their subscriptions,
    and the partitions that they have now.

    A partition that a member reported as owned, and that is assigned to nobody, is recorded as to be given up
    (UNREVOKED). Raises UnreadableMetadata.
    """
    # The generation is 0 until the first rebalance of the group is complete; 0 is not the epoch of a group.
    epoch, protocol = max(group.generation, FIRST_EPOCH), group.vote()
    members = group.members.values()
    subscribed = {each.member_id: read_subscription(each.metadata(protocol)) for each in members}
    taken: set[tuple[TopicId, int]] = set()
    assigned = {each.member_id: _held(read_assignment(each.assignment), epoch, topics, taken) for each in members}
    subscriptions, targets, currents = [], [], []
    for member in members:
        member_id = member.member_id
        has, owns = assigned[member_id], _held(subscribed[member_id].owned, epoch, topics, taken)
        current = Current(epoch, epoch, MemberState.UNREVOKED if owns else MemberState.STABLE, has, owns)
        target = Target({topic_id: frozenset(epochs) for topic_id, epochs in has.items()})
        subscriptions.append(Change(Kind.SUBSCRIPTION, member_id, _subscription(member, subscribed[member_id])))
        targets.append(Change(Kind.TARGET, member_id, target))
        currents.append(Change(Kind.CURRENT, member_id, current))
    names = {topic for each in subscribed.values() for topic in each.topics}
    # With hash 0 the first heartbeat begins a new epoch, which replaces a rebalance that is not complete.
    known_hash = metadata_hash(topics, names) if group.state is State.STABLE else 0
    return [
        Change(Kind.CLASSIC_GROUP, "", None),
        *subscriptions,
        Change(Kind.EPOCH, "", GroupEpoch(epoch, known_hash)),
        *targets,
        Change(Kind.TARGET_EPOCH, "", TargetEpoch(epoch)),
        *currents,
    ]


def _held(partitions: ByTopic, epoch: int, topics: TopicView, taken: set[tuple[TopicId, int]]) -> Held:
    """Return these partitions, by topic id, and add them to `taken`. Those that are in `taken` already, or whose topic
    was deleted, are left out.

    epoch: the epoch at which the member got them. The leader of a classic group may have assigned one partition to two
    members; then only the first one gets it.
    """
    found: dict[TopicId, dict[int, int]] = {}
    for topic, numbers in partitions.items():
        topic_id = topics.id_of(topic)
        for partition in numbers if topic_id is not None else ():
            assert topic_id is not None
            if (topic_id, partition) not in taken:
                taken.add((topic_id, partition))
                found.setdefault(topic_id, {})[partition] = epoch
    return found


def _subscription(member: Member, read: Subscribed) -> Subscription:
    """Return the subscription record of a classic member. read: its decoded metadata."""
    return Subscription(
        member.instance_id,
        read.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(read.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=Classic(member.session_timeout_ms, member.protocols),
    )


class HandOver(NamedTuple):
    """A consumer group that is to become a classic one. rebalance: whether all members must join again at once."""

    group_id: str
    generation: int
    members: Sequence[Member]
    tombstones: Sequence[Change]
    rebalance: bool


_ENDS = (
    Kind.CURRENT,
    Kind.TARGET,
    Kind.TARGET_EPOCH,
    Kind.SUBSCRIPTION,
    Kind.REGEX,
    Kind.PARTITION_METADATA,
    Kind.EPOCH,
)
"""The order of the tombstones of a group: its members' assignments before the members, the members before the group."""

TakeBack = Callable[[HandOver], str | None]
"""Converts a consumer group to a classic one, in one unit. Returns its protocol; None if it cannot be a classic one.

Raises KafkaError.
"""


def handed_over(
    group: Roster, topics: TopicView, logged: Iterable[tuple[Kind, str]], *, was_replaced: bool
) -> HandOver:
    """Return the members and the generation of the classic group that this group becomes. All members must be classic
    ones.

    logged: the keys of its records, which get tombstones. was_replaced: whether a classic member has replaced the last
    member of the newer protocol; then members need not rebalance if each has reached its target assignment.
    """
    members = []
    for member_id, subscription in group.subscriptions.items():
        assert subscription.classic is not None
        partitions = {}
        for topic_id, epochs in group.current(member_id).assigned.items():
            name = topics.name_of(topic_id)
            if name is not None:
                partitions[name] = list(epochs)
        members.append(
            Member(
                member_id,
                subscription.instance_id,
                subscription.client_id,
                subscription.client_host,
                session_timeout_ms=subscription.classic.session_timeout_ms,
                rebalance_timeout_ms=subscription.rebalance_timeout_ms,
                protocols=subscription.classic.protocols,
                assignment=assignment_for(subscription.classic.protocols[0][1], partitions),
            )
        )
    keys = dict.fromkeys([*logged, (Kind.PARTITION_METADATA, "")])
    tombstones = [Change(kind, name, None) for kind, name in sorted(keys, key=lambda key: _ENDS.index(key[0]))]
    is_stable = group.epoch.epoch == group.target_epoch.epoch and all(map(group.has_its_target, group.subscriptions))
    rebalance = not (was_replaced and is_stable)
    return HandOver(group.group_id, group.epoch.epoch, members, tombstones, rebalance)
