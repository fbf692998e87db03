"""Consumer groups, their members and lags, in Confluent's shapes: lag is up to the high watermark, and another field
has the lag up to the last stable offset.
"""

from typing import Any

from ...client.admin.values import GroupDescription, MemberDescription
from ...client.values import TopicPartition
from ..asked import Asked
from ..http.parameters import CONTAINS, PAGING, Parameter
from ..http.problems import NOT_FOUND, Problem
from ..model.view import Group, View, group_row, partition_name
from ..routes import Route
from .listing import item, matching, page, related, whole
from .places import cluster_id, group_of, link_of, number_of, offsets_now, view_of


async def groups(asked: Asked) -> dict[str, Any]:
    """Handle GET …/consumer-groups: a page of groups by name. Query parameters: `contains`, a text that the group's id
    contains; `state`, the state that the group has, in upper or lower case.
    """
    view = await view_of(asked)
    state = asked.query["state"]
    found = matching(view.groups.values(), asked.query["contains"], lambda each: each.listing.group_id)
    if state is not None:
        found = [each for each in found if _state(each).casefold() == state.casefold()]
    return page(
        "KafkaConsumerGroupList",
        link_of(asked),
        asked.query,
        found,
        lambda each: (each.listing.group_id,),
        lambda each: _group(view, each),
    )


def _state(group: Group) -> str:
    """Return the group's state, from its description if it could be read."""
    return group.description.state if group.description else group.listing.state


def _group(view: View, group: Group) -> dict[str, Any]:
    """Return a group, of any kind, in Confluent's shape."""
    name = group.listing.group_id
    described = group.description
    path = [view.cluster_id, "share-groups" if group.share is not None else "consumer-groups", name]
    lags = "lags" if group.share is None else "partitions"
    return item(
        "KafkaConsumerGroup",
        path,
        {
            **group_row(group, view),
            "is_simple": not group.listing.protocol_type,
            "partition_assignor": described.protocol if described else "",
            "protocol_type": group.listing.protocol_type,
            "group_type": group.listing.group_type,
            "coordinator": related(view.cluster_id, "brokers", described.coordinator) if described else None,
            "consumers": related(*path, "consumers"),
            "lag_summary": related(*path, "lag-summary") if group.share is None else None,
            "lags": related(*path, lags),
        },
    )


async def group(asked: Asked) -> dict[str, Any]:
    """Handle GET …/consumer-groups/{consumer_group_id}: the group as the broker describes it now. Raises Problem if
    there is none.
    """
    view, described = await view_of(asked), await group_of(asked)
    admin = await asked.admin()
    listing = next((each for each in await admin.list_groups() if each.group_id == described.group_id), None)
    if listing is None:
        raise Problem(NOT_FOUND, f"there is no consumer group {described.group_id}")
    committed = await admin.list_group_offsets(described.group_id)
    return _group(view, Group(listing, described, {at: each.offset for at, each in committed.items()}))


async def consumers(asked: Asked) -> dict[str, Any]:
    """Handle GET …/consumers: the members of the group."""
    name, found = await cluster_id(asked), await group_of(asked)
    rows = [_consumer(name, found, each) for each in found.members]
    return whole("KafkaConsumerList", asked.request.path, rows)


async def consumer(asked: Asked) -> dict[str, Any]:
    """Handle GET …/consumers/{consumer_id}: one member. Raises Problem if there is none."""
    name, found = await cluster_id(asked), await group_of(asked)
    for each in found.members:
        if each.member_id == asked.names["consumer_id"]:
            return _consumer(name, found, each)
    raise Problem(NOT_FOUND, f"group {found.group_id} has no such member")


def _consumer(name: str, found: GroupDescription, member: MemberDescription) -> dict[str, Any]:
    """Return a member in Confluent's shape. name: the cluster's id. found: its group."""
    return item(
        "KafkaConsumer",
        [name, "consumer-groups", found.group_id, "consumers", member.member_id],
        {
            "consumer_group_id": found.group_id,
            "consumer_id": member.member_id,
            "instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "assignments": [partition_name(each) for each in member.assignment],
        },
    )


async def lags(asked: Asked) -> dict[str, Any]:
    """Handle GET …/lags: the lag in each partition of the group, a page of them."""
    name, rows = await cluster_id(asked), await _lags(asked)
    return page(
        "KafkaConsumerLagList",
        link_of(asked),
        asked.query,
        rows,
        lambda row: (row["topic_name"], row["partition_id"]),
        lambda row: _lag(name, row),
    )


