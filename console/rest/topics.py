"""Topics, their configs and partitions in Confluent's shapes, with their offsets added; and records."""

import asyncio
from typing import Any
from urllib.parse import quote

from aiohttp import web

from ...client.admin.values import PartitionDescription, ProducerState, TopicDescription
from ...client.values import TopicPartition
from ..asked import Asked
from ..http.guard import HEADERS
from ..http.parameters import CONTAINS, PAGING, Parameter
from ..http.problems import BAD_PARAMETER, NOT_FOUND, TOO_MANY, Problem
from ..model.view import Offsets, View, offsets_row, topic_offsets
from ..parts import MAX_DOWNLOADS
from ..reading import records as browsing
from ..reading import timeline as timelines
from ..routes import Route
from .clusters import config
from .listing import item, matching, page, related, whole
from .places import cluster_id, link_of, offsets_now, partition_of, topic_of, view_of

DOWNLOAD_S = 120.0
PIECE_BYTES = 64 << 10


async def topics(asked: Asked) -> dict[str, Any]:
    """Handle GET …/topics: a page of topics by name. Query parameters: `contains`, a text that the name contains;
    `internal`, whether internal topics are listed too.
    """
    view = await view_of(asked)
    shown = [each for each in view.topics.values() if asked.query["internal"] or not each.is_internal]
    found = matching(shown, asked.query["contains"], lambda each: each.name)
    return page(
        "KafkaTopicList",
        link_of(asked),
        asked.query,
        found,
        lambda each: (each.name,),
        lambda each: _topic(view.cluster_id, each, topic_offsets(each, view)),
    )


async def topic(asked: Asked) -> dict[str, Any]:
    """Handle GET …/topics/{topic_name}: the topic in Confluent's shape, with its offsets summed over partitions."""
    view, found = await view_of(asked), await topic_of(asked)
    return _topic(view.cluster_id, found, topic_offsets(found, view))


def _topic(name: str, found: TopicDescription, offsets: dict[str, int] | None) -> dict[str, Any]:
    """Return a topic in Confluent's shape. name: the cluster's id. offsets: from topic_offsets()."""
    return item(
        "KafkaTopic",
        [name, "topics", found.name],
        {
            "topic_name": found.name,
            "is_internal": found.is_internal,
            "replication_factor": len(found.partitions[0].replicas) if found.partitions else 0,
            "partitions_count": len(found.partitions),
            "partitions": related(name, "topics", found.name, "partitions"),
            "configs": related(name, "topics", found.name, "configs"),
            "offsets": offsets,
        },
    )


async def configs(asked: Asked) -> dict[str, Any]:
    """Handle GET …/topics/{topic_name}/configs: all configs of the topic."""
    return whole("KafkaTopicConfigList", asked.request.path, await _configs(asked))


async def one_config(asked: Asked) -> dict[str, Any]:
    """Handle GET …/topics/{topic_name}/configs/{name}: one config. Raises Problem if there is none of that name."""
    for each in await _configs(asked):
        if each["name"] == asked.names["name"]:
            return each
    raise Problem(NOT_FOUND, f"a topic has no config {asked.names['name'][:100]!r}")


async def _configs(asked: Asked) -> list[dict[str, Any]]:
    """Read the topic's configs and return them in Confluent's shape."""
    name, of = await cluster_id(asked), asked.names["topic_name"]
    found = (await (await asked.admin()).describe_configs(topics=of))[of]
    return [
        item("KafkaTopicConfig", [name, "topics", of, "configs", each.name], {"topic_name": of, **config(each)})
        for each in found
    ]


async def partitions(asked: Asked) -> dict[str, Any]:
    """Handle GET …/topics/{topic_name}/partitions: a page of partitions with their offsets now."""
    name, found = await cluster_id(asked), await topic_of(asked)
    offsets = await offsets_now(asked, found.led)
    return page(
        "KafkaPartitionList",
        link_of(asked),
        asked.query,
        found.partitions,
        lambda each: (each.partition,),
        lambda each: _partition(name, found.name, each, offsets),
    )


async def partition(asked: Asked) -> dict[str, Any]:
    """Handle GET …/partitions/{partition_id}: one partition with its offsets now."""
    at, found = await partition_of(asked), await topic_of(asked)
    each = next(one for one in found.partitions if one.partition == at.partition)
    offsets = await offsets_now(asked, [at] if each.leader >= 0 else [])
    return _partition(asked.names["cluster_id"], found.name, each, offsets)


def _partition(
    name: str, topic_name: str, found: PartitionDescription, offsets: dict[TopicPartition, Offsets]
) -> dict[str, Any]:
    """Return a partition in Confluent's shape, with its offsets. name: the cluster's id."""
    at = TopicPartition(topic_name, found.partition)
    known = offsets.get(at)
    return item(
        "KafkaPartition",
        [name, "topics", topic_name, "partitions", found.partition],
        {
            **offsets_row(at, known),
            "blocked": known is not None and known.stable < known.end,
            "leader": related(name, "brokers", found.leader) if found.leader >= 0 else None,
            "leader_id": found.leader if found.leader >= 0 else None,
            "replica_ids": list(found.replicas),
            "isr_ids": list(found.isr),
        },
    )


