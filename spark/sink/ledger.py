"""Requests to the broker's ledger, for a sink's driver and for operators: decide, describe, abort, remove.

The rule: a decision that was not answered is sent again unchanged; only the broker knows whether it was made. Source:
docs/apis.md.
"""

import asyncio
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from ...client.errors import UnknownTopicError, code_of, error_of, is_retriable
from ...client.net.cluster import Cluster
from ...client.net.retry import Deadline
from ...client.net.versions import OWN_FEATURE
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cluster import MetadataRequest, MetadataResponse
from ...protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from ...protocol.messages.ledger import (
    DescribeLedgerRequest,
    DescribeLedgerResponse,
    RemoveLedgerEntriesRequest,
    RemoveLedgerEntriesResponse,
)
from ...protocol.messages.transactions import EndTxnRequest
from ..client_thread import PAUSE_S, START_MS
from .protocol import Limits, Written

R = TypeVar("R")

DEFAULT_PREFIX = "fencepost.once."
TOPIC_TIMEOUT_MS = 3_000  # for so long the sink waits for a missing topic to appear
SAFE_TIMEOUT_MS = 60_000  # if the broker does not report its maximum
PREFIX_SETTING, TIMEOUT_SETTING = "transactional.id.ephemeral.prefix", "transaction.max.timeout.ms"

_BROKER = 4  # resource type of DescribeConfigs
_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_OF_THE_TOPIC = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class Facts(NamedTuple):
    """What a sink needs to know about a broker. has_ledger: it is fencepost. prefix: of transactional ids that are
    forgotten when their transaction ends. timeout_ms: the longest timeout of a transaction.
    """

    has_ledger: bool
    prefix: str
    timeout_ms: int


async def facts(cluster: Cluster) -> Facts:
    """Ask the broker for the Facts that a sink needs; waits while it restarts. Raises BrokerUnreachableError and other
    errors of the client.
    """
    restarting = Deadline(cluster.environment.clock, START_MS)
    while True:
        try:
            return await _facts(cluster)
        except KafkaError as error:
            if not is_retriable(error) or restarting.passed():
                raise
        await asyncio.sleep(PAUSE_S)


async def _facts(cluster: Cluster) -> Facts:
    """Ask the broker once for the Facts that a sink needs."""
    connection = await cluster.any_node()
    if not connection.features.get(OWN_FEATURE, 0):
        return Facts(False, "", SAFE_TIMEOUT_MS)
    node = next(iter(cluster.metadata.brokers), connection.node_id)
    resource = DescribeConfigsRequest.Resource(
        resource_type=_BROKER, resource_name=str(node), configuration_keys=[PREFIX_SETTING, TIMEOUT_SETTING]
    )
    found: dict[str, str | None] = {}
    if connection.knows(DescribeConfigsRequest):
        request = DescribeConfigsRequest(resources=[resource])
        answer: DescribeConfigsResponse = await cluster.ask(node, request)
        found = {each.name: each.value for result in answer.results for each in result.configs}
    return Facts(
        True,
        found.get(PREFIX_SETTING) or DEFAULT_PREFIX,
        int(found.get(TIMEOUT_SETTING) or SAFE_TIMEOUT_MS),
    )


async def find_topic(cluster: Cluster, topic: str, *, may_create: bool) -> None:
    """Check that the topic exists, or let the broker create it. Raises UnknownTopicError within seconds.

    The cached metadata is not used, because it may still have a deleted topic: then a task would fail only after
    minutes. Also raises other errors of the topic: no permission to write, or an invalid name.
    """
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=may_create)
    missed = Deadline(cluster.environment.clock, TOPIC_TIMEOUT_MS)

    def retry(failure: BaseException) -> bool:
        """Return whether to ask again after this failure: a missing topic only for TOPIC_TIMEOUT_MS."""
        is_missing = isinstance(failure, KafkaError) and failure.code == _MISSING
        return is_retriable(failure) and not (is_missing and missed.passed())

    def verdict(answer: MetadataResponse) -> int:
        """Return the topic's error code in a metadata response."""
        return answer.topics[0].error_code

    try:
        await cluster.ask_until("any", request, verdict=verdict, timeout_ms=START_MS, retry=retry)
    except KafkaError as error:
        if error.code == _MISSING:
            raise UnknownTopicError(f"there is no topic {topic!r}", hint="create the topic first") from None
        if error.code not in _OF_THE_TOPIC:
            raise
        raise error_of(error.code, f"topic {topic!r}: {error.code.text}") from None
    cluster.watch_topics([topic])


