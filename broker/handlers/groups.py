"""The requests of members of classic groups, and FindCoordinator, which always answers with this broker.

A request is converted to the values that the group coordinator takes, and its answer to the fields that the request's
version has. What groups do is in groups/. FindCoordinator has one key and one answer up to version 3; from version 4 on
it has lists, with an error for each key.

Sources: Kafka's KafkaApis and GroupCoordinatorService.
"""

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ..groups.consumer.classic_members import Caller
from ..groups.members import Joined, Joining, Leaving, Synced, Syncing
from ..net.turns import Steps, answer_each
from ..net.waiting import Parked
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType

GROUP, TRANSACTION = 0, 1
BATCHED_SINCE = 4
NOBODY, NOWHERE, NO_PORT = -1, "", -1
_Coordinator = FindCoordinatorResponse.Coordinator

REBALANCE_TIMEOUT_SINCE = 1
KNOWN_ID_SINCE = 4  # KIP-394
NULL_NAME_SINCE = 7
SKIP_SINCE = 9  # KIP-814
NAMES_SINCE = 5  # of SyncGroup: the protocol must be named (KIP-559)
MEMBERS_SINCE = 3  # of LeaveGroup


@handles(FindCoordinatorRequest, waits=False, may_be_long=True)
def find_coordinator(broker: Services, call: Call, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
    """Answer with this broker, after creating the internal topic if needed. Unknown key types are refused."""
    if call.version < BATCHED_SINCE:
        _check_coordinator(broker, call, request.key_type, request.key)
        host, port = call.advertised
        # "NONE" is Kafka's text for no error.
        return FindCoordinatorResponse(error_message="NONE", node_id=broker.node_id, host=host, port=port)
    keys = request.coordinator_keys
    return FindCoordinatorResponse(
        coordinators=(yield from answer_each(keys, lambda key: _coordinator(broker, call, request.key_type, key)))
    )


def _coordinator(broker: Services, call: Call, key_type: int, key: str) -> _Coordinator:
    """Return this broker as the coordinator of the key, or the key's error."""
    try:
        _check_coordinator(broker, call, key_type, key)
    except KafkaError as error:
        broker.metrics.error("FindCoordinator", error.code)
        return _Coordinator(
            key=key, node_id=NOBODY, host=NOWHERE, port=NO_PORT, error_code=error.code, error_message=error.text
        )
    host, port = call.advertised
    return _Coordinator(key=key, node_id=broker.node_id, host=host, port=port, error_message="")


def _check_coordinator(broker: Services, call: Call, key_type: int, key: str) -> None:
    """Raise KafkaError for an unknown key type or a missing right. Otherwise create the coordinator's internal topic if
    it does not exist. For a transactional id, also note that it was asked for (see awaited_offsets.py).
    """
    if key_type == GROUP:
        broker.access.check(call.session, Operation.DESCRIBE, ResourceType.GROUP, key)
        broker.group_offsets.topic.ensure()
    elif key_type == TRANSACTION:
        broker.access.check(call.session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
        broker.transactions.topic.ensure()
        broker.admission.awaited.asked(key, call.connection)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


# ---- members -------------------------------------------------------------------------------------------------


def _check_member(broker: Services, call: Call, group_id: str) -> None:
    """Raise GROUP_AUTHORIZATION_FAILED if the client does not have the right READ on this group."""
    broker.access.check(call.session, Operation.READ, ResourceType.GROUP, group_id)


@handles(JoinGroupRequest)
def join_group(broker: Services, call: Call, request: JoinGroupRequest) -> Parked:
    """Join a group. The answer is sent when all members have joined, or when the time for that is over."""
    _check_member(broker, call, request.group_id)
    parked = Parked()
    session_ms = request.session_timeout_ms
    asked = Joining(
        request.member_id,
        request.group_instance_id,
        call.client_id or "",
        f"/{call.client_host}",
        session_ms,
        request.rebalance_timeout_ms if call.version >= REBALANCE_TIMEOUT_SINCE else session_ms,
        request.protocol_type,
        tuple((each.name, each.metadata) for each in request.protocols),
        must_know_id=call.version >= KNOWN_ID_SINCE,
        may_skip_assignment=call.version >= SKIP_SINCE,
        user=call.session,
    )
    broker.group_kinds.join(
        request.group_id, asked, lambda joined: parked.answer(_join_response(broker, call.version, joined))
    )
    return parked


def _join_response(broker: Services, version: int, joined: Joined) -> JoinGroupResponse:
    """Return the JoinGroup response in this version. If it is an error, count it."""
    if joined.error:
        broker.metrics.error("JoinGroup", joined.error)
    name = joined.protocol
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=name if version >= NULL_NAME_SINCE else name or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.Member(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in joined.roster
        ],
    )


@handles(SyncGroupRequest)
def sync_group(broker: Services, call: Call, request: SyncGroupRequest) -> Parked:
    """Ask for an assignment. The answer is sent when the leader's assignments have arrived and are durable."""
    _check_member(broker, call, request.group_id)
    if call.version >= NAMES_SINCE and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.assignments:  # the leader's: it is answered before its followers, as in Kafka
        broker.rounds.touch_first(call.connection)
    parked = Parked()
    asked = Syncing(
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        {each.member_id: each.assignment for each in request.assignments},
    )
    broker.group_kinds.sync(request.group_id, asked, lambda synced: parked.answer(_sync_response(broker, synced)))
    return parked


def _sync_response(broker: Services, synced: Synced) -> SyncGroupResponse:
    """Return the SyncGroup response. If it is an error, count it."""
    if synced.error:
        broker.metrics.error("SyncGroup", synced.error)
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


@handles(HeartbeatRequest, waits=False)
def heartbeat(broker: Services, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Restart the session timeout of a member of the present generation; answer any other with its error. The reply
    does not wait for anything to become durable.
    """
    _check_member(broker, call, request.group_id)
    caller = Caller(request.member_id, request.group_instance_id, request.generation_id)
    error = broker.group_kinds.classic_heartbeat(request.group_id, caller, call.session)
    if error:
        broker.metrics.error("Heartbeat", error)
    return HeartbeatResponse(error_code=error)


@handles(LeaveGroupRequest)
def leave_group(broker: Services, call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove one member; from version 3 on, several members, each with its own error code."""
    _check_member(broker, call, request.group_id)
    if call.version < MEMBERS_SINCE:
        error = broker.group_kinds.classic_leave(request.group_id, [Leaving(request.member_id)])[0]
        if error:
            broker.metrics.error("LeaveGroup", error)
        return LeaveGroupResponse(error_code=error)
    leaving = [Leaving(each.member_id, each.group_instance_id) for each in request.members]
    errors = broker.group_kinds.classic_leave(request.group_id, leaving)
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.Member(member_id=each.member_id, group_instance_id=each.instance_id, error_code=error)
            for each, error in zip(leaving, errors, strict=True)
        ]
    )
