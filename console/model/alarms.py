"""Alarms: conditions in which a client cannot work although no transaction blocks a partition. Pure.

These are: a nearly full disk, partitions without a leader, groups whose committed offsets a transaction holds back, and
share groups whose windows are full because of a transaction. The rule: each row has a sentence that names the cause; a
growing age is no change.
"""

from typing import Any

from ...client.admin.values import HeldOffsets, LowLogDir, ShareWindow
from ...client.values import TopicPartition
from .view import SHOWN_IN_LIST, View, partition_name, prepared_row

MAX_ALARMS = 100


def alarm_rows(view: View) -> list[dict[str, Any]]:
    """Return up to MAX_ALARMS alarms: nearly full disks, partitions without a leader, groups whose offsets a
    transaction blocks (the longest blocked first), and share groups whose window is full.
    """
    rows = [_disk(each) for each in view.low_disks] + _leaderless(view) + [_held(each, view) for each in view.held]
    rows += _full_windows(view)
    return rows[:MAX_ALARMS]


def ageless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the alarms without age_ms and usable_bytes, for comparing two lists: that an age grows is not a change."""
    return [{name: value for name, value in row.items() if name not in ("age_ms", "usable_bytes")} for row in rows]


def _disk(low: LowLogDir) -> dict[str, Any]:
    """Return the alarm about a nearly full disk."""
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
    """Return one alarm for all partitions without a leader; an empty list if there are none."""
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
    """Return the alarm about a group whose offsets an open transaction has pending."""
    owner, producer = held.description, held.open.producer
    return {
        "kind": "held_offsets",
        "consumer_group_id": held.group_id,
        "partitions": [partition_name(each) for each in held.partitions[:SHOWN_IN_LIST]],
        "partitions_count": len(held.partitions),
        "transactional_id": owner.transactional_id if owner else None,
        "state": held.prepared.state if held.prepared else owner.state if owner else None,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "age_ms": None if held.since_ms is None else max(0, view.at_ms - held.since_ms),
        "timeout_ms": owner.timeout_ms if owner else None,
        "hangs": held.hangs,
        "prepared": prepared_row(held.prepared),
        "sentence": f"the offsets of group {held.group_id} are held by {_holder(held)}",
    }


def _holder(held: HeldOffsets) -> str:
    """Return words that name the transaction which blocks a group's offsets."""
    producer = f"producer {held.open.producer.producer_id} epoch {held.open.producer.producer_epoch}"
    if held.hangs or held.description is None:
        return f"a transaction of {producer} that no coordinator will end"
    return f"transaction {held.description.transactional_id} of {producer}"


def _full_windows(view: View) -> list[dict[str, Any]]:
    """Return one alarm for each pair of share group and transaction: the group's windows are full, and their first
    records are acknowledged in this open transaction.
    """
    found: dict[tuple[str, str | None, int], list[tuple[TopicPartition, ShareWindow]]] = {}
    for name, group in view.groups.items():
        for at, stands in (group.share or {}).items():
            if stands.held_by and stands.window:
                first = stands.held_by[0]
                found.setdefault((name, first.transactional_id, first.producer_id), []).append((at, stands.window))
    return [_full_window(*holder, sorted(places), view) for holder, places in found.items()]


def _full_window(
    group_id: str,
    transactional_id: str | None,
    producer_id: int,
    places: list[tuple[TopicPartition, ShareWindow]],
    view: View,
) -> dict[str, Any]:
    """Return the alarm about one share group whose windows are full because of a transaction. places: the partitions,
    each with its window. transactional_id: None if it is unknown.
    """
    name = transactional_id or ""
    owner = view.open.get(name)
    shown = [at for at, _ in places[:SHOWN_IN_LIST]]
    pending = sum(window.pending_count for _, window in places)
    where = ", ".join(map(str, shown)) + (", and others" if len(places) > len(shown) else "")
    return {
        "kind": "full_window",
        "share_group_id": group_id,
        "partitions": [partition_name(each) for each in shown],
        "partitions_count": len(places),
        "pending": pending,
        "transactional_id": transactional_id,
        "state": view.prepared[name].state if name in view.prepared else owner.state if owner else None,
        "producer_id": producer_id,
        "producer_epoch": owner.producer_epoch if owner else None,
        "age_ms": max(0, view.at_ms - owner.started_ms) if owner and owner.started_ms is not None else None,
        "timeout_ms": owner.timeout_ms if owner else None,
        "hangs": False,
        "prepared": prepared_row(view.prepared.get(name)),
        "sentence": f"share group {group_id} gets nothing new of {where}: its window is full, and {pending:,} records"
        f" of it are pending in {f'transaction {name}' if name else 'a transaction'} of producer {producer_id}",
    }
