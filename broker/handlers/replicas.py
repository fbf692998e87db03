"""Requests about replicas, leaders and voters, answered as a cluster of one broker.

This broker has the only replica of each partition and leads it, nothing is ever moved, and it is the only voter. So a
request for a state that already holds succeeds, or is answered that it is not needed. Any other request is refused with
Kafka's error. Nothing here changes anything.

Sources: KIP-183, 455, 113, 595; ReplicationControlManager, ReplicaManager. Asked of an Apache Kafka 4.3.1 with one
node.
"""

import os.path
from collections.abc import Sequence
from functools import partial

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReplicaState,
)
from ..net.turns import Steps, answer_each
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation
from ..topics.names import LONGEST
from ..topics.partition import Partition
from ..topics.replicas import check_replicas

PREFERRED, UNCLEAN = 0, 1  # elections
METADATA_TOPIC = "__cluster_metadata"
ONLY_TERM = 1  # of the only voter

_Elected = ElectLeadersResponse.Topic
_Reassigned = AlterPartitionReassignmentsResponse.Topic
_Moved = AlterReplicaLogDirsResponse.Topic
_Quorum = DescribeQuorumResponse.Topic


def _quote(topic: str) -> str:
    """Return the topic's name for an error text. A name that is too long for a topic is shortened."""
    return topic if len(topic) <= LONGEST else f"{topic[:LONGEST]}..."


def _partition(broker: Services, topic: str, index: int) -> Partition | None:
    """Return a partition by topic name and index; None if either does not exist."""
    found = broker.topics.by_name.get(topic)
    return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None


# ---- ElectLeaders --------------------------------------------------------------------------------------------


@handles(ElectLeadersRequest, may_be_long=True)
def elect_leaders(broker: Services, call: Call, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
    """Answer for each partition that no election is needed, because it has its leader, or why none is possible."""
    broker.access.check_on_cluster(call.session, Operation.ALTER)
    is_known = request.election_type in (PREFERRED, UNCLEAN)
    results = []
    if request.topic_partitions is not None:
        for topic in request.topic_partitions:
            elections = yield from answer_each(
                topic.partitions, partial(_election, broker, request.election_type, topic.topic)
            )
            results.append(_Elected(topic=topic.topic, partition_result=elections))
    elif is_known:
        results = yield from answer_each(
            list(broker.topics.by_name), lambda name: _Elected(topic=name, partition_result=[])
        )
    code = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _election(broker: Services, kind: int, topic: str, index: int) -> _Elected.Partition:
    """Return the result of a leader election in one partition: not needed, or the reason why it is refused."""
    partition = _partition(broker, topic, index)
    code, text = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if kind not in (PREFERRED, UNCLEAN):
        code, text = ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}"
    elif partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = topic in broker.topics.by_name
        text = f"No such partition as {topic}-{index}" if known else f"No such topic as {_quote(topic)}"
    elif partition.log.offline is not None:
        preferred = kind == PREFERRED
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        text = f"the partition is offline: {partition.log.offline}"
    return _Elected.Partition(partition_id=index, error_code=code, error_message=text)


# ---- reassignments -------------------------------------------------------------------------------------------


@handles(AlterPartitionReassignmentsRequest, may_be_long=True)
def alter_partition_reassignments(
    broker: Services, call: Call, request: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse]:
    """Accept the move of a partition to this broker, which has it already. There is never a move to cancel."""
    broker.access.check_on_cluster(call.session, Operation.ALTER)
    responses = []
    for topic in request.topics:
        results = yield from answer_each(topic.partitions, partial(_reassign, broker, topic.name))
        responses.append(_Reassigned(name=topic.name, partitions=results))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None if responses else "",  # as Kafka answers a request without topics
        responses=responses,
    )


def _reassign(
    broker: Services, topic: str, asked: AlterPartitionReassignmentsRequest.Topic.Partition
) -> _Reassigned.Partition:
    """Return the result of moving one partition. It succeeds only if the target is this broker."""
    result = _Reassigned.Partition(partition_index=asked.partition_index)
    try:
        _check_move(broker, topic, asked.partition_index, asked.replicas)
    except KafkaError as error:
        is_explained = error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS  # as in Kafka, this has no text
        result.error_code, result.error_message = error.code, error.text if is_explained else None
    return result


