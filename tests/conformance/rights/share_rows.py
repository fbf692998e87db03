"""The rows of share groups (rows.py has all others).

`share` has no members, so its offsets can be altered and deleted; `sharing` has a member, so sessions can read.
"""

from __future__ import annotations

from .rows import GONE, PREFIX, Fields, Row, T
from .world import World

SHARE, SHARING = PREFIX + "share", PREFIX + "sharing"
OUTSIDER = {"member_id": "nobody"}
ACCEPTED = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}


def _group_with_offsets(world: World) -> None:
    """Make a share group with offsets in a topic."""
    world.eventually("FindCoordinator", 4, key_type=0, coordinator_keys=[SHARE])
    topics = [{"topic_name": T, "partitions": [{"partition_index": 0, "start_offset": 0}]}]
    world.eventually("AlterShareGroupOffsets", 0, group_id=SHARE, topics=topics)


def _group_without_members(world: World) -> None:
    """Make a share group without members."""
    world.eventually("FindCoordinator", 4, key_type=0, coordinator_keys=[SHARE])
    joining = {"member_id": "reader", "member_epoch": 0, "subscribed_topic_names": [T]}
    world.eventually("ShareGroupHeartbeat", 1, group_id=SHARE, **joining)
    world.eventually("ShareGroupHeartbeat", 1, group_id=SHARE, member_id="reader", member_epoch=-1)


def _group_with_member(world: World) -> None:
    """Make a share group with a member that reads the topic."""
    world.eventually("FindCoordinator", 4, key_type=0, coordinator_keys=[SHARING])
    joining = {"member_id": "reader", "member_epoch": 0, "subscribed_topic_names": [T]}
    world.eventually("ShareGroupHeartbeat", 1, group_id=SHARING, **joining)


def _open_session(world: World) -> None:
    """Make a share group with a member, and open a session of a client to which no records are delivered."""
    _group_with_member(world)
    world.eventually("ShareFetch", 1, **_fetch(world, 1))


def _fetch(world: World, version: int) -> Fields:
    topics = [{"topic_id": world.topic_id(T), "partitions": [{"partition_index": 1}]}]
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_records": 1, "batch_size": 1}
    return {"group_id": SHARING, **OUTSIDER, "share_session_epoch": 0, **limits, "topics": topics}


def _acknowledge(world: World, version: int) -> Fields:
    part = {"partition_index": 1, "acknowledgement_batches": [ACCEPTED]}
    topics = [{"topic_id": world.topic_id(T), "partitions": [part]}]
    return {"group_id": SHARING, **OUTSIDER, "share_session_epoch": -1, "topics": topics}


def _heartbeat(*topics: str) -> Fields:
    given = {"subscribed_topic_names": list(topics)} if topics else {}
    return {"group_id": SHARING, **OUTSIDER, "member_epoch": 3, **given}


SHARE_ROWS = [
    Row("ShareGroupHeartbeat", (1,), lambda world, version: _heartbeat(), before=_group_with_member),
    Row(
        "ShareGroupHeartbeat",
        (1,),
        lambda world, version: _heartbeat(T, "never"),
        "with topics",
        before=_group_with_member,
    ),
    Row(
        "ShareGroupDescribe",
        (1,),
        lambda world, version: {"group_ids": [SHARE, "hidden"], "include_authorized_operations": True},
        before=_group_without_members,
    ),
    Row(
        "ShareGroupDescribe",
        (1,),
        lambda world, version: {"group_ids": [SHARING]},
        "with its topics",
        before=_group_with_member,
    ),
    Row("ShareFetch", (1, 2), _fetch, before=_group_with_member),
    Row("ShareAcknowledge", (1, 2), _acknowledge, before=_open_session),
    Row(
        "DescribeShareGroupOffsets",
        (0, 1),
        lambda world, version: {
            "groups": [
                {"group_id": group, "topics": [{"topic_name": name, "partitions": [0]} for name in (T, GONE)]}
                for group in (SHARE, "hidden")
            ]
        },
        before=_group_with_offsets,
    ),
    Row(
        "DescribeShareGroupOffsets",
        (0, 1),
        lambda world, version: {"groups": [{"group_id": SHARE, "topics": None}]},
        "of everything",
        before=_group_with_offsets,
    ),
    Row(
        "AlterShareGroupOffsets",
        (0,),
        lambda world, version: {
            "group_id": SHARE,
            "topics": [
                {"topic_name": name, "partitions": [{"partition_index": 7, "start_offset": 0}]} for name in (T, GONE)
            ],
        },
    ),
    Row(
        "DeleteShareGroupOffsets",
        (0,),
        lambda world, version: {"group_id": SHARE, "topics": [{"topic_name": name} for name in (T, GONE)]},
        before=_group_with_offsets,
    ),
]