async def lag(asked: Asked) -> dict[str, Any]:
    """Handle GET …/lags/…: the lag in one partition. Raises Problem if the group has no offset there."""
    name, number = await cluster_id(asked), number_of(asked, "partition_id")
    for row in await _lags(asked):
        if (row["topic_name"], row["partition_id"]) == (asked.names["topic_name"], number):
            return _lag(name, row)
    raise Problem(NOT_FOUND, "the group has no offset of this partition")


def _lag(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """Add Confluent's metadata to a row of _lags(). name: the cluster's id."""
    path = [name, "consumer-groups", row["consumer_group_id"], "lags", row["topic_name"]]
    return item("KafkaConsumerLag", [*path, "partitions", row["partition_id"]], row)


async def _lags(asked: Asked) -> list[dict[str, Any]]:
    """Read the group's lag in each partition now, as rows. Committed offsets are read first, so that no lag is
    negative because its end was read earlier.
    """
    found, admin = await group_of(asked), await asked.admin()
    committed = await admin.list_group_offsets(found.group_id)
    topics = await admin.describe_topics()
    there = [at for at in committed if at.topic in topics and at in topics[at.topic].led]
    ends = await offsets_now(asked, there)
    readers = {at: member for member in found.members for at in member.assignment}
    rows = []
    for at in sorted(ends):
        offset, end = committed[at].offset, ends[at]
        rows.append(
            {
                "consumer_group_id": found.group_id,
                **partition_name(at),
                "current_offset": offset,
                "log_end_offset": end.end,
                "lag": max(0, end.end - offset),
                "last_stable_offset": end.stable,
                "lag_to_stable": max(0, end.stable - offset),
                "blocked": end.stable < end.end,
                **_reader(readers.get(at)),
            }
        )
    return rows


def _reader(member: MemberDescription | None) -> dict[str, Any]:
    """Return the fields that name the member to which a partition is assigned; empty if there is none."""
    return {
        "consumer_id": member.member_id if member else "",
        "instance_id": member.group_instance_id if member else None,
        "client_id": member.client_id if member else "",
    }


async def lag_summary(asked: Asked) -> dict[str, Any]:
    """Handle GET …/lag-summary: the greatest lag of a partition, and the total."""
    name, rows = await cluster_id(asked), await _lags(asked)
    group_id = asked.names["consumer_group_id"]
    most = max(rows, key=lambda row: row["lag"], default=None)
    at = TopicPartition(most["topic_name"], most["partition_id"]) if most else None
    return item(
        "KafkaConsumerGroupLagSummary",
        [name, "consumer-groups", group_id, "lag-summary"],
        {
            "consumer_group_id": group_id,
            "max_lag_consumer_id": most["consumer_id"] if most else "",
            "max_lag_instance_id": most["instance_id"] if most else None,
            "max_lag_client_id": most["client_id"] if most else "",
            "max_lag_topic_name": at.topic if at else "",
            "max_lag_partition_id": at.partition if at else None,
            "max_lag": most["lag"] if most else 0,
            "total_lag": sum(row["lag"] for row in rows),
            "total_lag_to_stable": sum(row["lag_to_stable"] for row in rows),
            "max_lag_partition": related(name, "topics", at.topic, "partitions", at.partition) if at else None,
        },
    )


_STATE = Parameter("state", "text", "Only groups in this state.")
_G = "/v3/clusters/{cluster_id}/consumer-groups"
_ONE = _G + "/{consumer_group_id}"
_LAG = _ONE + "/lags/{topic_name}/partitions/{partition_id}"
ROUTES = (
    Route("GET", _G, groups, "Consumer groups by name", "ConsumerGroupList", query=(CONTAINS, _STATE, *PAGING)),
    Route("GET", _ONE, group, "One group", "ConsumerGroup"),
    Route("GET", _ONE + "/consumers", consumers, "Its members", "ConsumerList"),
    Route("GET", _ONE + "/consumers/{consumer_id}", consumer, "One member", "Consumer"),
    Route("GET", _ONE + "/lag-summary", lag_summary, "Its lag over all partitions", "ConsumerGroupLagSummary"),
    Route("GET", _ONE + "/lags", lags, "Its lag in each partition", "ConsumerLagList", query=PAGING),
    Route("GET", _LAG, lag, "Its lag in one partition", "ConsumerLag"),
)
