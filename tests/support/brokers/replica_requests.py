"""Requests about replicas, voters and features that name many things each."""

from typing import Any

from fencepost.protocol.messages.cluster import UpdateFeaturesRequest
from fencepost.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
)
from work_of_requests import PARTITIONS, World

MANY = 400
INDEXES = [number % PARTITIONS for number in range(MANY)]


def elect_leaders(world: World) -> list[Any]:
    made = ElectLeadersRequest.Topic
    return [ElectLeadersRequest(topic_partitions=[made(topic="wide", partitions=INDEXES)])]


def alter_partition_reassignments(world: World) -> list[Any]:
    made = AlterPartitionReassignmentsRequest.Topic
    parts = [made.Partition(partition_index=index, replicas=[77]) for index in INDEXES]
    return [AlterPartitionReassignmentsRequest(topics=[made(name="wide", partitions=parts)])]


def alter_replica_log_dirs(world: World) -> list[Any]:
    made = AlterReplicaLogDirsRequest.Directory
    topics = [made.Topic(name="wide", partitions=INDEXES)]
    return [AlterReplicaLogDirsRequest(dirs=[made(path="/nowhere", topics=topics)])]


def describe_quorum(world: World) -> list[Any]:
    made = DescribeQuorumRequest.Topic
    parts = [made.Partition(partition_index=0)] * MANY
    return [DescribeQuorumRequest(topics=[made(topic_name="__cluster_metadata", partitions=parts)])]


def update_features(world: World) -> list[Any]:
    made = UpdateFeaturesRequest.Update
    return [UpdateFeaturesRequest(feature_updates=[made(feature="transaction.version", max_version_level=2)] * MANY)]
