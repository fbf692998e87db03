"""How Admin sends requests: to which broker, how often, until when, and what it raises if some items failed.

The rule: every call of Admin ends within default_api_timeout_ms. A retriable error is retried, but an unknown topic is
not: a person who mistyped a name should not wait. If some items of a request fail, the others are done; the error of
the first one is raised, with those of the others as notes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cluster import MetadataRequest, MetadataResponse
from ..errors import (
    ClientError,
    RequestTimedOutError,
    UnknownTopicError,
    UnsupportedVersionError,
    error_of,
    is_retriable,
    refusal,
)
from ..net.cluster import Cluster, Target
from ..net.environment import Environment
from ..net.retry import Backoff, Deadline
from ..settings import ConnectionSettings
from ..values import TopicPartition

T = TypeVar("T")

_NOT_RETRIED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Answer(NamedTuple):
    """The result of one item of a request."""

    what: str
    code: int
    message: str | None = None


class Asking:
    """The base class of all areas of Admin: sends requests, with retries."""

    _cluster: Cluster
    _settings: ConnectionSettings
    _environment: Environment

    async def _version(self, request_class: type) -> int:
        """Return the highest version of the API that a broker and we both know; -1 if it does not have the API."""
        try:
            return (await self._cluster.any_node()).version_of(request_class)
        except UnsupportedVersionError:
            return -1

    def _deadline(self) -> Deadline:
        return Deadline(self._environment.clock, self._settings.default_api_timeout_ms)

    async def _ask(
        self, target: Target, request: Any, codes: Callable[[Any], Iterable[int]], *, cap: int | None = None
    ) -> Any:
        """Send a request and return the response. Repeats it while one of `codes(response)` is retriable; after
        default_api_timeout_ms raises RequestTimedOutError.
        """
        return await self._cluster.ask_until(
            target,
            request,
            verdict=lambda response: first_retriable(codes(response)),
            timeout_ms=self._settings.default_api_timeout_ms,
            cap=cap,
        )

    async def _metadata(self, topics: Iterable[str] | None, *, skip_missing: bool = False) -> MetadataResponse:
        """Return metadata of these topics, or of all. Raises UnknownTopicError and INVALID_TOPIC_EXCEPTION.

        skip_missing: an unknown topic is not an error; it has no partitions.
        """
        named = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        response: MetadataResponse = await self._ask(
            "any", request, lambda r: () if topics is None else [each.error_code for each in r.topics]
        )
        if topics is not None:  # in a list of all, a topic may be in creation or deletion
            refuse(
                Answer(f"topic {each.name}", each.error_code)
                for each in response.topics
                if not (skip_missing and each.error_code in _NOT_RETRIED)
            )
        return response

    async def _leaders(self, partitions: Iterable[TopicPartition], *, skip_missing: bool) -> dict[TopicPartition, int]:
        """Return the node id of each partition's leader, -1 if it has none now. Raises UnknownTopicError."""
        wanted = list(partitions)
        names = dict.fromkeys(each.topic for each in wanted)
        metadata = await self._metadata(names, skip_missing=skip_missing) if wanted else None
        leaders = {
            TopicPartition(topic.name or "", each.partition_index): each.leader_id
            for topic in (metadata.topics if metadata else [])
            for each in topic.partitions
        }
        for each in wanted:
            if each not in leaders and not skip_missing:
                raise UnknownTopicError(f"topic {each.topic} has no partition {each.partition}")
        return {each: leaders[each] for each in wanted if each in leaders}

    async def _at_leaders(
        self,
        partitions: Iterable[TopicPartition],
        request: Callable[[list[TopicPartition]], Any],
        answers: Callable[[Any], Iterable[tuple[TopicPartition, int, str | None, T]]],
        *,
        cap: int | None = None,
        skip_missing: bool = False,
        unavailable: dict[TopicPartition, KafkaError] | None = None,
    ) -> dict[TopicPartition, T]:
        """Send requests to the leaders of the partitions, and return what they answer for each partition. Looks the
        leaders up again for partitions that have to be retried.

        request: makes the request for one leader's partitions. answers: gives partition, error code, message and result
        of each item in a response. skip_missing: leave out partitions that do not exist (any more), for callers that
        list them first. unavailable: if it is given, each leader is asked once only; a partition that would have to be
        retried is left out, and its error is put there.
        """

        async def ask(leader: int, some: list[TopicPartition]) -> Any:
            """Return the leader's response; where it is asked once only, an error that would have to be retried."""
            if unavailable is None:
                return await self._ask(leader, request(some), lambda _: (), cap=cap)
            try:
                return await self._cluster.ask(leader, request(some), cap=cap)
            except KafkaError as error:
                if not is_retriable(error):
                    raise
                return error

        left = [TopicPartition(*each) for each in partitions]
        found, refused = dict[TopicPartition, T](), list[Answer]()
        deadline, backoff, attempt = self._deadline(), self._backoff(), 0
        while left:
            leaders = await self._leaders(left, skip_missing=skip_missing)
            retriable = await self._once_at_leaders(leaders, ask, answers, found, refused)
            if unavailable is not None:
                unavailable |= retriable
                break
            left = list(retriable)
            if not left:
                break
            pause_ms = backoff.delay_ms(attempt, self._environment.rng.random())
            if deadline.left_ms() <= pause_ms:
                first, last = next(iter(retriable.items()))
                raise RequestTimedOutError(f"{first}: {last}", code=last.code) from last
            attempt += 1
            await asyncio.sleep(pause_ms / 1000)
        refuse(each for each in refused if not (skip_missing and each.code in _NOT_RETRIED))
        return found

    async def _once_at_leaders(
        self,
        leaders: Mapping[TopicPartition, int],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Any]],
        answers: Callable[[Any], Iterable[tuple[TopicPartition, int, str | None, T]]],
        found: dict[TopicPartition, T],
        refused: list[Answer],
    ) -> dict[TopicPartition, KafkaError]:
        """Ask each leader once. Returns the partitions to try again, with their errors. Adds results to `found`, and
        items with a final error to `refused`.

        leaders: -1 for a partition without one. ask: returns a leader's response, or an error for all its partitions.
        """
        again: dict[TopicPartition, KafkaError] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for each, leader in leaders.items():
            if leader < 0:
                again[each] = refusal(ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                by_leader.setdefault(leader, []).append(each)
        requests = (ask(leader, some) for leader, some in by_leader.items())
        for asked, response in zip(by_leader.values(), await all_of(requests), strict=True):
            if isinstance(response, KafkaError):
                again |= dict.fromkeys(asked, response)
                continue
            answered = {answer[0]: answer for answer in answers(response)}
            for each in asked:
                if each not in answered:
                    again[each] = refusal(ErrorCode.REQUEST_TIMED_OUT)
                    continue
                _, code, message, value = answered[each]
                if code == ErrorCode.NONE:
                    found[each] = value
                elif first_retriable([code]) is not ErrorCode.NONE:
                    again[each] = refusal(code, message)
                else:
                    refused.append(Answer(str(each), code, message))
        return again

    async def _at_all_nodes(self, request: Any, codes: Callable[[Any], Iterable[int]]) -> list[tuple[int, Any]]:
        """Send the request to every broker of the cluster. Returns node id and response of each."""
        nodes = [each.node_id for each in (await self._metadata([])).brokers]
        return list(zip(nodes, await all_of(self._ask(node, request, codes) for node in nodes), strict=True))

    def _backoff(self) -> Backoff:
        return Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)


