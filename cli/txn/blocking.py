"""Which transaction blocks a partition's readers, as facts and as one sentence. Pure.

The rule: the sentence contains id, age, owner and partition, and the command to run if no coordinator will end it.
"""

from typing import TYPE_CHECKING, Any

from ..output.tables import duration
from .facts import WAITING, wait_text

if TYPE_CHECKING:
    from ...client.admin.values import Blocker, OpenTransaction, PreparedTransaction, TransactionDescription
    from ...client.values import TopicPartition


def blocked_facts(blocker: "Blocker", now_ms: int) -> dict[str, Any]:
    """Return a transaction that blocks a partition as a JSON object. age_ms: since its start, or, if that is
    unknown, since its last record.
    """
    return {
        "topic": blocker.open.topic_partition.topic,
        "partition": blocker.open.topic_partition.partition,
        **transaction_facts(blocker.open, blocker.description, blocker.prepared, blocker.since_ms, now_ms),
        "lso": blocker.last_stable_offset,
        "hw": blocker.high_watermark,
        "hangs": blocker.hangs,
    }


def transaction_facts(
    found: "OpenTransaction",
    owner: "TransactionDescription | None",
    prepared: "PreparedTransaction | None",
    since_ms: int | None,
    now_ms: int,
) -> dict[str, Any]:
    """Return a transaction that is open in a partition as a JSON object. state: Prepared or Held if it waits for a
    decision.
    """
    return {
        "transactional_id": owner.transactional_id if owner else None,
        "state": prepared.state if prepared else owner.state if owner else None,
        "sink": prepared.sink if prepared else None,
        "batch": prepared.number if prepared else None,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.producer_epoch,
        "coordinator": owner.coordinator if owner else None,
        "age_ms": None if since_ms is None else max(0, now_ms - since_ms),
        "timeout_ms": owner.timeout_ms if owner else None,
        "start_offset": found.start_offset,
    }


def leaderless_facts(partition: "TopicPartition") -> dict[str, Any]:
    """Return a partition without a leader, which nobody can read, as a JSON object."""
    return {"topic": partition.topic, "partition": partition.partition, "leader": None}


def sentence(facts: dict[str, Any]) -> str:
    """Return the facts of blocked_facts() or leaderless_facts() in one sentence."""
    from ...effects.counts import count_text

    if "leader" in facts:
        where = f"{facts['topic']}-{facts['partition']}"
        return (
            f"{where} has no leader: its broker is down, or its log is offline, of which the broker's own log has more"
        )

    at = f"{facts['topic']}-{facts['partition']}"
    waits = count_text(facts["hw"] - facts["lso"], "offset waits", "offsets wait")
    held_by = holder(facts, f"{facts['topic']}:{facts['partition']}")
    return f"{at} is blocked at {facts['lso']} ({waits}) by {held_by}"


def holder(facts: dict[str, Any], at: str) -> str:
    """Return words that name a transaction. facts: of transaction_facts(). at: the place at which `txn abort` finds
    a hanging one.
    """
    producer = f"producer {facts['producer_id']} epoch {facts['producer_epoch']}"
    age = duration(facts["age_ms"])
    if not facts["hangs"]:
        text = f"transaction {facts['transactional_id']} of {producer}, {facts['state']} for {age}"
        if facts["state"] in WAITING:  # only the decision ends it, and no longer its timeout
            return f"{text}: it waits for {wait_text(facts)}"
        return f"{text} of {duration(facts['timeout_ms'])}"
    whose = f"formerly of {facts['transactional_id']}" if facts["transactional_id"] else "of an unknown id"
    return (
        f"a hanging transaction of {producer}, {whose}, last written {age} ago:"
        f" fencepost txn abort {at} --start-offset {facts['start_offset']} ends it"
    )