async def producers(asked: Asked) -> dict[str, Any]:
    """Handle GET …/partitions/{partition_id}/producers: the producers whose state the partition has."""
    at, view = await partition_of(asked), await view_of(asked)
    found = (await (await asked.admin()).describe_producers([at]))[at]
    return page(
        "KafkaProducerList",
        link_of(asked),
        asked.query,
        found,
        lambda each: (each.producer_id, each.producer_epoch),
        lambda each: _producer(asked, view, at, each),
    )


def _producer(asked: Asked, view: View, at: TopicPartition, found: ProducerState) -> dict[str, Any]:
    """Return a producer's state in the partition, with its transactional id if the console has seen that."""
    path = [view.cluster_id, "topics", at.topic, "partitions", at.partition, "producers", found.producer_id]
    return item(
        "KafkaProducer",
        path,
        {
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "last_sequence": found.last_sequence,
            "last_timestamp_ms": found.last_timestamp_ms,
            "coordinator_epoch": found.coordinator_epoch,
            "transaction_start_offset": found.txn_start_offset,
            "transactional_id": asked.parts.model.names.get((found.producer_id, found.producer_epoch)),
        },
    )


# ---- records -------------------------------------------------------------------------------------------------------


async def records(asked: Asked) -> dict[str, Any]:
    """Handle GET …/partitions/{partition_id}/records: a page of records, made by reading.records.browse."""
    at = await partition_of(asked)
    names = asked.parts.model.names
    async with asked.parts.reading:
        return await browsing.browse(await asked.admin(), at.topic, at.partition, asked.given, names=names)


async def timeline(asked: Asked) -> dict[str, Any]:
    """Handle GET …/partitions/{partition_id}/timeline: batches and markers, read by reading.timeline.read."""
    at = await partition_of(asked)
    names = asked.parts.model.names
    async with asked.parts.reading:
        return await timelines.read(await asked.admin(), at.topic, at.partition, asked.given, names=names)


async def raw(asked: Asked) -> web.StreamResponse:
    """Handle GET …/records/{offset}/{part}: send a key, value or header as an attachment of no particular type, so that
    no browser shows or runs it. Raises Problem if too many downloads run.

    A value is in memory until it is sent, so only a few are sent at the same time, and none for longer than DOWNLOAD_S.
    """
    at, offset, part = await partition_of(asked), number_of_offset(asked), asked.names["part"]
    if asked.parts.downloading.locked():
        raise Problem(TOO_MANY, f"{MAX_DOWNLOADS} downloads are under way", "try again when one has ended")
    async with asked.parts.downloading:
        content = await browsing.raw(await asked.admin(), at.topic, at.partition, offset, part)
        name = quote(f"{at.topic}-{at.partition}-{offset}-{part}.bin", safe="")
        headers = {"Content-Disposition": f"attachment; filename=\"record.bin\"; filename*=UTF-8''{name}"}
        response = web.StreamResponse(headers=HEADERS | headers | {"Cache-Control": "no-store"})
        response.content_type, response.content_length = "application/octet-stream", len(content)
        await _send(asked.request, response, content)
        return response


async def _send(request: web.Request, response: web.StreamResponse, content: bytes) -> None:
    """Send the content in pieces. Disconnects a browser that has not taken it all within DOWNLOAD_S."""
    await response.prepare(request)
    try:
        async with asyncio.timeout(DOWNLOAD_S):
            for start in range(0, len(content), PIECE_BYTES):
                await response.write(content[start : start + PIECE_BYTES])
    except (ConnectionError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()


def number_of_offset(asked: Asked) -> int:
    """Return the offset in the path. Raises Problem if it is not a number."""
    text = asked.names["offset"]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Problem(BAD_PARAMETER, "offset must be a number")
    return int(text)


_INTERNAL = Parameter("internal", "flag", "Kafka's internal topics too.", False)
_T = "/v3/clusters/{cluster_id}/topics"
_P = _T + "/{topic_name}/partitions/{partition_id}"
ROUTES = (
    Route("GET", _T, topics, "Topics by name", "TopicList", query=(CONTAINS, _INTERNAL, *PAGING)),
    Route("GET", _T + "/{topic_name}", topic, "One topic", "Topic"),
    Route("GET", _T + "/{topic_name}/configs", configs, "Its configs", "ConfigList"),
    Route("GET", _T + "/{topic_name}/configs/{name}", one_config, "One config", "Config"),
    Route("GET", _T + "/{topic_name}/partitions", partitions, "Its partitions", "PartitionList", query=PAGING),
    Route("GET", _P, partition, "One partition", "Partition"),
    Route("GET", _P + "/producers", producers, "The producers a partition remembers", "ProducerList", query=PAGING),
    Route("GET", _P + "/records", records, "Records, each with its fate", "RecordPage", query=browsing.PARAMETERS),
    Route("GET", _P + "/records/{offset}/{part}", raw, "A key, value or header as bytes", "application/octet-stream"),
    Route("GET", _P + "/timeline", timeline, "Batches and markers by offset", "Timeline", query=timelines.PARAMETERS),
)
