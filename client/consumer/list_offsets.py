"""ListOffsets: where partitions begin and end, and which offset stands at a time.

The rule: every partition is asked of its leader and asked again, with back-off, until it answers or time is up.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from ..errors import RequestTimedOutError, UnknownTopicError, code_of, error_of, is_retriable
from ..net.cluster import Cluster
from ..net.retry import Deadline
from ..values import TopicPartition

READ_COMMITTED, READ_UNCOMMITTED = 1, 0


class Listed(NamedTuple):
    """offset: -1 where there is none at such a time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, asked: Mapping[TopicPartition, int], isolation: int, *, timeout_ms: float
) -> dict[TopicPartition, Listed]:
    """The offset for each timestamp (-1: the end as this isolation sees it, -2: the beginning).

    Raises: RequestTimedOutError, and what a broker refuses with.
    """
    deadline = Deadline(cluster.environment.clock, timeout_ms)
    found: dict[TopicPartition, Listed] = {}
    attempt = 0
    while True:
        missing = {tp: timestamp for tp, timestamp in asked.items() if tp not in found}
        answers, failure = await list_once(cluster, missing, isolation, timeout_ms=deadline.left_ms())
        found |= answers
        if len(found) == len(asked):
            return found
        first = next(tp for tp in asked if tp not in found)
        pause_ms = cluster.backoff.delay_ms(attempt, cluster.environment.rng.random())
        attempt += 1
        if deadline.left_ms() <= pause_ms:
            if cluster.metadata.error(first.topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicError(f"there is no topic {first.topic!r}") from failure
            raise RequestTimedOutError(
                f"no offset of {first} within {timeout_ms:g} ms: {failure or 'it has no leader'}"
            ) from failure
        cluster.request_refresh()
        await asyncio.sleep(pause_ms / 1000)


async def list_once(
    cluster: Cluster, asked: Mapping[TopicPartition, int], isolation: int, *, timeout_ms: float
) -> tuple[dict[TopicPartition, Listed], KafkaError | None]:
    """What the leaders there are say now, and an error to ask again for. Raises one that is not."""
    deadline = Deadline(cluster.environment.clock, timeout_ms)
    cluster.watch_topics({tp.topic for tp in asked})
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, timestamp in asked.items():
        leader = cluster.metadata.leader(tp)
        if leader is not None:
            by_leader.setdefault(leader, {})[tp] = timestamp
    rounds = [_ask(cluster, node, each, isolation, deadline) for node, each in by_leader.items()]
    found: dict[TopicPartition, Listed] = {}
    failure: KafkaError | None = None
    for answers in await asyncio.gather(*rounds):
        for tp, answer in answers.items():
            if isinstance(answer, Listed):
                found[tp] = answer
            elif is_retriable(answer):
                failure = answer
            else:
                raise answer
    return found, failure


async def _ask(
    cluster: Cluster, node: int, asked: Mapping[TopicPartition, int], isolation: int, deadline: Deadline
) -> dict[TopicPartition, Listed | KafkaError]:
    topics: dict[str, ListOffsetsRequest.Topic] = {}
    metadata = cluster.metadata
    for tp, timestamp in asked.items():
        topic = topics.setdefault(tp.topic, ListOffsetsRequest.Topic(name=tp.topic, partitions=[]))
        topic.partitions.append(
            ListOffsetsRequest.Topic.Partition(
                partition_index=tp.partition, current_leader_epoch=metadata.leader_epoch(tp), timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(isolation_level=isolation, topics=list(topics.values()), timeout_ms=30_000)
    left_ms = min(deadline.left_ms(), cluster.settings.request_timeout_ms)
    try:
        response: ListOffsetsResponse = await cluster.ask(node, request, timeout_ms=left_ms)
    except KafkaError as error:
        return dict.fromkeys(asked, error)
    found: dict[TopicPartition, Listed | KafkaError] = {}
    for answered in response.topics:
        for each in answered.partitions:
            tp = TopicPartition(answered.name, each.partition_index)
            if tp not in asked:
                continue
            if each.error_code:
                cluster.stale(each.error_code)
                found[tp] = error_of(each.error_code, f"{tp}: {code_of(each.error_code).text}")
            else:
                found[tp] = Listed(each.offset, each.timestamp, each.leader_epoch)
    return found
