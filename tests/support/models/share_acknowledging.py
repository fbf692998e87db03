"""A member's acknowledgements, decided and written in one step, as a short request's are."""

from collections.abc import Mapping, Sequence

from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.share.values import AckRange
from fencepost.broker.topics.names import TopicIdPartition
from fencepost.protocol.errors import KafkaError


def acknowledge_now(
    shares: SharePartitions, group: str, member: str, acks: Mapping[TopicIdPartition, Sequence[AckRange]]
) -> dict[TopicIdPartition, KafkaError | None]:
    """Apply acknowledgements in one unit. Returns the error of each partition; None where they were taken."""
    return shares.finish(shares.begin_acknowledging(group, member, acks))
