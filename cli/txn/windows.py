"""Why share groups get nothing new of a partition; as facts and sentences.

The rules: a window is full because of a transaction only if its first record is pending: then it cannot move before
that transaction ends, and no new record is given out. Nor is one where the broker has no memory for more runs. Only
fencepost tells either.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..output.tables import now_ms
from .blocking import holder
from .facts import decisions_or_none, facts_of

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.values import PendingRange, SharePartitionOffsets
    from ...client.values import TopicPartition

STATE_TOPIC = "__share_group_state"
_GROUPS_AT_ONCE = 50
_SHOWN = 3  # transactions in a sentence

Positions = dict[str, "Mapping[TopicPartition, SharePartitionOffsets]"]
"""Where each share group stands."""


async def share_positions(admin: "Admin", groups: Sequence[str] = ()) -> Positions:
    """Return the positions of these share groups; without names of all that this login may see."""
    import asyncio

    from ...client.errors import AuthorizationError, UnsupportedVersionError

    try:
        names = [each.group_id for each in await admin.list_groups(types=["share"])]
    except (UnsupportedVersionError, AuthorizationError):
        return {}
    names = [each for each in names if not groups or each in groups]
    found: Positions = {}
    for start in range(0, len(names), _GROUPS_AT_ONCE):
        some = names[start : start + _GROUPS_AT_ONCE]
        found |= zip(some, await asyncio.gather(*(_position(admin, each) for each in some)), strict=True)
    return found


async def _position(admin: "Admin", group: str) -> "Mapping[TopicPartition, SharePartitionOffsets]":
    """Return the group's share partition offsets; empty if the broker refuses."""
    from ...client.errors import KafkaError

    try:
        return await admin.list_share_group_offsets(group)
    except KafkaError:  # it is gone, not for this login, or a partition has no leader, which another line says
        return {}


async def full_windows(
    admin: "Admin", groups: Sequence[str] = (), partitions: "Collection[TopicPartition] | None" = None
) -> list[dict[str, Any]]:
    """Return the facts of the windows that transactions keep full: of these groups, in these partitions."""
    held = [
        (group, at, offsets)
        for group, positions in (await share_positions(admin, groups)).items()
        for at, offsets in sorted(positions.items())
        if offsets.held_by and (partitions is None or at in partitions)
    ]
    if not held:
        return []
    known = await _transactions(admin, (one for *_, offsets in held for one in offsets.held_by))
    rows = []
    for group, at, offsets in held:
        window = offsets.window
        if window is None:
            continue
        producers = dict.fromkeys(one.producer_id for one in offsets.held_by)  # the first holds the window's start
        rows.append(
            {
                "share_group": group,
                "topic": at.topic,
                "partition": at.partition,
                "start_offset": offsets.start_offset,
                "window": window.size,
                "limit": window.limit,
                "pending": window.pending_count,
                "transactions": [known.get(each) or _unknown(each) for each in producers],
            }
        )
    return rows


async def _transactions(admin: "Admin", pending: "Iterable[PendingRange]") -> dict[int, dict[str, Any]]:
    """Return the facts of the transactions that have pending acknowledgements, by producer id."""
    ids = {each.transactional_id for each in pending if each.transactional_id is not None}
    described = await admin.describe_transactions(sorted(ids)) if ids else {}
    decisions = await decisions_or_none(admin) if ids else {}
    return {each.producer_id: facts_of(each, now_ms(), decisions) for each in described.values()}


def _unknown(producer_id: int) -> dict[str, Any]:
    return {"transactional_id": None, "producer_id": producer_id, "state": None, "age_ms": None, "timeout_ms": None}


def window_sentence(facts: Mapping[str, Any]) -> str:
    """Return the facts of full_windows() in one sentence."""
    at = f"{facts['topic']}-{facts['partition']}"
    named = facts["transactions"][:_SHOWN]
    holders = "; and in ".join(map(_holder, named))
    more = len(facts["transactions"]) - len(named)
    return (
        f"share group {facts['share_group']} gets nothing new of {at}: its window of {facts['limit']:,} records from"
        f" {facts['start_offset']} on is full, and {facts['pending']:,} of them are pending in {holders}"
        + (f"; and in {more} more" if more else "")
    )


def _holder(transaction: Mapping[str, Any]) -> str:
    """Return the words that name a transaction which has pending acknowledgements."""
    if transaction["transactional_id"] is None:
        return f"a transaction of producer {transaction['producer_id']}, whose id is not visible to you"
    return holder({**transaction, "hangs": False}, "")


def lacks_memory(positions: Positions) -> list[dict[str, Any]]:
    """Return the share partitions that get no new records because the broker has no memory for more of their runs."""
    return [
        {"share_group": group, "topic": at.topic, "partition": at.partition, "runs": offsets.window.runs}
        for group, found in positions.items()
        for at, offsets in sorted(found.items())
        if offsets.window is not None and offsets.window.lacks_memory
    ]


def memory_sentence(facts: Mapping[str, Any]) -> str:
    """Return the facts of lacks_memory() in one sentence."""
    return (
        f"share group {facts['share_group']} gets nothing new of {facts['topic']}-{facts['partition']}: its"
        f" {facts['runs']:,} runs of records there take more than their part of group.metadata.max.bytes"
    )


async def pending_of(admin: "Admin", rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return what each of these transactions has pending in share groups, by transactional id."""
    ids = {
        row["transactional_id"]
        for row in rows
        if row["age_ms"] is not None and any(each.startswith(STATE_TOPIC) for each in row["partitions"])
    }
    found: dict[str, list[dict[str, Any]]] = {each: [] for each in ids}
    if not ids:
        return found
    for group, positions in (await share_positions(admin)).items():
        for at, offsets in sorted(positions.items()):
            for each in offsets.window.pending if offsets.window else ():
                name = each.transactional_id
                if name is not None and name in found:
                    found[name].append(
                        {
                            "group": group,
                            "topic": at.topic,
                            "partition": at.partition,
                            "first_offset": each.first_offset,
                            "last_offset": each.last_offset,
                            "member_id": each.member_id,
                        }
                    )
    return found


def pending_lines(pending: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one line for each share group, partition and member, with the ranges."""
    by_place: dict[tuple[str, str, str], list[str]] = {}
    for each in pending:
        first, last = each["first_offset"], each["last_offset"]
        place = each["group"], f"{each['topic']}-{each['partition']}", each["member_id"]
        by_place.setdefault(place, []).append(str(first) if first == last else f"{first} to {last}")
    return [
        f"pending in share group {group}: {at} {', '.join(ranges)}, of member {member}"
        for (group, at, member), ranges in by_place.items()
    ]
