"""What the leader of a group does: read the members' subscriptions, and encode their assignments. Pure.

Source: Kafka's ConsumerCoordinator.onLeaderElected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...protocol.errors import ErrorCode, MalformedFrame
from ...protocol.messages.groups import JoinGroupResponse
from ..assignors.assignment import Assignor, Members
from ..assignors.consumer_protocol import Assignment, Subscription, decode_subscription, encode_assignment
from ..errors import ClientError


def members_of(named: Sequence[JoinGroupResponse.Member]) -> Members:
    """The subscription of each member, in the order of the answer. Raises ClientError for one that cannot be read."""
    found: dict[str, Subscription] = {}
    for member in named:
        try:
            subscription = decode_subscription(member.metadata)
        except MalformedFrame as broken:
            raise ClientError(
                f"the subscription of member {member.member_id} cannot be read: {broken}",
                code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ) from None
        found[member.member_id] = replace(subscription, group_instance_id=member.group_instance_id)
    return found


def topics_of(members: Members) -> frozenset[str]:
    """What anybody in the group wants."""
    return frozenset(topic for subscription in members.values() for topic in subscription.topics)


def assignments(assignor: Assignor, partitions: Mapping[str, int], members: Members) -> dict[str, bytes]:
    """By member id, as SyncGroup carries them. partitions: how many each topic has, as far as known."""
    assigned = assignor.assign(partitions, members)
    return {member: encode_assignment(Assignment(tuple(places))) for member, places in assigned.items()}
