"""Share groups: their members, and their offsets and window in each partition, in shapes like the ones of consumer
groups.

The rule: share groups are read when a request asks for them, not taken from the view. Pending records are shown with
their transactions, as far as the login may see these.
"""

from typing import Any

from ...client.admin.values import GroupDescription, MemberDescription, SharePartitionOffsets
from ...client.values import TopicPartition
from ..asked import Asked
from ..http.parameters import PAGING
from ..http.problems import NOT_FOUND, Problem
from ..model.view import partition_name
from ..routes import Route
from .listing import item, page, related, whole
from .places import cluster_id, link_of

SHOWN_RANGES = 20  # of each partition


async def group(asked: Asked) -> dict[str, Any]:
    """Handle GET …/share-groups/{share_group_id}: the group's state, coordinator and number of members."""
    name, found = await cluster_id(asked), await _group_of(asked)
    path = [name, "share-groups", found.group_id]
    return item(
        "KafkaShareGroup",
        path,
        {
            "share_group_id": found.group_id,
            "state": found.state,
            "assignor": found.protocol,
            "members": len(found.members),
            "coordinator": related(name, "brokers", found.coordinator),
            "consumers": related(*path, "consumers"),
            "partitions": related(*path, "partitions"),
        },
    )


async def _group_of(asked: Asked) -> GroupDescription:
    """Describe the share group that the path names. Raises Problem if there is none."""
    name = asked.names["share_group_id"]
    found = (await (await asked.admin()).describe_share_groups(name)).get(name)
    if found is None:
        raise Problem(NOT_FOUND, f"there is no share group {name}")
    return found


async def consumers(asked: Asked) -> dict[str, Any]:
    """Handle GET …/share-groups/{share_group_id}/consumers: its members."""
    name, found = await cluster_id(asked), await _group_of(asked)
    return whole("KafkaShareGroupConsumerList", asked.request.path, [_consumer(name, found, e) for e in found.members])


def _consumer(name: str, found: GroupDescription, member: MemberDescription) -> dict[str, Any]:
    """Return a member of a share group in the shape of a consumer. name: the cluster's id. found: its group."""
    return item(
        "KafkaShareGroupConsumer",
        [name, "share-groups", found.group_id, "consumers", member.member_id],
        {
            "share_group_id": found.group_id,
            "consumer_id": member.member_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "assignments": [partition_name(each) for each in member.assignment],
        },
    )


async def partitions(asked: Asked) -> dict[str, Any]:
    """Handle GET …/share-groups/{share_group_id}/partitions: a page of its offsets and windows."""
    name, found = await cluster_id(asked), await _group_of(asked)
    offsets = await (await asked.admin()).list_share_group_offsets(found.group_id)
    return page(
        "KafkaShareGroupPartitionList",
        link_of(asked),
        asked.query,
        offsets.items(),
        lambda each: (each[0].topic, each[0].partition),
        lambda each: partition_row(name, found.group_id, *each),
    )


def partition_row(name: str, group_id: str, at: TopicPartition, offsets: SharePartitionOffsets) -> dict[str, Any]:
    """Return a share group's offset, lag and window in one partition. Fields of the window are null if the broker does
    not tell them.
    """
    window = offsets.window
    return item(
        "KafkaShareGroupPartition",
        [name, "share-groups", group_id, "partitions", f"{at.topic}-{at.partition}"],
        {
            "share_group_id": group_id,
            **partition_name(at),
            "start_offset": offsets.start_offset,
            "lag": offsets.lag,
            "window": window.size if window else None,
            "window_limit": window.limit if window else None,
            "pending": window.pending_count if window else None,
            "held_by_transaction": bool(offsets.held_by),
            "pending_ranges": [each._asdict() for each in window.pending[:SHOWN_RANGES]] if window else [],
        },
    )


_ONE = "/v3/clusters/{cluster_id}/share-groups/{share_group_id}"
ROUTES = (
    Route("GET", _ONE, group, "One share group", "ShareGroup"),
    Route("GET", _ONE + "/consumers", consumers, "Its members", "ShareGroupConsumerList"),
    Route("GET", _ONE + "/partitions", partitions, "Where it stands", "ShareGroupPartitionList", query=PAGING),
)
