"""Requests about share groups, and the state that a broker has of them, in few words."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.messages.configs import IncrementalAlterConfigsRequest
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from simulated_broker import SimulatedBroker


def beat(broker: SimulatedBroker, member: str, epoch: int, group: str = "g", topics: tuple[str, ...] = ("t",)) -> Any:
    """Send a heartbeat and return its response. A member that joins (epoch 0) subscribes to these topics."""
    names = list(topics) if epoch == 0 else None
    return broker.ask(
        ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names)
    )


def described(broker: SimulatedBroker, group: str = "g") -> Any:
    return broker.ask(ShareGroupDescribeRequest(group_ids=[group])).groups[0]


def assigned(answer: Any) -> list[int]:
    """Return the partitions in the response to a heartbeat."""
    return [partition for each in answer.assignment.topic_partitions for partition in each.partitions]


def grow(topic: str, partitions: int) -> CreatePartitionsRequest:
    asked = CreatePartitionsRequest.Topic(name=topic, count=partitions)
    return CreatePartitionsRequest(topics=[asked], timeout_ms=1000)


def delete_topic(topic: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=topic)], timeout_ms=1000)


def reset(broker: SimulatedBroker, to: str, group: str = "g") -> None:
    """Set where the group begins to read a partition (share.auto.offset.reset): "earliest" or "latest"."""
    config = IncrementalAlterConfigsRequest.Resource.Config
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=32,
        resource_name=group,
        configs=[config(name="share.auto.offset.reset", config_operation=0, value=to)],
    )
    assert broker.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0


def starts(broker: SimulatedBroker, group: str = "g", topic: str = "t") -> dict[int, int]:
    """Return the start offset of the group's share partitions of a topic, by partition."""
    share_partitions, topic_id = broker.broker.share_partitions, broker.broker.topics.by_name[topic].id
    found = {}
    for key in share_partitions.of_group(group):
        described = share_partitions.describe(key)
        if key.topic_id == topic_id and described is not None:
            found[key.partition] = described.start_offset
    return found


def kept_of_share_groups(broker: SimulatedBroker) -> tuple[dict[str, list[Any]], dict[Any, Any]]:
    """Return the broker's state of all share groups, by group id, and of their share partitions, by key."""
    groups, share_partitions = broker.broker.share_groups.groups, broker.broker.share_partitions
    changes = {group_id: sorted(group.changes(), key=lambda each: each[:2]) for group_id, group in groups.items()}
    known = {key: share_partitions.describe(key) for group_id in groups for key in share_partitions.of_group(group_id)}
    return dict(sorted(changes.items())), known
