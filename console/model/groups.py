"""Reads all groups of a cluster, of every type, some at a time.

The rule: a group that was deleted meanwhile, or that this login may not see, hides no other.
"""

import asyncio
from collections.abc import Mapping, Sequence

from ...client.admin.admin import Admin
from ...client.admin.values import GroupDescription, GroupListing, SharePartitionOffsets
from ...client.errors import KafkaError
from ...client.values import TopicPartition
from .view import Group

SHARE = "share"
_AT_ONCE = 50


async def read_groups(admin: Admin, listed: Sequence[GroupListing]) -> dict[str, Group]:
    """Return the groups by name. Groups are read _AT_ONCE at a time; each costs two requests."""
    found: dict[str, Group] = {}
    for start in range(0, len(listed), _AT_ONCE):
        some = listed[start : start + _AT_ONCE]
        shares = [each for each in some if each.group_type == SHARE]
        others = [each for each in some if each.group_type != SHARE]
        described = await admin.describe_groups(each.group_id for each in others)
        committed = await asyncio.gather(*(_committed(admin, each.group_id) for each in others))
        positions = await asyncio.gather(*(_share_group(admin, each.group_id) for each in shares))
        for each, offsets in zip(others, committed, strict=True):
            found[each.group_id] = Group(each, described.get(each.group_id), offsets)
        for each, (description, stands) in zip(shares, positions, strict=True):
            found[each.group_id] = Group(each, description, {}, stands)
    return found


async def _committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    """Return the group's committed offset of each partition; empty if it was deleted, or this login may not see it."""
    try:
        return {at: each.offset for at, each in (await admin.list_group_offsets(group)).items()}
    except KafkaError:  # it is gone, or this login may not see it
        return {}


async def _share_group(
    admin: Admin, group: str
) -> tuple[GroupDescription | None, Mapping[TopicPartition, SharePartitionOffsets]]:
    """Return a share group's description, None if it cannot be read, and its offsets, empty if they cannot. Offsets
    may be visible though the description is not: that needs rights to all topics of its members.
    """
    described: GroupDescription | None
    try:
        described = (await admin.describe_share_groups(group)).get(group)
    except KafkaError:
        described = None
    try:
        return described, await admin.list_share_group_offsets(group)
    except KafkaError:
        return described, {}
