"""Which names a topic may have. Pure. The rules and their words are Kafka's (Topic.validate, Topic.hasCollision)."""

import re
from collections.abc import Iterable

from ...protocol.errors import ErrorCode, KafkaError

LONGEST = 249
OFFSETS_TOPIC, STATE_TOPIC, LEDGER_TOPIC = "__consumer_offsets", "__transaction_state", "__fencepost_ledger"
PRODUCERS_TOPIC, SHARE_STATE_TOPIC = "__fencepost_producers", "__share_group_state"
# Topics of coordinators, compacted whatever their settings say.
COMPACTED = frozenset({OFFSETS_TOPIC, STATE_TOPIC, LEDGER_TOPIC, PRODUCERS_TOPIC})
INTERNAL = COMPACTED | {SHARE_STATE_TOPIC}  # only its coordinator deletes records of SHARE_STATE_TOPIC
TopicIdPartition = tuple[bytes, int]
"""The id of a topic, and the number of a partition (Kafka's TopicIdPartition)."""
CLUSTER_TOPIC = "__cluster_metadata"  # the log of Kafka's controllers: no topic may have its name
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION, with the reason, for an invalid name."""
    reason = _wrong_with(name)
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def _wrong_with(name: str) -> str | None:
    """Return why the name is invalid, in Kafka's words; None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > LONGEST:
        return f"the length of '{name}' is longer than the max allowed length {LONGEST}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def unify(name: str) -> str:
    """Return the name with `.` as `_`, as metric systems do. Topics with the same result may not both exist."""
    return name.replace(".", "_")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if an existing topic's name differs from this one only in `.` and `_`.

    existing: the topics with the same unify().
    """
    for other in existing:
        if other != name:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
