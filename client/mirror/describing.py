"""Gathers what `preflight` judges, from both clusters, and changes nothing there."""

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ..admin.admin import Admin
from ..admin.offsets import EARLIEST, LATEST
from ..admin.values import ConfigEntry, TopicDescription
from ..errors import AuthorizationError, UnsupportedVersionError
from ..net.environment import SYSTEM
from ..values import TopicPartition
from .cutover.looking import SETTING
from .findings import Finding
from .names import PREFIX, group_id, transactional_id
from .preflight import TRANSACTION_TIMEOUT_MS, Described, Quota, TopicSeen, TopicThere, find_problems
from .topics import LARGEST

T = TypeVar("T")

_NOT_SAID = (UnsupportedVersionError, AuthorizationError)


async def look(
    source: Admin, target: Admin, names: Iterable[str], mirror: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS
) -> list[Finding]:
    """Return the problems of a mirror of these topics, and remarks. timeout_ms: of the transactions of its tasks.

    Raises UnknownTopicError.
    """
    seen = await Describing(source, target, mirror).describe(list(names))
    return find_problems(replace(seen, timeout_ms=timeout_ms))


class Describing:
    """Asks both clusters. What this login may not ask is named in `refused`."""

    def __init__(self, source: Admin, target: Admin, mirror: str) -> None:
        self._source, self._target, self._mirror = source, target, mirror
        self._refused: list[tuple[str, str]] = []

    async def describe(self, names: list[str]) -> Described:
        """Return the description of both clusters, for these topics."""
        here = await self._source.describe_topics(names)
        there = await self._target.describe_topics()
        positions = await self._positions()
        await self._ask_for_transactions()
        readers = await self._share_readers()
        topics = [await self._topic(here[name], there.get(name), positions, readers) for name in sorted(here)]
        ids = [(await each.describe_cluster()).cluster_id for each in (self._source, self._target)]
        return Described(
            tuple(topics),
            ids[0] == ids[1] is not None,
            tuple(self._refused),
            timeout_there_ms=await self._longest_transaction_ms(),
            quotas=(*await _quotas(self._source, "source"), *await _quotas(self._target, "target")),
        )

    async def _positions(self) -> set[TopicPartition]:
        """Return the partitions in which the mirror has a position. If this login may not ask, that is noted in
        `refused`.
        """
        try:
            return set(await self._target.list_group_offsets(group_id(self._mirror)))
        except AuthorizationError:
            self._refused.append(("target", f"read as group {group_id(self._mirror)}"))
            return set()

    async def _ask_for_transactions(self) -> None:
        """Note in `refused` if this login may not use the mirror's transactional ids. It tries to describe one, because
        whoever may write as an id may also describe it.
        """
        try:
            await self._target.describe_transactions(transactional_id(self._mirror, "preflight"))
        except AuthorizationError:
            self._refused.append(("target", f"write as transactional ids that begin with {PREFIX}"))
        except UnsupportedVersionError:
            return

    async def _topic(
        self,
        here: TopicDescription,
        there: TopicDescription | None,
        positions: set[TopicPartition],
        readers: Mapping[str, tuple[str, ...]],
    ) -> TopicSeen:
        """Return what is known of one topic on both sides."""
        name = here.name
        configs = await self._configs(self._source, "source", name)
        seen = TopicSeen(
            name,
            len(here.partitions),
            (await self._source.allowed_operations(name)).get(name),
            int(configs.get(LARGEST, "0")),
            share_groups=readers.get(name, ()),
        )
        if there is None:
            return seen
        found = await self._configs(self._target, "target", name)
        retention_ms = int(found.get("retention.ms", "-1"))
        expires = "delete" in found.get("cleanup.policy", "") and SETTING not in found  # fencepost goes by arrival
        return replace(
            seen,
            largest_there_bytes=int(found[LARGEST]) if LARGEST in found else None,
            expired=await self._expired(here, retention_ms) if expires and retention_ms >= 0 else 0,
            retention_there_ms=retention_ms,
            there=await self._there(there, positions),
        )

    async def _configs(self, admin: Admin, side: str, topic: str) -> dict[str, str]:
        """Return the topic's settings by name. If this login may not ask, that is noted in `refused`."""
        try:
            entries: list[ConfigEntry] = (await admin.describe_configs(topics=topic))[topic]
        except AuthorizationError:
            self._refused.append((side, f"describe the settings of topic {topic}"))
            return {}
        return {each.name: each.value for each in entries if each.value is not None}

    async def _there(self, topic: TopicDescription, positions: set[TopicPartition]) -> TopicThere:
        """Return what the target has of the topic."""
        partitions = topic.topic_partitions
        ends = await self._target.ends(partitions, LATEST)
        return TopicThere(
            len(partitions),
            (await self._target.allowed_operations(topic.name)).get(topic.name),
            not any(ends.values()),
            any(each in positions for each in partitions),
            await self._writers(partitions),
        )

    async def _writers(self, partitions: list[TopicPartition]) -> tuple[str, ...]:
        """Return who has written to these partitions of the target lately, besides mirrors."""
        try:
            states = await self._target.describe_producers(partitions)
            ids = {each.producer_id for known in states.values() for each in known}
            listed = await self._target.list_transactions(producer_ids=sorted(ids)) if ids else []
        except _NOT_SAID:
            return ()
        owners = {each.producer_id: each.transactional_id for each in listed}
        others = {owners.get(each, f"producer id {each}") for each in ids}
        return tuple(sorted(each for each in others if not each.startswith(f"{PREFIX}-")))

    async def _expired(self, topic: TopicDescription, retention_ms: int) -> int:
        """Return how many offsets of the source come before the first record that the target would keep."""
        partitions = topic.topic_partitions
        oldest_ms = max(0, SYSTEM.clock.now_ms() - retention_ms)
        unavailable = dict[TopicPartition, KafkaError]()  # is not looked at, and the mirror says so
        starts = await self._source.ends(partitions, EARLIEST, unavailable=unavailable)
        ends = await self._source.ends(partitions, LATEST, unavailable=unavailable)
        kept = await self._source.list_offsets(dict.fromkeys(partitions, oldest_ms), unavailable=unavailable)
        known = [each for each in partitions if each not in unavailable]
        firsts = {each: kept[each].offset if kept[each].offset >= 0 else ends[each] for each in known}
        return sum(max(0, firsts[each] - starts[each]) for each in known)

    async def _share_readers(self) -> dict[str, tuple[str, ...]]:
        """Return the share groups that read each topic of the source."""
        found: dict[str, set[str]] = {}
        for group in await self._source.list_groups():
            if group.group_type == "share":
                for partition in await self._source.list_share_group_offsets(group.group_id):
                    found.setdefault(partition.topic, set()).add(group.group_id)
        return {topic: tuple(sorted(groups)) for topic, groups in found.items()}

    async def _longest_transaction_ms(self) -> int | None:
        """Return transaction.max.timeout.ms of the target; None if this login may not ask."""
        nodes = [each.node_id for each in (await self._target.describe_cluster()).nodes]
        configs = await _if_said(self._target.describe_configs(brokers=nodes[:1])) or {}
        named = {each.name: each.value for entries in configs.values() for each in entries}
        value = named.get("transaction.max.timeout.ms")
        return None if value is None else int(value)


async def _quotas(admin: Admin, side: str) -> list[Quota]:
    """Return the quotas on bytes per second that may apply to a mirror; none if this login may not ask."""
    name = "consumer_byte_rate" if side == "source" else "producer_byte_rate"
    found = await _if_said(admin.describe_client_quotas()) or {}
    return [Quota(side, str(entity), name, values[name]) for entity, values in found.items() if name in values]


async def _if_said(request: Awaitable[T]) -> T | None:
    """Await the request and return its result; None if the broker does not have the API, or this login may not ask."""
    try:
        return await request
    except _NOT_SAID:
        return None
    except KafkaError as error:
        if error.code in (ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return None
        raise
