"""The rows of share groups (rows.py has all others).

`share` stands somewhere and has no members, so it can be altered; somebody is in `sharing`, so its sessions read.
"""

from __future__ import annotations

from .rows import GONE, PREFIX, Fields, Row, T
from .world import World

SHARE, SHARING = PREFIX + "share", PREFIX + "sharing"
OUTSIDER = {"member_id": "nobody"}
ACCEPTED = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}


def _stand(world: World) -> None:
    """Make a share group with offsets in a topic."""
    world.eventually("FindCoordinator", 4, key_type=0, coordinator_keys=[SHARE])
    topics = [{"topic_name": T, "partitions": [{"partition_index": 0, "start_offset": 0}]}]
    world.eventually("AlterShareGroupOffsets", 0, group_id=SHARE, topics=topics)


def _have(world: World) -> None:
    """Make a share group without members."""
    world.eventually("FindCoordinator", 4, key_type=0, coordinator_keys=[SHARE])
    joining = {"member_id": "reader", "member_epoch": 0, "subscribed_topic_names": [T]}
    world.eventually("ShareGroupHeartbeat", 1, group_id=SHARE, **joining)
    world.eventually("ShareGroupHeartbeat", 1, group_id=SHARE, member_id="reader", member_epoch=-1)


def _share(world: World) -> None:
    """Make a share group with a member that reads the topic."""
    world.eventually("FindCoordinator", 4, key_type=0, coordinator_keys=[SHARING])
    joining = {"member_id": "reader", "member_epoch": 0, "subscribed_topic_names": [T]}
    world.eventually("ShareGroupHeartbeat", 1, group_id=SHARING, **joining)


def _open(world: World) -> None:
    """Make a share group with a member, and open a session of a client to which no records are delivered."""
    _share(world)
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
    Row("ShareGroupHeartbeat", (1,), lambda world, version: _heartbeat(), before=_share),
    Row("ShareGroupHeartbeat", (1,), lambda world, version: _heartbeat(T, "never"), "with topics", before=_share),
    Row(
        "ShareGroupDescribe",
        (1,),
        lambda world, version: {"group_ids": [SHARE, "hidden"], "include_authorized_operations": True},
        before=_have,
    ),
    Row(
        "ShareGroupDescribe",
        (1,),
        lambda world, version: {"group_ids": [SHARING]},
        "with its topics",
        before=_share,
    ),
    Row("ShareFetch", (1, 2), _fetch, before=_share),
    Row("ShareAcknowledge", (1, 2), _acknowledge, before=_open),
    Row(
        "DescribeShareGroupOffsets",
        (0, 1),
        lambda world, version: {
            "groups": [
                {"group_id": group, "topics": [{"topic_name": name, "partitions": [0]} for name in (T, GONE)]}
                for group in (SHARE, "hidden")
            ]
        },
        before=_stand,
    ),
    Row(
        "DescribeShareGroupOffsets",
        (0, 1),
        lambda world, version: {"groups": [{"group_id": SHARE, "topics": None}]},
        "of everything",
        before=_stand,
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
        before=_stand,
    ),
]
