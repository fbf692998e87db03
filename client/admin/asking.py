"""How Admin asks: whom, how often, until when, and what becomes of an answer that says no for some of what was asked.

The rule: every call of Admin ends within default_api_timeout_ms. What a broker says will pass is asked again; that
there is no such topic is believed at once, because a person who mistyped a name is waiting. Where several things were
asked for and some refused, the others are done, and the first refusal is raised with the others as notes.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.messages.cluster import MetadataRequest, MetadataResponse
from ..errors import RequestTimedOutError, UnknownTopicError, UnsupportedVersionError, code_of, error_of
from ..net.cluster import Cluster, Target
from ..net.environment import Environment
from ..net.retry import Backoff, Deadline
from ..settings import ConnectionSettings
from ..values import TopicPartition

T = TypeVar("T")

_BELIEVED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Answer(NamedTuple):
    """What one item of a request came to."""

    what: str
    code: int
    message: str | None = None


class Asking:
    """The part that all areas of Admin share."""

    _cluster: Cluster
    _settings: ConnectionSettings
    _environment: Environment

    async def _version(self, request_class: type) -> int:
        """The highest that some broker and we know; -1 where it does not know the API."""
        try:
            return (await self._cluster.any_node()).version_of(request_class)
        except UnsupportedVersionError:
            return -1

    def _deadline(self) -> Deadline:
        return Deadline(self._environment.clock, self._settings.default_api_timeout_ms)

    async def _ask(
        self, target: Target, request: Any, codes: Callable[[Any], Iterable[int]], *, cap: int | None = None
    ) -> Any:
        """The response, asked for again while one of its codes says that it will pass."""
        return await self._cluster.ask_until(
            target,
            request,
            verdict=lambda response: first_passing(codes(response)),
            timeout_ms=self._settings.default_api_timeout_ms,
            cap=cap,
        )

    async def _metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        """Of these topics, or of all. Raises UnknownTopicError, and for names that no topic can have."""
        asked = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        response: MetadataResponse = await self._ask(
            "any", request, lambda r: () if topics is None else [each.error_code for each in r.topics]
        )
        if topics is not None:  # of all, one that is just being made or deleted is not in the way
            refuse(Answer(f"topic {each.name}", each.error_code) for each in response.topics)
        return response

    async def _leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The node that leads each; -1 where there is none now. Raises UnknownTopicError."""
        wanted = list(partitions)
        metadata = await self._metadata(dict.fromkeys(each.topic for each in wanted)) if wanted else None
        led = {
            TopicPartition(topic.name or "", each.partition_index): each.leader_id
            for topic in (metadata.topics if metadata else [])
            for each in topic.partitions
        }
        for each in wanted:
            if each not in led:
                raise UnknownTopicError(f"topic {each.topic} has no partition {each.partition}")
        return {each: led[each] for each in wanted}

    async def _at_leaders(
        self,
        partitions: Iterable[TopicPartition],
        request: Callable[[list[TopicPartition]], Any],
        answers: Callable[[Any], Iterable[tuple[TopicPartition, int, str | None, T]]],
        *,
        cap: int | None = None,
    ) -> dict[TopicPartition, T]:
        """Ask the leader of each partition, and look for the leaders again where they have moved."""
        left, found, refused = list(partitions), dict[TopicPartition, T](), list[Answer]()
        deadline, backoff, attempt = self._deadline(), self._backoff(), 0
        while left:
            in_the_way = await self._once_at_leaders(left, request, answers, found, refused, cap)
            left = list(in_the_way)
            if not left:
                break
            pause_ms = backoff.delay_ms(attempt, self._environment.rng.random())
            if deadline.left_ms() <= pause_ms:
                first, code = next(iter(in_the_way.items()))
                raise RequestTimedOutError(f"{first}: {code_of(code).text}")
            attempt += 1
            await asyncio.sleep(pause_ms / 1000)
        refuse(refused)
        return found

    async def _once_at_leaders(
        self,
        partitions: list[TopicPartition],
        request: Callable[[list[TopicPartition]], Any],
        answers: Callable[[Any], Iterable[tuple[TopicPartition, int, str | None, T]]],
        found: dict[TopicPartition, T],
        refused: list[Answer],
        cap: int | None,
    ) -> dict[TopicPartition, int]:
        """Those that should be asked for again, and why."""
        again: dict[TopicPartition, int] = {}
        led: dict[int, list[TopicPartition]] = {}
        for each, leader in (await self._leaders(partitions)).items():
            if leader < 0:
                again[each] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                led.setdefault(leader, []).append(each)
        asked = (self._ask(leader, request(each), lambda _: (), cap=cap) for leader, each in led.items())
        for response in await all_of(asked):
            for each, code, message, value in answers(response):
                if code == ErrorCode.NONE:
                    found[each] = value
                elif first_passing([code]) is not ErrorCode.NONE:
                    again[each] = code
                else:
                    refused.append(Answer(str(each), code, message))
        return again

    async def _at_all_nodes(self, request: Any, codes: Callable[[Any], Iterable[int]]) -> list[tuple[int, Any]]:
        """(node id, response) of every broker there is."""
        nodes = [each.node_id for each in (await self._metadata([])).brokers]
        return list(zip(nodes, await all_of(self._ask(node, request, codes) for node in nodes), strict=True))

    def _backoff(self) -> Backoff:
        return Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)


async def all_of(questions: Iterable[Any]) -> list[Any]:
    """The answers, in order; the first error ends the others."""
    tasks = [asyncio.ensure_future(each) for each in questions]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def first_passing(codes: Iterable[int]) -> ErrorCode:
    """The first code that asking again may cure; NONE if there is none."""
    for number in codes:
        error = error_of(number) if number else None
        if error is not None and error.code.retriable and error.code not in _BELIEVED:
            return error.code
    return ErrorCode.NONE


def refuse(answers: Iterable[Answer]) -> None:
    """Raises the error of the first answer that is one, with those of the others as notes."""
    refused = [each for each in answers if each.code != ErrorCode.NONE]
    if not refused:
        return
    texts = [f"{each.what}: {_sentence(each.message) or error_of(each.code).code.text}" for each in refused]
    others = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    error = error_of(refused[0].code, texts[0] + others)
    for text in texts[1:]:
        error.add_note(text)
    raise error


def _sentence(message: str | None) -> str:
    return " ".join((message or "").split())


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """The partitions of each topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def one_or_more(names: str | Iterable[str]) -> Iterator[str]:
    """A single name stands for a list of one."""
    return iter((names,)) if isinstance(names, str) else iter(names)