def _check_move(broker: Services, topic: str, index: int, replicas: Sequence[int] | None) -> None:
    """Raise UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS or INVALID_REPLICA_ASSIGNMENT, unless the partition
    is to move to this broker.
    """
    if _partition(broker, topic, index) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {_quote(topic)}:{index}.")
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_replicas(replicas, broker.node_id)


@handles(ListPartitionReassignmentsRequest, waits=False)
def list_partition_reassignments(
    broker: Services, call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Answer with an empty list, because with one broker nothing is ever moved."""
    broker.access.check_on_cluster(call.session, Operation.DESCRIBE)
    return ListPartitionReassignmentsResponse()


# ---- AlterReplicaLogDirs -------------------------------------------------------------------------------------


@handles(AlterReplicaLogDirsRequest, may_be_long=True)
def alter_replica_log_dirs(
    broker: Services, call: Call, request: AlterReplicaLogDirsRequest
) -> Steps[AlterReplicaLogDirsResponse]:
    """Accept the move of a replica to the broker's only directory, which has it already. Each replica is
    answered once.
    """
    allowed = broker.access.allows_on_cluster(call.session, Operation.ALTER)
    own = os.path.abspath(broker.store.directory)
    answers: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            codes = answers.setdefault(topic.name, {})
            for index in topic.partitions:
                code = _code_for_move(broker, directory.path == own, topic.name, index)
                codes[index] = code if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                yield 1
    made = _Moved.Partition
    return AlterReplicaLogDirsResponse(
        results=[
            _Moved(
                topic_name=name,
                partitions=[made(partition_index=index, error_code=code) for index, code in codes.items()],
            )
            for name, codes in answers.items()
        ]
    )


def _code_for_move(broker: Services, is_own: bool, topic: str, index: int) -> ErrorCode:
    """Return NONE if the replica is already in the directory that the request names, else the error. is_own: whether
    that is this broker's directory.
    """
    if len(topic) > LONGEST:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not is_own:
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = _partition(broker, topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if partition.log.offline is None else ErrorCode.KAFKA_STORAGE_ERROR


# ---- DescribeQuorum ------------------------------------------------------------------------------------------


@handles(DescribeQuorumRequest, waits=False, may_be_long=True)
def describe_quorum(broker: Services, call: Call, request: DescribeQuorumRequest) -> Steps[DescribeQuorumResponse]:
    """Answer with this broker as the only voter and leader. All offsets are 0, because there is no metadata log."""
    broker.access.check_on_cluster(call.session, Operation.DESCRIBE)
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if asked != [(METADATA_TOPIC, 0)] or len(request.topics) != 1:
        topics = []
        for topic in request.topics:
            partitions = yield from answer_each(topic.partitions, _without_voters)
            topics.append(_Quorum(topic_name=topic.topic_name, partitions=partitions))
        return DescribeQuorumResponse(error_message="", topics=topics)
    now_ms = broker.clock.now_ms()
    voter = ReplicaState(
        replica_id=broker.node_id, log_end_offset=0, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
    )
    partition = _Quorum.Partition(
        partition_index=0,
        error_message="",
        leader_id=broker.node_id,
        leader_epoch=ONLY_TERM,
        current_voters=[voter],
    )
    host, port = call.advertised
    node = DescribeQuorumResponse.Node
    return DescribeQuorumResponse(
        error_message="",
        topics=[_Quorum(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[node(node_id=broker.node_id, listeners=[node.Listener(name=call.listener_name, host=host, port=port)])],
    )


def _without_voters(asked: DescribeQuorumRequest.Topic.Partition) -> _Quorum.Partition:
    """Return the answer for a partition other than that of the metadata log: the error for an unknown partition, since
    it has no quorum.
    """
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _Quorum.Partition(partition_index=asked.partition_index, error_code=code, error_message=code.text)
