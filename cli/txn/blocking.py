"""Which transaction blocks a partition's readers, as facts and as one sentence. Pure.

The rule: the sentence contains id, age, owner and partition, and the command to run if no coordinator will end it.
"""

from typing import TYPE_CHECKING, Any

from ..output.tables import duration

if TYPE_CHECKING:
    from ...client.admin.values import Blocker


def blocked_facts(blocker: "Blocker", now_ms: int) -> dict[str, Any]:
    """The facts. age_ms: since its start, or, if that is unknown, since its last record."""
    producer, owner = blocker.open.producer, blocker.description
    since = blocker.since_ms
    return {
        "topic": blocker.open.topic_partition.topic,
        "partition": blocker.open.topic_partition.partition,
        "transactional_id": owner.transactional_id if owner else None,
        "state": owner.state if owner else None,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator": owner.coordinator if owner else None,
        "age_ms": None if since is None else max(0, now_ms - since),
        "timeout_ms": owner.timeout_ms if owner else None,
        "start_offset": blocker.open.start_offset,
        "lso": blocker.last_stable_offset,
        "hw": blocker.high_watermark,
        "hangs": blocker.hangs,
    }


def sentence(facts: dict[str, Any]) -> str:
    """The facts in one sentence."""
    from ...effects.counts import count_text

    at = f"{facts['topic']}-{facts['partition']}"
    waits = count_text(facts["hw"] - facts["lso"], "offset waits", "offsets wait")
    producer = f"producer {facts['producer_id']} epoch {facts['producer_epoch']}"
    age = duration(facts["age_ms"])
    if not facts["hangs"]:
        return (
            f"{at} is blocked at {facts['lso']} ({waits}) by transaction {facts['transactional_id']}"
            f" of {producer}, {facts['state']} for {age} of {duration(facts['timeout_ms'])}"
        )
    whose = f"formerly of {facts['transactional_id']}" if facts["transactional_id"] else "of an unknown id"
    return (
        f"{at} is blocked at {facts['lso']} ({waits}) by a hanging transaction of {producer}, {whose},"
        f" last written {age} ago: fencepost txn abort {facts['topic']}:{facts['partition']}"
        f" --start-offset {facts['start_offset']} ends it"
    )