def limits(found: Facts, prepared_timeout_ms: int) -> Limits:
    """Return the limits of a task. The transaction's timeout is at most prepared_timeout_ms: if a task dies before
    PrepareTxn, its transaction blocks readers no longer than a prepared one would. prepared_timeout_ms: -1 for no
    limit.
    """
    timeout_ms = found.timeout_ms if prepared_timeout_ms < 0 else min(found.timeout_ms, prepared_timeout_ms)
    return Limits(found.prefix, timeout_ms, prepared_timeout_ms)


async def ask(cluster: Cluster, key: str, request: Any, *, timeout_ms: float) -> Any:
    """Send a request to the coordinator of this key, again after retriable errors, and return the response, also one
    with an error code. Raises RequestTimedOutError and others: then it is unknown whether the broker carried it out.
    """

    def verdict(response: Any) -> int:
        """Return the response's error code if the request is to be repeated because of it, else 0."""
        code = getattr(response, "error_code", 0)
        return int(code) if code_of(code) in _RETRIED else 0

    return await cluster.ask_until(("transaction", key), request, verdict=verdict, timeout_ms=timeout_ms)


async def carry_out(cluster: Cluster, key: str, steps: Generator[Any, Any, R], *, timeout_ms: float) -> R:
    """Send each request that the generator yields to the coordinator of this key, and send the response into the
    generator. Returns the generator's return value. timeout_ms: of each request.
    """
    answer: Any = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as end:
            found: R = end.value
            return found
        answer = await ask(cluster, key, request, timeout_ms=timeout_ms)


async def describe_entries(cluster: Cluster, *keys: str, timeout_ms: float) -> list[Any]:
    """Return the broker's description of these ledger keys, or of all if there are none given. Raises the broker's
    error.
    """
    answer: DescribeLedgerResponse = await ask(
        cluster, keys[0] if keys else "", DescribeLedgerRequest(keys=list(keys) or None), timeout_ms=timeout_ms
    )
    if answer.error_code:
        raise error_of(answer.error_code, answer.error_message or "")
    return list(answer.keys)


async def abort(cluster: Cluster, waiting: list[Written], *, timeout_ms: float) -> list[Written]:
    """Abort these transactions one by one. Returns the ones that were still open. Errors of the others are ignored."""
    ended = []
    for written in waiting:
        request = EndTxnRequest(
            transactional_id=written.transactional_id,
            producer_id=written.producer_id,
            producer_epoch=written.producer_epoch,
            committed=False,
        )
        answer = await ask(cluster, written.transactional_id, request, timeout_ms=timeout_ms)
        if not answer.error_code:
            ended.append(written)
    return ended


async def forget(cluster: Cluster, *keys: str, timeout_ms: float) -> None:
    """Remove these keys from the ledger. A key that does not exist is no error. Raises the broker's error for the
    first key that it did not remove for another reason.
    """
    if not keys:
        return
    answer: RemoveLedgerEntriesResponse = await ask(
        cluster, keys[0], RemoveLedgerEntriesRequest(keys=list(keys)), timeout_ms=timeout_ms
    )
    for each in answer.keys:
        if each.error_code not in (0, ErrorCode.RESOURCE_NOT_FOUND):
            raise error_of(each.error_code, each.error_message or each.key)