async def all_of(requests: Iterable[Any]) -> list[Any]:
    """Await all and return the results in order; the first error cancels the others."""
    tasks = [asyncio.ensure_future(each) for each in requests]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def first_retriable(codes: Iterable[int]) -> ErrorCode:
    """Return the first code for which Admin retries; NONE if there is none."""
    for number in codes:
        error = error_of(number) if number else None
        if error is not None and error.code.retriable and error.code not in _NOT_RETRIED:
            return error.code
    return ErrorCode.NONE


def only(answers: Sequence[T], what: str) -> T:
    """Return the only answer of a response. Raises ClientError if there is none, or more than one."""
    if len(answers) != 1:
        raise ClientError(f"the broker did not answer for {what}")
    return answers[0]


def refuse(answers: Iterable[Answer]) -> None:
    """Raise the error of the first failed answer, with those of the other failed ones as notes."""
    failed = [each for each in answers if each.code != ErrorCode.NONE]
    if not failed:
        return
    texts = [f"{each.what}: {_in_one_line(each.message) or error_of(each.code).code.text}" for each in failed]
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    error = error_of(failed[0].code, texts[0] + others)
    for text in texts[1:]:
        error.add_note(text)
    raise error


def _in_one_line(message: str | None) -> str:
    return " ".join((message or "").split())


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Group partitions by topic: topic → its partition numbers."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def one_or_more(names: str | Iterable[str]) -> Iterator[str]:
    """Return an iterator over these names; a `str` is a single name."""
    return iter((names,)) if isinstance(names, str) else iter(names)
