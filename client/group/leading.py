"""The work of a group's leader: decode the members' subscriptions, and encode their assignments. Pure.

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
    """Return the subscription of each member, in the response's order. Raises ClientError for a malformed one."""
    found: dict[str, Subscription] = {}
    for member in named:
        try:
            subscription = decode_subscription(member.metadata)
        except MalformedFrame as broken:
            raise ClientError(
                f"the subscription of member {member.member_id} is malformed: {broken}",
                code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ) from None
        found[member.member_id] = replace(subscription, group_instance_id=member.group_instance_id)
    return found


def topics_of(members: Members) -> frozenset[str]:
    """Return all topics that a member subscribes to."""
    return frozenset(topic for subscription in members.values() for topic in subscription.topics)


def assignments(assignor: Assignor, partitions: Mapping[str, int], members: Members) -> dict[str, bytes]:
    """Return the encoded assignments by member id, for SyncGroup. partitions: numbers of partitions by topic."""
    assigned = assignor.assign(partitions, members)
    return {member: encode_assignment(Assignment(tuple(places))) for member, places in assigned.items()}
