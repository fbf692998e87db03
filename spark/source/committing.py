"""Commits a query's offsets to a consumer group, so that tools show its lag.

The rule: the connector never reads them; a query continues from its checkpoint.
"""

from ...client.errors import code_of
from ...client.net.cluster import Cluster
from ...protocol.errors import ErrorCode
from ...protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from .offsets import Offsets

_LAST_BY_NAME = 9  # of OffsetCommit
_TIMEOUT_MS = 10_000


async def commit_to_group(cluster: Cluster, group: str, offsets: Offsets) -> None:
    """Commit the offsets to the group. Raises the coordinator's error, or RequestTimedOutError."""
    Topic = OffsetCommitRequest.Topic
    topics: dict[str, OffsetCommitRequest.Topic] = {}
    for tp, offset in offsets.items():
        topic = topics.setdefault(tp.topic, Topic(name=tp.topic, partitions=[]))
        topic.partitions.append(Topic.Partition(partition_index=tp.partition, committed_offset=offset))
    request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))
    await cluster.ask_until(("group", group), request, verdict=_first_error, timeout_ms=_TIMEOUT_MS, cap=_LAST_BY_NAME)


def _first_error(response: OffsetCommitResponse) -> ErrorCode:
    """Return the first error of a partition in the response; NONE if there is none."""
    codes = (code_of(each.error_code) for topic in response.topics for each in topic.partitions)
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
