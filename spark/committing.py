"""Commits a query's offsets to a consumer group, so that tools show its lag.

The rule: nothing reads them back; only the checkpoint counts for the query.
"""

from ..client.errors import code_of
from ..client.net.cluster import Cluster
from ..protocol.errors import ErrorCode
from ..protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from .offsets import Offsets

_BY_NAME_UNTIL = 9  # of OffsetCommit
_TIMEOUT_MS = 10_000


async def commit_to_group(cluster: Cluster, group: str, offsets: Offsets) -> None:
    """Raises the coordinator's error, or RequestTimedOutError."""
    Topic = OffsetCommitRequest.Topic
    topics: dict[str, OffsetCommitRequest.Topic] = {}
    for tp, offset in offsets.items():
        topic = topics.setdefault(tp.topic, Topic(name=tp.topic, partitions=[]))
        topic.partitions.append(Topic.Partition(partition_index=tp.partition, committed_offset=offset))
    request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))
    await cluster.ask_until(
        ("group", group), request, verdict=_first_refusal, timeout_ms=_TIMEOUT_MS, cap=_BY_NAME_UNTIL
    )


def _first_refusal(response: OffsetCommitResponse) -> ErrorCode:
    codes = (code_of(each.error_code) for topic in response.topics for each in topic.partitions)
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
