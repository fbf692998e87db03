"""ListOffsets: the first and last offsets of partitions, and offsets by timestamp.

The rule: the request for a partition goes to its leader, and is retried with backoff until the timeout.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from ..errors import RequestTimedOutError, UnknownTopicError, code_of, error_of, is_retriable
from ..group.subscription import EARLIEST, LATEST
from ..net.cluster import Cluster
from ..net.retry import Deadline
from ..values import TopicPartition

READ_COMMITTED, READ_UNCOMMITTED = 1, 0


class Listed(NamedTuple):
    """The answer for one partition. offset: -1 if there is none for this timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int, *, timeout_ms: float
) -> dict[TopicPartition, Listed]:
    """Return the offset for each timestamp (-1: the end for this isolation level, -2: the beginning).

    Raises RequestTimedOutError, UnknownTopicError, and errors of a broker that are not retriable.
    """
    deadline = Deadline(cluster.environment.clock, timeout_ms)
    found: dict[TopicPartition, Listed] = {}
    attempt = 0
    while True:
        missing = {tp: timestamp for tp, timestamp in wanted.items() if tp not in found}
        answers, failure = await list_once(cluster, missing, isolation, timeout_ms=deadline.left_ms())
        found |= answers
        if len(found) == len(wanted):
            return found
        first = next(tp for tp in wanted if tp not in found)
        pause_ms = cluster.backoff.delay_ms(attempt, cluster.environment.rng.random())
        attempt += 1
        if deadline.left_ms() <= pause_ms:
            if cluster.metadata.error(first.topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicError(f"there is no topic {first.topic!r}") from failure
            raise RequestTimedOutError(
                f"the offset of {first} was not found within {timeout_ms:g} ms: {failure or 'it has no leader'}"
            ) from failure
        cluster.request_refresh()
        await asyncio.sleep(pause_ms / 1000)


async def list_once(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int, *, timeout_ms: float
) -> tuple[dict[TopicPartition, Listed], KafkaError | None]:
    """Return offsets from the known leaders, and a retriable error or None. Raises an error that is not retriable."""
    deadline = Deadline(cluster.environment.clock, timeout_ms)
    cluster.watch_topics({tp.topic for tp in wanted})
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, timestamp in wanted.items():
        leader = cluster.metadata.leader(tp)
        if leader is not None:
            by_leader.setdefault(leader, {})[tp] = timestamp
    rounds = [_request_offsets(cluster, node, each, isolation, deadline) for node, each in by_leader.items()]
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


async def _request_offsets(
    cluster: Cluster, node: int, wanted: Mapping[TopicPartition, int], isolation: int, deadline: Deadline
) -> dict[TopicPartition, Listed | KafkaError]:
    """Send ListOffsets to one broker. Returns the offset or the error of each wanted partition."""
    topics: dict[str, ListOffsetsRequest.Topic] = {}
    metadata = cluster.metadata
    for tp, timestamp in wanted.items():
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
        return dict.fromkeys(wanted, error)
    found: dict[TopicPartition, Listed | KafkaError] = {}
    for answered in response.topics:
        for each in answered.partitions:
            tp = TopicPartition(answered.name, each.partition_index)
            if tp not in wanted:
                continue
            if each.error_code:
                cluster.stale(each.error_code)
                found[tp] = error_of(each.error_code, f"{tp}: {code_of(each.error_code).text}")
            elif each.offset < 0 and wanted[tp] in (EARLIEST, LATEST):  # -1 is an answer to times only
                found[tp] = error_of(ErrorCode.OFFSET_NOT_AVAILABLE, f"{tp}: the broker returned no offset")
            else:
                found[tp] = Listed(each.offset, each.timestamp, each.leader_epoch)
    return found
