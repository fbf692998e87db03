"""Requests of a group member over a simulated connection, in few words."""

from __future__ import annotations

from typing import Any

from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.messages.groups import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from simulated_broker import SimulatedBroker

MEMBER_ID_REQUIRED = 79


def begin(disk: SimulatedDisk | None = None, **more: Any) -> SimulatedBroker:
    """Return a broker in which the first member of a group does not wait for others."""
    return SimulatedBroker(BrokerSettings(**{"group_initial_rebalance_delay_ms": 0, **more}), disk=disk)


def listed(broker: SimulatedBroker) -> list[str]:
    """Return the groups that the broker lists, by name."""
    return sorted(each.group_id for each in broker.ask(ListGroupsRequest()).groups)


def joining(group: str, member_id: str = "", instance_id: str | None = None, **more: Any) -> JoinGroupRequest:
    protocols = more.pop("protocols", {"range": b"x"})
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        group_instance_id=instance_id,
        protocols=[JoinGroupRequest.Protocol(name=name, metadata=given) for name, given in protocols.items()],
        **{"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", **more},
    )


def syncing(group: str, member_id: str, generation: int, assignments: dict[str, bytes] | None = None) -> Any:
    return SyncGroupRequest(
        group_id=group,
        member_id=member_id,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequest.Assignment(member_id=each, assignment=what) for each, what in (assignments or {}).items()
        ],
    )


def beating(group: str, member_id: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation)


def leaving(group: str, *member_ids: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.Member(member_id=each) for each in member_ids])


def alone(client: Any, group: str = "g", **more: Any) -> tuple[str, int]:
    """Become the only member of a stable group. Returns (member id, generation). client: anything with ask()."""
    joined = client.ask(joining(group, **more))
    if joined.error_code == MEMBER_ID_REQUIRED:
        joined = client.ask(joining(group, joined.member_id, **more))
    assert joined.error_code == 0, joined
    synced = client.ask(syncing(group, joined.member_id, joined.generation_id, {joined.member_id: b"all"}))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return joined.member_id, joined.generation_id


def state_of(client: Any, group: str = "g") -> str:
    found: str = client.ask(DescribeGroupsRequest(groups=[group])).groups[0].group_state
    return found
