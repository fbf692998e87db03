"""What stops somebody though no transaction blocks a partition. Pure.

That is: a nearly full disk, partitions without a leader, offsets that a transaction holds.

The rule: each row has a sentence that names the cause; ages are no change.
"""

from typing import Any

from ...client.admin.values import HeldOffsets, LowLogDir
from ...client.values import TopicPartition
from .view import SHOWN_IN_LIST, View, partition_name, prepared_row

MOST_ALARMS = 100


def alarm_rows(view: View) -> list[dict[str, Any]]:
    """Up to MOST_ALARMS rows: disks first, then partitions, then groups, the longest held first."""
    rows = [_disk(each) for each in view.low_disks] + _leaderless(view) + [_held(each, view) for each in view.held]
    return rows[:MOST_ALARMS]


def ageless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without their ages, for comparing: a growing age is not a change."""
    return [{name: value for name, value in row.items() if name not in ("age_ms", "usable_bytes")} for row in rows]


def _disk(low: LowLogDir) -> dict[str, Any]:
    refused = "" if low.floor_bytes is None else ": produce requests are refused (storage.min.free.bytes)"
    return {
        "kind": "low_disk",
        "broker_id": low.broker,
        "log_dir": low.path,
        "usable_bytes": low.usable_bytes,
        "floor_bytes": low.floor_bytes,
        "sentence": f"the disk of broker {low.broker} is nearly full{refused}",
    }


def _leaderless(view: View) -> list[dict[str, Any]]:
    """Return one row for all partitions without a leader, if there are any."""
    found = [
        TopicPartition(name, each.partition)
        for name, topic in view.topics.items()
        for each in topic.partitions
        if each.leader < 0
    ]
    if not found:
        return []
    named = ", ".join(map(str, found[:SHOWN_IN_LIST])) + (", and others" if len(found) > SHOWN_IN_LIST else "")
    return [
        {
            "kind": "without_leader",
            "partitions": [partition_name(each) for each in found[:SHOWN_IN_LIST]],
            "partitions_count": len(found),
            "sentence": f"{named}: without a leader. The broker is down, or the log is offline: its own log says why",
        }
    ]


def _held(held: HeldOffsets, view: View) -> dict[str, Any]:
    """Return the alarm about a group whose offsets are held by an open transaction."""
    owner, producer = held.description, held.open.producer
    return {
        "kind": "held_offsets",
        "consumer_group_id": held.group_id,
        "partitions": [partition_name(each) for each in held.partitions[:SHOWN_IN_LIST]],
        "partitions_count": len(held.partitions),
        "transactional_id": owner.transactional_id if owner else None,
        "state": "Prepared" if held.prepared else owner.state if owner else None,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "age_ms": None if held.since_ms is None else max(0, view.at_ms - held.since_ms),
        "timeout_ms": owner.timeout_ms if owner else None,
        "hangs": held.hangs,
        "prepared": prepared_row(held.prepared),
        "sentence": f"the offsets of group {held.group_id} are held by {_holder(held)}",
    }


def _holder(held: HeldOffsets) -> str:
    """Return the transaction that holds a group's offsets, as a text."""
    producer = f"producer {held.open.producer.producer_id} epoch {held.open.producer.producer_epoch}"
    if held.hangs or held.description is None:
        return f"a transaction of {producer} that no coordinator will end"
    return f"transaction {held.description.transactional_id} of {producer}"
