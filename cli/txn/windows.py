"""Why share groups get no new records of a partition, as facts and sentences.

The rules: a transaction keeps a window full only if the window's first record is pending: then the window cannot move
before that transaction ends, and no new record is delivered. Any other full window waits for a member that has its
first record, or for the next delivery of it: that is shown to who asks about the group. No new record is delivered
either if the broker has no memory for more runs (neighbouring records in the same state). Only fencepost brokers report
any of these.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..output.tables import now_ms
from .blocking import holder
from .facts import facts_of, prepared_or_empty

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
    """Return the positions of these share groups by group; without names, of all that this login may see."""
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
    except KafkaError:  # it is gone, this login may not see it, or a partition has no leader (another line says that)
        return {}


async def full_windows(
    admin: "Admin",
    groups: Sequence[str] = (),
    partitions: "Collection[TopicPartition] | None" = None,
    *,
    all_full: bool = False,
) -> list[dict[str, Any]]:
    """Return the share windows that transactions keep full, as JSON objects: of these groups (none: all), in these
    partitions (None: all). all_full: also those that are full for another reason, with an empty list of transactions.
    """
    held = [
        (group, at, offsets)
        for group, positions in (await share_positions(admin, groups)).items()
        for at, offsets in sorted(positions.items())
        if _is_full(offsets, all_full) and (partitions is None or at in partitions)
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


def _is_full(offsets: "SharePartitionOffsets", all_full: bool) -> bool:
    """Return whether the window is full because of a transaction; all_full: or for another reason."""
    return bool(offsets.held_by) or (all_full and offsets.window is not None and offsets.window.is_full)


async def _transactions(admin: "Admin", pending: "Iterable[PendingRange]") -> dict[int, dict[str, Any]]:
    """Return the transactions with these pending acknowledgements, as JSON objects by producer id."""
    ids = {each.transactional_id for each in pending if each.transactional_id is not None}
    described = await admin.describe_transactions(sorted(ids)) if ids else {}
    decisions = await prepared_or_empty(admin) if ids else {}
    return {each.producer_id: facts_of(each, now_ms(), decisions) for each in described.values()}


def _unknown(producer_id: int) -> dict[str, Any]:
    return {"transactional_id": None, "producer_id": producer_id, "state": None, "age_ms": None, "timeout_ms": None}


def window_sentence(facts: Mapping[str, Any]) -> str:
    """Return the facts of full_windows() in one sentence."""
    at = f"{facts['topic']}-{facts['partition']}"
    full = (
        f"share group {facts['share_group']} gets nothing new of {at}: its window of {facts['limit']:,} records from"
        f" {facts['start_offset']} on is full"
    )
    if not facts["transactions"]:
        return f"{full}, and the first of them is not done: a member has it, or it is to be delivered again"
    named = facts["transactions"][:_SHOWN]
    holders = "; and in ".join(map(_holder, named))
    more = len(facts["transactions"]) - len(named)
    return f"{full}, and {facts['pending']:,} of them are pending in {holders}" + (
        f"; and in {more} more" if more else ""
    )


def _holder(transaction: Mapping[str, Any]) -> str:
    """Return words that name a transaction with pending acknowledgements."""
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


async def _sees_state_topic(admin: "Admin") -> bool:
    """Return whether this login may describe the topic of the states of share groups; False also if there is none."""
    from ...client.errors import AuthorizationError, UnknownTopicError

    try:
        return bool(await admin.describe_topics(STATE_TOPIC))
    except (AuthorizationError, UnknownTopicError):
        return False


async def pending_of(admin: "Admin", rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return, by transactional id, the records of share groups that each of these transactions has acknowledged
    (pending until its end).
    """
    still_open = [row for row in rows if row["age_ms"] is not None]
    ids = {
        row["transactional_id"] for row in still_open if any(each.startswith(STATE_TOPIC) for each in row["partitions"])
    }
    if len(ids) < len(still_open) and not await _sees_state_topic(admin):
        ids = {row["transactional_id"] for row in still_open}  # the broker leaves out their partitions of that topic
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
    """Return one line for each share group, partition and member, with the ranges of offsets that are pending."""
    by_place: dict[tuple[str, str, str], list[str]] = {}
    for each in pending:
        first, last = each["first_offset"], each["last_offset"]
        place = each["group"], f"{each['topic']}-{each['partition']}", each["member_id"]
        by_place.setdefault(place, []).append(str(first) if first == last else f"{first} to {last}")
    return [
        f"pending in share group {group}: {at} {', '.join(ranges)}, of member {member}"
        for (group, at, member), ranges in by_place.items()
    ]
