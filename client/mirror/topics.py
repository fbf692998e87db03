"""Topics on the target: made with the source's partitions and settings, and as many partitions as the source has.

Settings are carried that are not defaults on the source, and that the target knows. Those that would refuse or change a
record, because of its timestamp, wait until the cutover (`settle_configs`): while a mirror runs, a record keeps the
timestamp that it has. Settings about replicas and about who may write are each cluster's own. Source: KIP-32, KIP-937.
"""

from collections.abc import Awaitable, Collection, Iterable

from ...protocol.errors import ErrorCode, KafkaError
from ..admin.admin import Admin
from ..admin.values import ConfigEntry, NewTopic
from ..errors import ClientError
from .names import MAP_TOPIC

FOR_EVER = str(2**63 - 1)
KEEPING = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOR_EVER,
    "message.timestamp.after.max.ms": FOR_EVER,
    "message.timestamp.difference.max.ms": FOR_EVER,
}
"""What the topics on the target have while the mirror runs: each record is taken, with its own timestamp."""

CONFIGS_OF_MAP = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
"""The target's clock dates the entries: a task whose own clock is an hour ahead would be refused else (KIP-937)."""

OWN = frozenset(
    {
        "fencepost.writes.refused",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "local.retention.ms",
        "local.retention.bytes",
    }
)
"""Settings that are not carried: a cluster has them for itself."""

DEFAULT_LARGEST = 1_048_588
"""Kafka's default of max.message.bytes. A source that allows more, for whatever reason, has a target that does, too."""

DURABILITY = "durability.mode"
"""Carried only where a topic has its own: a broker's is how it was started, and the target is started otherwise."""

LARGEST = "max.message.bytes"
_RACED = {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS}


def configs_to_make(source: Iterable[ConfigEntry], known: Collection[str]) -> dict[str, str]:
    """Return the settings of a topic that is made on the target. known: the settings that topics have there."""
    carried = {
        each.name: each.value
        for each in source
        if each.value is not None
        and not each.sensitive
        and each.name not in OWN
        and (each.name != DURABILITY or each.source == "topic")
        and (not each.is_default or _is_larger(each))
    }
    return {name: value for name, value in {**carried, **KEEPING}.items() if name in known}


def configs_to_settle(source: Iterable[ConfigEntry], known: Collection[str]) -> dict[str, str | None]:
    """Return the settings of timestamps that a topic on the target gets at the cutover, in place of those that keep
    every record as it is during the copy (KEEPING). A value of None means the default.
    """
    own = {each.name: each.value for each in source if not each.is_default}
    return {name: own.get(name) for name in KEEPING if name in known}


def _is_larger(entry: ConfigEntry) -> bool:
    """Return whether this entry is max.message.bytes with a value above Kafka's default."""
    return entry.name == LARGEST and entry.value is not None and int(entry.value) > DEFAULT_LARGEST


def partitions_to_add(name: str, source: int, target: int) -> int | None:
    """Return the number of partitions that the topic must get on the target; None if it has them.

    Raises ClientError if it has more than the source, because records in those came from elsewhere.
    """
    if target > source:
        raise ClientError(
            f"topic {name} has {target} partitions on the target, and {source} on the source",
            hint="partitions cannot be removed: delete the topic on the target, and let the mirror make it",
        )
    return source if target < source else None


async def follow_topics(source: Admin, target: Admin, names: Iterable[str]) -> None:
    """Make these topics on the target if they are not there, with the map's topic, and add partitions that are missing.

    May be called at any time, by several tasks at once. Raises ClientError for a topic with more partitions there than
    on the source, UnknownTopicError for one that the source does not have.
    """
    wanted = await source.describe_topics(list(names))
    there = await target.describe_topics()
    if MAP_TOPIC not in there:
        await _make(target, [NewTopic(MAP_TOPIC, 1, configs=CONFIGS_OF_MAP)])
    missing = [name for name in wanted if name not in there]
    if missing:
        known = await known_configs(target)
        configs = await source.describe_configs(topics=missing)
        await _make(
            target,
            [
                NewTopic(name, len(wanted[name].partitions), configs=configs_to_make(configs[name], known))
                for name in missing
            ],
        )
        there = await target.describe_topics()
    counts = {
        name: count
        for name, topic in wanted.items()
        if name in there
        if (count := partitions_to_add(name, len(topic.partitions), len(there[name].partitions))) is not None
    }
    for name, count in counts.items():
        await _unless_raced(target.create_partitions({name: count}))


async def settle_configs(source: Admin, target: Admin, names: Iterable[str]) -> None:
    """Give the topics on the target the source's settings of timestamps, which had to wait for the cutover."""
    there = await target.describe_topics()
    named = [name for name in names if name in there]
    if not named:
        return
    known = await known_configs(target)
    configs = await source.describe_configs(topics=named)
    for name in named:
        changes = configs_to_settle(configs[name], known)
        await target.alter_configs(
            topic=name,
            set={each: value for each, value in changes.items() if value is not None},
            delete=[each for each, value in changes.items() if value is None],
        )


async def known_configs(target: Admin) -> frozenset[str]:
    """Return the names of the settings that topics have on the target. The map's topic has to be there."""
    return frozenset(each.name for each in (await target.describe_configs(topics=MAP_TOPIC))[MAP_TOPIC])


async def _make(target: Admin, topics: list[NewTopic]) -> None:
    """Create these topics, each by a request of its own."""
    for each in topics:  # one by one: what another task has made must not hide why the next cannot be
        await _unless_raced(target.create_topics(each))


async def _unless_raced(request: Awaitable[None]) -> None:
    """Await the request. Ignore an error which says that another task has already made the topic or partition."""
    try:
        await request
    except KafkaError as error:
        if error.code not in _RACED:
            raise
