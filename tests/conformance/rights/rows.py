"""The rows of the matrix: a request of each API, in each version in which other rights are needed or shown.

Topic `t`, group `g` and transactional id `x` exist, what is named `gone` does not, and `hidden` exists but is shown
only to users who may see any name. The users are in grants.py. A request that would change something asks for something
invalid, or only for validation, so that each user finds the same; where that is not possible, `before` restores it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fencepost.protocol.apis import Api

from .grants import PREFIX
from .world import APIS_BY_NAME, BROKER, World, batch

Fields = dict[str, Any]

T, GONE, DOOMED, FRESH = (PREFIX + name for name in ("t", "gone", "doomed", "fresh"))
G, GONE_GROUP, READING = PREFIX + "g", PREFIX + "gone", PREFIX + "read"
X, OPEN, KEY, GONE_ID = (PREFIX + name for name in ("x", "open", "key", "gone"))
NOBODYS_PID = 987_654_321
TOPIC, GROUP, CLUSTER_CONFIGS = 2, 32, BROKER


@dataclass(frozen=True)
class Row:
    """A request that is sent by every user.

    what: which form of the request it is, if there are several. before: prepares the broker each time before it is
    sent. unanswered: a request with acks=0; whether the connection stays open takes the place of its answer.
    """

    api: str
    versions: tuple[int, ...]
    fields: Callable[[World, int], Fields]
    what: str = ""
    before: Callable[[World], None] | None = None
    unanswered: bool = False

    @property
    def name(self) -> str:
        return f"{self.api} {self.what}".strip()

    @property
    def of(self) -> Api:
        return APIS_BY_NAME[self.api]

    def ask(self, world: World, what: str, version: int) -> str:
        """Send the request as this user. Returns the line that shows the answer."""
        if self.before is not None:
            self.before(world)
        return world.answer(what, self.of, version, self.fields(world, version), unanswered=self.unanswered)


def _named(world: World, version: int, since: int, key: str, topic: str) -> Fields:
    """Return the field that names a topic: by its id in the versions from `since` on, else by its name."""
    return {"topic_id": world.topic_id(topic)} if version >= since else {key: topic}


def _partitions(
    key: str = "partition_index", *, of: tuple[str, ...] = (T, GONE), name: str = "name", **more: Any
) -> list[Fields]:
    return [{name: topic, "partitions": [{key: 0, **more}]} for topic in of]


# ---- Produce and Fetch ---------------------------------------------------------------------------------------


def _produce(
    *topics: str, acks: int = -1, transactional_id: str | None = None, **of_batch: Any
) -> Callable[[World, int], Fields]:
    def fields(world: World, version: int) -> Fields:
        return {
            "acks": acks,
            "timeout_ms": 5000,
            "transactional_id": transactional_id,
            "topic_data": [
                {
                    **_named(world, version, 13, "name", topic),
                    "partition_data": [{"index": 0, "records": batch(**of_batch)}],
                }
                for topic in topics
            ],
        }

    return fields


def _produce_idempotently(world: World, version: int) -> Fields:
    return _produce(T, GONE, producer_id=world.new_producer_id(), epoch=0, sequence=0)(world, version)


TRANSACTIONAL = {"producer_id": NOBODYS_PID, "epoch": 0, "sequence": 0, "transactional": True}


def _fetch(*topics: str, replica_id: int = -1, **more: Any) -> Callable[[World, int], Fields]:
    def fields(world: World, version: int) -> Fields:
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
        named = [{**_named(world, version, 13, "topic", topic), "partitions": [part]} for topic in topics]
        asking = {"replica_state": {"replica_id": replica_id}} if version >= 15 else {"replica_id": replica_id}
        return {"min_bytes": 0, "topics": named, **(asking if replica_id >= 0 else {}), **more}

    return fields


def _list_offsets(world: World, version: int) -> Fields:
    return {"topics": _partitions(timestamp=-1)}


def _partitions_of(*topics: str) -> list[Fields]:
    return [{"topic": topic, "partitions": [0]} for topic in topics]


def _move_to_nowhere(world: World, version: int) -> Fields:
    return {"dirs": [{"path": "/nowhere", "topics": [{"name": T, "partitions": [0]}]}]}


def _update_to_nothing(world: World, version: int) -> Fields:
    return {"feature_updates": [{"feature": "nothing.version", "max_version_level": 1}]}


ROWS = [
    Row("Produce", (3, 9, 12, 13), _produce(T, GONE)),
    Row("Produce", (3, 12), _produce(T, transactional_id=X, **TRANSACTIONAL), "in a transaction"),
    Row("Produce", (9,), _produce(T, transactional_id="", **TRANSACTIONAL), "in a transaction of an empty id"),
    Row("Produce", (9, 13), _produce(T, GONE, **TRANSACTIONAL), "in a transaction without an id"),
    Row("Produce", (9,), _produce(T, transactional_id=X), "beside a transaction"),
    Row("Produce", (9,), _produce_idempotently, "idempotently"),
    Row("Produce", (9,), _produce("__consumer_offsets"), "to an internal topic"),
    Row("Produce", (9,), _produce(T, acks=0), "unanswered", unanswered=True),
    Row("Fetch", (4, 12, 13, 18), _fetch(T, GONE)),
    Row("Fetch", (12, 18), _fetch(T, GONE, session_epoch=0), "with a session"),
    Row("Fetch", (12, 18), _fetch(T, GONE, replica_id=7), "as a replica"),
    Row("ListOffsets", (1, 11), _list_offsets),
    Row(
        "OffsetForLeaderEpoch",
        (2, 4),
        lambda world, version: {"topics": _partitions("partition", name="topic", leader_epoch=0)},
    ),
]

# ---- Topics and the cluster ----------------------------------------------------------------------------------


def _metadata(
    *topics: str, by_id: bool = False, make: bool = False, operations: bool = True
) -> Callable[[World, int], Fields]:
    def fields(world: World, version: int) -> Fields:
        named = [{"topic_id": world.topic_id(topic)} if by_id else {"name": topic} for topic in topics]
        if by_id:
            named = [{**each, "name": None} for each in named]
        more: Fields = {}
        if version >= 8 and operations:
            more["include_topic_authorized_operations"] = True
            if version <= 10:
                more["include_cluster_authorized_operations"] = True
        return {"topics": named, "allow_auto_topic_creation": make, **more}

    return fields


def _every_topic(world: World, version: int) -> Fields:
    return {"topics": [] if version == 0 else None}


def _new_topic(*names: str) -> Callable[[World, int], Fields]:
    def fields(world: World, version: int) -> Fields:
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        return {"topics": topics, "timeout_ms": 5000, "validate_only": True}

    return fields


def _delete_topics(*topics: str, by_id: bool = False) -> Callable[[World, int], Fields]:
    def fields(world: World, version: int) -> Fields:
        if version < 6:
            return {"topic_names": list(topics), "timeout_ms": 5000}
        asked = [{"name": None, "topic_id": world.topic_id(topic)} if by_id else {"name": topic} for topic in topics]
        return {"topics": asked, "timeout_ms": 5000}

    return fields


def _configs(world: World, version: int) -> Fields:
    return {"resources": [{"resource_type": kind, "resource_name": name} for kind, name in RESOURCES]}


RESOURCES = [(TOPIC, T), (TOPIC, GONE), (BROKER, "")]


def _altered_configs(world: World, version: int) -> Fields:
    """Return fields of AlterConfigs and IncrementalAlterConfigs; they are only to be validated."""
    resources = [
        {"resource_type": kind, "resource_name": name, "configs": []}
        for kind, name in [*RESOURCES[:2], (BROKER, str(world.node_id))]
    ]
    return {"resources": resources, "validate_only": True}


def _configs_of_groups(world: World, version: int) -> Fields:
    return {"resources": [{"resource_type": GROUP, "resource_name": name} for name in (G, GONE_GROUP)]}


def _altered_configs_of_groups(world: World, version: int) -> Fields:
    """Return fields of AlterConfigs and IncrementalAlterConfigs for groups; they are only to be validated."""
    resources = [{"resource_type": GROUP, "resource_name": name, "configs": []} for name in (G, GONE_GROUP)]
    return {"resources": resources, "validate_only": True}


ROWS += [
    Row("ApiVersions", (0, 4), lambda world, version: {"client_software_name": "a", "client_software_version": "1"}),
    Row("Metadata", (4, 13), _metadata(T, GONE, operations=False)),
    Row("Metadata", (10,), _metadata(T, GONE), "with what may be done"),
    Row("Metadata", (12, 13), _metadata(T, GONE, by_id=True, operations=False), "by id"),
    Row("Metadata", (0, 1, 12), _every_topic, "of every topic"),
    Row(
        "Metadata",
        (1, 4, 12),
        _metadata(FRESH, make=True, operations=False),
        "that makes a topic",
        before=lambda world: world.have_no_topic(FRESH),
    ),
    Row("DescribeCluster", (0, 2), lambda world, version: {"include_cluster_authorized_operations": True}),
    Row("DescribeTopicPartitions", (0,), lambda world, version: {"topics": [{"name": T}, {"name": GONE}]}),
    Row("DescribeTopicPartitions", (0,), lambda world, version: {"topics": []}, "of every topic"),
    Row("DescribeLogDirs", (1, 3, 5), lambda world, version: {"topics": [{"topic": T, "partitions": [0]}]}),
    Row("ListPartitionReassignments", (0,), lambda world, version: {"topics": None}),
    Row("ElectLeaders", (0, 1, 2), lambda world, version: {"topic_partitions": _partitions_of(T, GONE)}),
    Row(
        "AlterPartitionReassignments",
        (0, 1),
        lambda world, version: {"topics": _partitions(replicas=None)},
    ),
    Row("AlterReplicaLogDirs", (1, 2), _move_to_nowhere),
    Row("DescribeQuorum", (0, 2), lambda world, version: {"topics": _partitions(of=(T,), name="topic_name")}),
    Row("UpdateFeatures", (0, 1, 2), _update_to_nothing),
    Row("ListConfigResources", (0, 1), lambda world, version: {"resource_types": [32]} if version else {}),
    Row("CreateTopics", (2, 7), _new_topic(FRESH), before=lambda world: world.have_no_topic(FRESH)),
    Row("CreateTopics", (7,), _new_topic(T), "that is there"),
    Row(
        "DeleteTopics",
        (1, 6),
        _delete_topics(DOOMED, GONE),
        before=lambda world: world.have_topic(DOOMED),
    ),
    Row(
        "DeleteTopics",
        (6,),
        _delete_topics(DOOMED, GONE, by_id=True),
        "by id",
        before=lambda world: world.have_topic(DOOMED),
    ),
    Row(
        "CreatePartitions",
        (0, 3),
        lambda world, version: {
            "topics": [{"name": T, "count": 5}, {"name": GONE, "count": 5}],
            "timeout_ms": 5000,
            "validate_only": True,
        },
    ),
    Row("DeleteRecords", (0, 2), lambda world, version: {"topics": _partitions(offset=0), "timeout_ms": 5000}),
    Row("DescribeConfigs", (1, 4), _configs),
    Row("DescribeConfigs", (1, 4), _configs_of_groups, "of groups"),
    Row("AlterConfigs", (0, 2), _altered_configs),
    Row("AlterConfigs", (0, 2), _altered_configs_of_groups, "of groups"),
    Row("IncrementalAlterConfigs", (0, 1), _altered_configs),
    Row("IncrementalAlterConfigs", (0, 1), _altered_configs_of_groups, "of groups"),
]

# ---- Groups --------------------------------------------------------------------------------------------------


def _consumer_heartbeat(*topics: str) -> Callable[[World, int], Fields]:
    """Return the fields of a ConsumerGroupHeartbeat of a client that is no member."""
    given = {"subscribed_topic_names": list(topics)} if topics else {}
    return lambda world, version: {"group_id": G, "member_id": "nobody", "member_epoch": 3, **given}


MEMBER = {"group_id": G, "member_id": "nobody"}


def _commit(world: World, version: int) -> Fields:
    part = {"partition_index": 0, "committed_offset": 0}
    topics = [{**_named(world, version, 10, "name", topic), "partitions": [part]} for topic in (T, GONE)]
    return {"group_id": G, "topics": topics}


def _offset_fetch(*, everything: bool = False) -> Callable[[World, int], Fields]:
    def fields(world: World, version: int) -> Fields:
        topics = [
            {**_named(world, version, 10, "name", topic), "partition_indexes": [0]} for topic in (T, "hidden", GONE)
        ]
        asked = None if everything else topics
        if version < 8:
            return {"group_id": G, "topics": asked}
        return {"groups": [{"group_id": G, "topics": asked}, {"group_id": "hidden", "topics": asked}]}

    return fields


ROWS += [
    Row(
        "FindCoordinator",
        (0, 3, 4, 6),
        lambda world, version: {"key": G} if version < 4 else {"coordinator_keys": [G, "hidden"]},
        "of a group",
    ),
    Row(
        "FindCoordinator",
        (1, 4),
        lambda world, version: {"key_type": 1, **({"key": X} if version < 4 else {"coordinator_keys": [X, "hidden"]})},
        "of a transactional id",
    ),
    Row(
        "JoinGroup",
        (0, 9),
        lambda world, version: {
            **MEMBER,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    Row("SyncGroup", (0, 5), lambda world, version: {**MEMBER, "protocol_type": "consumer", "protocol_name": "range"}),
    Row("Heartbeat", (0, 4), lambda world, version: MEMBER),
    Row(
        "LeaveGroup",
        (0, 5),
        lambda world, version: {**MEMBER, "members": [{"member_id": "nobody"}]} if version >= 3 else MEMBER,
    ),
    Row(
        "DescribeGroups",
        (0, 6),
        lambda world, version: {"groups": [G, "hidden"], "include_authorized_operations": version >= 3},
    ),
    Row("ConsumerGroupHeartbeat", (0, 1), _consumer_heartbeat()),
    Row("ConsumerGroupHeartbeat", (0,), _consumer_heartbeat(T, "never"), "with topics"),
    Row(
        "ConsumerGroupDescribe",
        (0, 1),
        lambda world, version: {"group_ids": [G, "hidden"], "include_authorized_operations": True},
    ),
    Row(
        "ConsumerGroupDescribe",
        (0, 1),
        lambda world, version: {"group_ids": [READING]},
        "with its topics",
        before=lambda world: world.join_group(READING, T),
    ),
    Row("ListGroups", (0, 5), lambda world, version: {}),
    Row("DeleteGroups", (0, 2), lambda world, version: {"groups_names": [GONE_GROUP, "never"]}),
    Row("OffsetCommit", (2, 9, 10), _commit),
    Row("OffsetFetch", (1, 7, 8, 9, 10), _offset_fetch()),
    Row("OffsetFetch", (2, 7, 8, 10), _offset_fetch(everything=True), "of everything"),
    Row(
        "OffsetDelete",
        (0,),
        lambda world, version: {
            "group_id": G,
            "topics": [{"name": name, "partitions": [{"partition_index": 0}]} for name in (T, GONE)],
        },
        before=lambda world: world.commit(G, T),
    ),
]

# ---- Transactions --------------------------------------------------------------------------------------------

NOBODY = {"producer_id": NOBODYS_PID, "producer_epoch": 0}


def _init(transactional_id: str | None, *, two_phase: bool = False) -> Callable[[World, int], Fields]:
    return lambda world, version: {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 60_000,
        **({"enable2_pc": True} if two_phase else {}),
    }


def _add_partitions(*topics: str) -> Callable[[World, int], Fields]:
    return lambda world, version: {
        "v3_and_below_transactional_id": X,
        "v3_and_below_producer_id": NOBODYS_PID,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in topics],
    }


def _marker(*topics: str) -> Callable[[World, int], Fields]:
    return lambda world, version: {
        "markers": [
            {
                **NOBODY,
                "transaction_result": False,
                "topics": [{"name": name, "partition_indexes": [0]} for name in topics],
            }
        ]
    }


ROWS += [
    Row("InitProducerId", (0, 5), _init(X), "of a transactional id"),
    Row("InitProducerId", (6,), _init(X, two_phase=True), "of a transactional id for two phases"),
    Row("InitProducerId", (0, 5), _init(None)),
    Row("AddPartitionsToTxn", (0, 3), _add_partitions(T)),
    Row("AddPartitionsToTxn", (0, 3), _add_partitions(T, GONE), "that is not there"),
    Row("AddPartitionsToTxn", (3,), _add_partitions("__consumer_offsets"), "of an internal topic"),
    Row("AddOffsetsToTxn", (0, 4), lambda world, version: {**NOBODY, "transactional_id": X, "group_id": G}),
    Row(
        "TxnOffsetCommit",
        (0, 3, 5),
        lambda world, version: {
            **NOBODY,
            "transactional_id": X,
            "group_id": G,
            "topics": _partitions(of=(GONE,), committed_offset=0),
        },
        "of a topic that is not there",
    ),
    Row(
        "TxnOffsetCommit",
        (3,),
        lambda world, version: {
            **NOBODY,
            "transactional_id": X,
            "group_id": G,
            "topics": _partitions(committed_offset=0),
        },
    ),
    Row("EndTxn", (0, 4, 5), lambda world, version: {**NOBODY, "transactional_id": X, "committed": True}),
    Row("WriteTxnMarkers", (1, 2), _marker(GONE)),
    Row("DescribeTransactions", (0,), lambda world, version: {"transactional_ids": [OPEN, "hidden", GONE_ID]}),
    Row("ListTransactions", (0, 2), lambda world, version: {}),
    Row(
        "DescribeProducers",
        (0,),
        lambda world, version: {"topics": [{"name": name, "partition_indexes": [0]} for name in (T, GONE)]},
    ),
]

# ---- Rules and users -----------------------------------------------------------------------------------------

NOBODYS_RULE = {"principal": "User:nobody", "host": "*", "permission_type": 3}
FILTER = {"pattern_type_filter": 3, "principal_filter": "User:no one", "permission_type": 1}

ROWS += [
    Row(
        "DescribeAcls",
        (1, 3),
        lambda world, version: {**FILTER, "resource_type_filter": 1, "operation": 1},
    ),
    Row(
        "CreateAcls",
        (1, 3),
        lambda world, version: {
            "creations": [
                {
                    **NOBODYS_RULE,
                    "resource_type": 2,
                    "resource_name": "nothing",
                    "resource_pattern_type": 3,
                    "operation": 3,
                }
            ]
        },
    ),
    Row(
        "DeleteAcls",
        (1, 3),
        lambda world, version: {"filters": [{**FILTER, "resource_type_filter": 1, "operation": 1}]},
    ),
    Row("DescribeUserScramCredentials", (0,), lambda world, version: {"users": [{"name": PREFIX + "nobody"}]}),
    Row(
        "AlterUserScramCredentials",
        (0,),
        lambda world, version: {"deletions": [{"name": PREFIX + "nobody", "mechanism": 1}]},
    ),
    Row("DescribeClientQuotas", (0, 1), lambda world, version: {"components": [], "strict": False}),
    Row(
        "AlterClientQuotas",
        (0, 1),
        lambda world, version: {
            "entries": [
                {
                    "entity": [{"entity_type": "client-id", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
]
