"""Resolves the names in a request's path: cluster, topic, partition, group. Raises Problem if there is none."""

from collections.abc import Mapping
from typing import Any

from ...client.admin.values import GroupDescription, TopicDescription
from ...client.values import TopicPartition
from ..asked import Asked
from ..http.problems import BAD_PARAMETER, NOT_FOUND, Problem
from ..model.offsets import read_offsets
from ..model.view import Offsets, View

MAX_DIGITS = 10


async def view_of(asked: Asked) -> View:
    """Return a recent view of the cluster. Raises Problem if the path names another cluster."""
    view = await asked.parts.model.view()
    _check_cluster(asked, view.cluster_id)
    return view


async def cluster_id(asked: Asked) -> str:
    """Return the cluster's id. Raises Problem if the path names another one."""
    found = (await asked.parts.cluster()).cluster_id or "unknown"
    _check_cluster(asked, found)
    return found


def _check_cluster(asked: Asked, found: str) -> None:
    """Raise Problem if the cluster in the path is not the one that this console shows."""
    if asked.names["cluster_id"] != found:
        raise Problem(NOT_FOUND, f"this console shows cluster {found}", "GET /v3/clusters lists it")


async def topic_of(asked: Asked) -> TopicDescription:
    """Describe the topic that the path names. Raises UnknownTopicError."""
    name = asked.names["topic_name"]
    return (await (await asked.admin()).describe_topics([name]))[name]


async def partition_of(asked: Asked) -> TopicPartition:
    """Return the partition that the path names. Raises Problem or UnknownTopicError if it does not exist."""
    await cluster_id(asked)
    topic, number = await topic_of(asked), number_of(asked, "partition_id")
    found = TopicPartition(topic.name, number)
    if found not in topic.topic_partitions:
        raise Problem(NOT_FOUND, f"topic {topic.name} has no partition {number}")
    return found


def number_of(asked: Asked, name: str) -> int:
    """Return a part of the path as a number. name: which part. Raises Problem if it is not one."""
    text = asked.names[name]
    if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
        raise Problem(BAD_PARAMETER, f"{name} must be a number")
    return int(text)


async def group_of(asked: Asked) -> GroupDescription:
    """Describe the consumer group that the path names. Raises Problem if there is none."""
    name = asked.names["consumer_group_id"]
    found = (await (await asked.admin()).describe_groups(name)).get(name)
    if found is None:
        raise Problem(NOT_FOUND, f"there is no consumer group {name}")
    return found


async def offsets_now(asked: Asked, partitions: list[TopicPartition]) -> dict[TopicPartition, Offsets]:
    """Read the partitions' offsets from the broker now, not from the view. A partition that is deleted meanwhile is
    left out.
    """
    return await read_offsets(await asked.admin(), partitions)


def link_of(asked: Asked) -> tuple[str, Mapping[str, Any]]:
    """Return path and query of the request as they were sent, for the link to the next page."""
    return asked.request.rel_url.raw_path, asked.given
