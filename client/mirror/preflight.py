"""Finds the problems of a mirror before it starts, from a description of both clusters. Pure.

Fatal is what would make the copy wrong, or cannot work. What may stop a partition later, or lose old records to the
target's retention, is only a remark: it depends on records that nobody has read yet. `describing.py` makes the
description.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .findings import Finding, fatal, named

NEEDED_HERE = ("read", "describe", "describe_configs")
NEEDED_THERE = ("write", "describe")
TRANSACTION_TIMEOUT_MS = 300_000
"""How long a transaction of a task may take, where to.transaction.timeout.ms does not say it: enough for a slow target.
The target has to allow it. Those of dead tasks are ended sooner (leftovers.py).
"""


@dataclass(frozen=True)
class TopicThere:
    """A topic on the target that the mirror would write to.

    empty: it has never had a record. positions: the mirror has a position in it. writers: who has written to it besides
    mirrors, as far as the target knows.
    """

    partitions: int
    allowed: frozenset[str] | None
    empty: bool
    positions: bool
    writers: tuple[str, ...] = ()


@dataclass(frozen=True)
class TopicSeen:
    """A topic to mirror. allowed: the operations that the login may do; None if the broker does not say it.

    largest_bytes: the largest batch that the source takes; largest_there_bytes: that the target takes, None if the
    topic is still to be made there. expired: the number of source offsets whose records are, by their timestamps, older
    than the target's retention. there: the topic on the target, None if it has to be made. share_groups: those that
    read it at the source.
    """

    name: str
    partitions: int
    allowed: frozenset[str] | None
    largest_bytes: int
    largest_there_bytes: int | None = None
    expired: int = 0
    retention_there_ms: int = -1
    there: TopicThere | None = None
    share_groups: tuple[str, ...] = ()


class Quota(NamedTuple):
    """A quota that may slow the mirror. side: "source" or "target". entity: whose it is, as people read it."""

    side: str
    entity: str
    name: str
    value: float


@dataclass(frozen=True)
class Described:
    """Both clusters, before a mirror starts. refused: what this login was not allowed to ask or do, with the side.

    timeout_ms: of the transactions of the mirror's tasks. timeout_there_ms: the longest that the target allows; None if
    it did not say it.
    """

    topics: tuple[TopicSeen, ...]
    same_cluster: bool = False
    refused: tuple[tuple[str, str], ...] = ()
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    timeout_there_ms: int | None = None
    quotas: tuple[Quota, ...] = ()


def find_problems(seen: Described) -> list[Finding]:
    """Return all problems of the mirror, and remarks, in the order of the description."""
    found = [*_of_clusters(seen)]
    for topic in seen.topics:
        found += _of_rights(topic)
        found += _of_target(topic)
        found += _of_records(topic)
    return found


def _of_clusters(seen: Described) -> Iterator[Finding]:
    """Yield findings about the clusters as a whole."""
    if seen.same_cluster:
        yield fatal("source and target are the same cluster", "--from and --to name different ones")
    for side, what in seen.refused:
        yield fatal(
            f"this login may not {what} at the {side}",
            f"fencepost acl add --allow USER gives a right; -X of the {side}",
        )
    longest = seen.timeout_there_ms
    if longest is not None and longest < seen.timeout_ms:
        yield fatal(
            f"the target allows transactions of {longest} ms, and those of the mirror have {seen.timeout_ms} ms",
            f"raise transaction.max.timeout.ms of its brokers, or add -X to.transaction.timeout.ms={longest}",
        )
    for quota in seen.quotas:
        yield Finding(
            False,
            f"{quota.entity} has {quota.name} {quota.value:g} at the {quota.side}: if the mirror is this client, that "
            "limits its rate",
            "fencepost quota list shows all",
        )


def _of_rights(topic: TopicSeen) -> Iterator[Finding]:
    """Yield a finding for each side at which this login lacks rights to the topic."""
    sides: list[tuple[str, frozenset[str] | None, tuple[str, ...]]] = [("source", topic.allowed, NEEDED_HERE)]
    if topic.there is not None:
        sides.append(("target", topic.there.allowed, NEEDED_THERE))
    for side, allowed, needed in sides:
        missing = [] if allowed is None else [each for each in needed if each not in allowed]
        if missing:
            yield fatal(
                f"this login may not {', '.join(missing)} topic {topic.name} at the {side}",
                f"fencepost acl add --allow USER --operation {missing[0].replace('_', '-')} --topic {topic.name}",
            )


def _of_target(topic: TopicSeen) -> Iterator[Finding]:
    """Yield findings about the topic on the target, if it exists there."""
    there = topic.there
    if there is None:
        return
    hint = "delete the topic at the target, and let the mirror make it; or leave it out of --topics"
    if there.partitions > topic.partitions or (there.partitions < topic.partitions and not there.positions):
        yield fatal(
            f"topic {topic.name} has {there.partitions} partitions at the target, and {topic.partitions} at the source",
            hint,
        )
    if not there.empty and not there.positions:
        yield fatal(f"topic {topic.name} has records at the target that this mirror did not write", hint)
    elif there.writers:
        yield fatal(
            f"others write to topic {topic.name} at the target: {named(there.writers)}",
            "only the mirror may, until the cutover: stop them, and mirror into a new topic",
        )


def _of_records(topic: TopicSeen) -> Iterator[Finding]:
    """Yield remarks about records that the target may refuse or delete early."""
    if topic.largest_there_bytes is not None and topic.largest_there_bytes < topic.largest_bytes:
        yield Finding(
            False,
            f"topic {topic.name} takes batches of {topic.largest_bytes} bytes at the source, and of "
            f"{topic.largest_there_bytes} at the target: a larger record stops its partition",
            f"fencepost topic alter {topic.name} -c max.message.bytes={topic.largest_bytes} at the target",
        )
    if topic.expired:
        yield Finding(
            False,
            f"topic {topic.name} has records older than the retention of {topic.retention_there_ms} ms at the target, "
            f"in the first {topic.expired} offsets: it may delete them at once",
            f"set retention.ms of {topic.name} at the target until the groups have read them",
        )
    if topic.share_groups:
        yield Finding(
            False,
            f"share groups read topic {topic.name}, and are not moved: {named(topic.share_groups)}",
            "let them finish at the source, and make new ones at the target",
        )
