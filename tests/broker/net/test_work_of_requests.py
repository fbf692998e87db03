"""What is the most work that a request of some KB can ask for? One row for every API; an API without a row fails.

Each row is the nastiest request, or the nastiest requests sent at once, that anybody thought of, against a broker with
a little of everything. Bounded are the lines of Python run in one turn of the loop, which is how long everybody else
waits; the lines of all turns; and the bytes of the answers. Rows that are `one step` are one unit of the journal, or
one decision: there `why` says what bounds them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import named_work
import own_apis
import pytest
import quota_client
import replica_requests
import security_requests
import share_work
from acl_client import describing
from fencepost.broker.handlers import fetch as fetches
from fencepost.broker.net import turns
from fencepost.broker.requests.dispatch import load_handlers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.ledger import (
    DescribeLedgerRequest,
    EndTxnsRequest,
    PrepareTxnRequest,
    RemoveLedgerEntriesRequest,
)
from fencepost.protocol.messages.offsets import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from fencepost.protocol.messages.replicas import ListPartitionReassignmentsRequest
from fencepost.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnTopic,
    WriteTxnMarkersRequest,
)
from produce_requests import batch, fetch, produce
from simulated_client import SimulatedClient
from work_of_requests import PARTITIONS, PRODUCERS, World, consumer_heartbeats, frame_of, static_member

pytestmark = pytest.mark.slow

MANY = 400  # things named by one request
OFTEN = 30  # requests sent at once
INDEXES = [number % PARTITIONS for number in range(MANY)]


def names(count: int = MANY) -> list[str]:
    return [f"n{number}" for number in range(count)]


def metadata(world: World) -> list[Any]:
    made = MetadataRequest(
        topics=[MetadataRequest.Topic(name=name) for name in names()], allow_auto_topic_creation=True
    )
    return [made, *[MetadataRequest(topics=None)] * OFTEN]


def produce_to_many(world: World) -> list[Any]:
    return [produce("wide", *[batch()] * PARTITIONS)] * 5 + [produce("wide", *[None] * PARTITIONS)] * OFTEN


def fetch_many(world: World) -> list[Any]:
    """Return a fetch of all partitions, and OFTEN fetches of a session that has all of them."""
    made = FetchRequest.Topic
    parts = [made.Partition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(PARTITIONS)]
    everything = [made(topic="wide", partitions=parts)]
    session_id = world.broker.ask(fetch(epoch=0, topics=everything), OLDER["Fetch"]).session_id
    assert session_id
    again = [fetch(session_id=session_id, epoch=number + 1, topics=[]) for number in range(OFTEN)]
    return [fetch(topics=everything), *again]


def list_offsets(world: World) -> list[Any]:
    made = ListOffsetsRequest.Topic
    parts = [made.Partition(partition_index=index, timestamp=-1) for index in range(MANY)]
    return [ListOffsetsRequest(replica_id=-1, topics=[made(name="wide", partitions=parts)])]


def offset_commit(world: World) -> list[Any]:
    made = OffsetCommitRequest.Topic
    parts = [made.Partition(partition_index=index, committed_offset=1) for index in INDEXES]
    return [OffsetCommitRequest(group_id="new", topics=[made(name="wide", partitions=parts)])]


def txn_offset_commit(world: World) -> list[Any]:
    made, txn = TxnOffsetCommitRequest.Topic, world.txn
    parts = [made.Partition(partition_index=index, committed_offset=1) for index in INDEXES]
    return [
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=txn.producer_id,
            producer_epoch=txn.epoch,
            topics=[made(name="wide", partitions=parts)],
        )
    ]


def offset_fetch(world: World) -> list[Any]:
    return [OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="g", topics=None)] * MANY)]


def offset_delete(world: World) -> list[Any]:
    made = OffsetDeleteRequest.Topic
    parts = [made.Partition(partition_index=index) for index in INDEXES]
    return [OffsetDeleteRequest(group_id="g", topics=[made(name="wide", partitions=parts)])]


def end_of_epochs(world: World) -> list[Any]:
    made = OffsetForLeaderEpochRequest.Topic
    parts = [made.Partition(partition=index, leader_epoch=0) for index in INDEXES]
    return [OffsetForLeaderEpochRequest(topics=[made(topic="wide", partitions=parts)])]


def joining(world: World) -> list[Any]:
    protocols = [JoinGroupRequest.Protocol(name=name, metadata=b"") for name in names()]
    asked = JoinGroupRequest(
        group_id="joined",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    # With each static member that begins anew, the whole group is written.
    return [asked] * 10 + [static_member(number) for number in range(OFTEN)]


def leaving(world: World) -> list[Any]:
    return [LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.Member(member_id=name) for name in names()])]


def syncing(world: World) -> list[Any]:
    assignments = [SyncGroupRequest.Assignment(member_id=name, assignment=b"") for name in names()]
    asked = SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", protocol_type="c", protocol_name="c", assignments=assignments
    )
    return [asked] * 10


def create_topics(world: World) -> list[Any]:
    made = CreateTopicsRequest.Topic
    return [CreateTopicsRequest(topics=[made(name=f"c{name}", num_partitions=2) for name in names(300)])]


def delete_topics(world: World) -> list[Any]:
    named = [DeleteTopicsRequest.Topic(name=name) for name in ("wide", *names())]
    return [DeleteTopicsRequest(topics=named, timeout_ms=1)]


def create_partitions(world: World) -> list[Any]:
    made = CreatePartitionsRequest.Topic
    return [
        CreatePartitionsRequest(topics=[made(name=name, count=9_000) for name in ("a", "b")], timeout_ms=1),
        CreatePartitionsRequest(topics=[made(name=name, count=200) for name in ("a", "b")], timeout_ms=1),
    ]


def delete_records(world: World) -> list[Any]:
    made = DeleteRecordsRequest.Topic
    parts = [made.Partition(partition_index=0, offset=number % PARTITIONS) for number in range(MANY)]
    return [DeleteRecordsRequest(topics=[made(name="wide", partitions=parts)], timeout_ms=1)]


def add_partitions(world: World) -> list[Any]:
    return [
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=world.txn.producer_id,
            v3_and_below_producer_epoch=world.txn.epoch,
            v3_and_below_topics=[TxnTopic(name="wide", partitions=INDEXES)],
        )
    ]


def add_offsets(world: World) -> list[Any]:
    txn = world.txn
    made = AddOffsetsToTxnRequest
    return [
        made(transactional_id="x", producer_id=txn.producer_id, producer_epoch=txn.epoch, group_id=name)
        for name in names(OFTEN)
    ]


def end_txn(world: World) -> list[Any]:
    txn = world.txn
    return [EndTxnRequest(transactional_id="x", producer_id=txn.producer_id, producer_epoch=txn.epoch, committed=True)]


def markers(world: World) -> list[Any]:
    made = WriteTxnMarkersRequest.Marker
    topic = made.Topic(name="wide", partition_indexes=INDEXES)
    marker = made(producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=0, topics=[topic])
    return [WriteTxnMarkersRequest(markers=[marker])]


def describe_configs(world: World) -> list[Any]:
    made = DescribeConfigsRequest.Resource
    resources = [made(resource_type=2, resource_name="a", configuration_keys=None)] * MANY
    return [DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)]


def alter_configs(world: World) -> list[Any]:
    made = AlterConfigsRequest.Resource
    config = made.Config(name="retention.ms", value="1")
    resources = [made(resource_type=2, resource_name=name, configs=[config]) for name in ("a", "b", *names())]
    return [AlterConfigsRequest(resources=resources)]


def incremental(world: World) -> list[Any]:
    made = IncrementalAlterConfigsRequest.Resource
    config = made.Config(name="retention.ms", config_operation=0, value="1")
    resources = [made(resource_type=2, resource_name=name, configs=[config]) for name in ("a", "b", *names())]
    lists = [",".join(f"{number}:{broker}" for number in range(4_000)) for broker in (1, 2)]
    long = [
        made.Config(name="leader.replication.throttled.replicas", config_operation=operation, value=text)
        for operation, text in ((0, lists[0]), (3, lists[1]), (2, lists[0]))
    ]
    changes = [made(resource_type=2, resource_name="a", configs=[each]) for each in long]
    return [IncrementalAlterConfigsRequest(resources=each) for each in (resources, *([change] for change in changes))]


def describe_producers(world: World) -> list[Any]:
    made = DescribeProducersRequest.Topic
    return [DescribeProducersRequest(topics=[made(name="wide", partition_indexes=[0] * MANY)])]


def prepare(world: World) -> list[Any]:
    made = PrepareTxnRequest(
        transactional_id="x", producer_id=world.txn.producer_id, producer_epoch=9, ledger_key="k", number=1
    )
    return [made] * OFTEN


def end_txns(world: World) -> list[Any]:
    made = EndTxnsRequest.Transaction
    transactions = [made(transactional_id=name, producer_id=1, producer_epoch=0) for name in names()]
    return [EndTxnsRequest(ledger_key="k", number=1, owner="o", digest=b"", committed=True, transactions=transactions)]


class Row(NamedTuple):
    """The worst case of one API.

    ask: returns the requests to send. step_lines: how many lines one step may take beyond TURN_LINES. why: what bounds
    them, where a step is a decision about many things or a unit of the journal.
    """

    ask: Callable[[World], list[Any]]
    step_lines: int = 0
    why: str = ""


def times(count: int, request: Any) -> Callable[[World], list[Any]]:
    return lambda world: [request] * count


OLDER = {"Produce": 12, "Fetch": 12, "OffsetCommit": 9, "OffsetFetch": 9}  # the versions that have names

ROWS = {
    "Produce": Row(
        produce_to_many,
        30_000,
        "10,000 partitions a request, and one a turn beside one on arrival",
    ),
    "Fetch": Row(fetch_many),
    "ListOffsets": Row(list_offsets),
    "Metadata": Row(metadata),
    "OffsetCommit": Row(offset_commit, 60_000, "one unit"),
    "OffsetFetch": Row(offset_fetch),
    "FindCoordinator": Row(times(1, FindCoordinatorRequest(coordinator_keys=names()))),
    "JoinGroup": Row(joining, 15_000, "one decision; 20,000 protocols"),
    "Heartbeat": Row(times(OFTEN, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))),
    "LeaveGroup": Row(leaving, 10_000, "one rebalance"),
    "SyncGroup": Row(syncing, 10_000, "one decision; 20,000 members"),
    "DescribeGroups": Row(times(1, DescribeGroupsRequest(groups=["g"] * MANY))),
    "ConsumerGroupHeartbeat": Row(
        consumer_heartbeats(OFTEN, names()), 20_000, "one decision; 4,000 members and partitions"
    ),
    **{name: Row(*row) for name, row in (share_work.ROWS | named_work.ROWS).items()},
    "ListGroups": Row(times(OFTEN, ListGroupsRequest(states_filter=names(50)))),
    "ApiVersions": Row(times(OFTEN, ApiVersionsRequest())),
    "CreateTopics": Row(create_topics),
    "DeleteTopics": Row(delete_topics),
    "DeleteRecords": Row(delete_records),
    "InitProducerId": Row(times(OFTEN, InitProducerIdRequest(transaction_timeout_ms=1))),
    "OffsetForLeaderEpoch": Row(end_of_epochs),
    "AddPartitionsToTxn": Row(add_partitions),
    "AddOffsetsToTxn": Row(add_offsets),
    "EndTxn": Row(end_txn, 10_000, "one unit, of 40,000 markers at most (decision 31)"),
    "WriteTxnMarkers": Row(markers),
    "TxnOffsetCommit": Row(txn_offset_commit, 30_000, "one unit"),
    "DescribeConfigs": Row(describe_configs),
    "AlterConfigs": Row(alter_configs),
    "DescribeLogDirs": Row(times(OFTEN, DescribeLogDirsRequest(topics=None))),
    "CreatePartitions": Row(create_partitions, 20_000, "one unit a topic; 10,000 partitions a request"),
    "DeleteGroups": Row(times(1, DeleteGroupsRequest(groups_names=["g", *[f"g{number}" for number in range(300)]]))),
    "IncrementalAlterConfigs": Row(incremental),
    "OffsetDelete": Row(offset_delete, 10_000, "one unit"),
    "DescribeCluster": Row(times(OFTEN, DescribeClusterRequest())),
    "DescribeProducers": Row(describe_producers),
    "DescribeTransactions": Row(times(1, DescribeTransactionsRequest(transactional_ids=["x"] * MANY))),
    "ListTransactions": Row(times(OFTEN, ListTransactionsRequest())),
    "DescribeTopicPartitions": Row(times(OFTEN, DescribeTopicPartitionsRequest(topics=[]))),
    "SaslHandshake": Row(times(OFTEN, SaslHandshakeRequest(mechanism="PLAIN"))),
    "SaslAuthenticate": Row(times(OFTEN, SaslAuthenticateRequest(auth_bytes=bytes(1_000)))),
    "DescribeAcls": Row(times(OFTEN, describing())),
    "CreateAcls": Row(security_requests.create_acls, 30_000, "one unit for 200 rules"),
    "DeleteAcls": Row(security_requests.delete_acls, 30_000, "one unit for 200 rules"),
    "DescribeClientQuotas": Row(times(OFTEN, quota_client.describing())),
    "AlterClientQuotas": Row(security_requests.alter_quotas, 30_000, "one unit for 200 quotas"),
    "AlterUserScramCredentials": Row(security_requests.alter_users, 30_000, "one unit for 200 users"),
    "DescribeUserScramCredentials": Row(security_requests.describe_users),
    "ListPartitionReassignments": Row(times(OFTEN, ListPartitionReassignmentsRequest(topics=None))),
    "ElectLeaders": Row(replica_requests.elect_leaders),
    "AlterPartitionReassignments": Row(replica_requests.alter_partition_reassignments),
    "AlterReplicaLogDirs": Row(replica_requests.alter_replica_log_dirs),
    "DescribeQuorum": Row(replica_requests.describe_quorum),
    "UpdateFeatures": Row(replica_requests.update_features),
    "ListConfigResources": Row(times(OFTEN, ListConfigResourcesRequest())),
    "PrepareTxn": Row(prepare),
    "EndTxns": Row(end_txns),
    "DescribeLedger": Row(times(1, DescribeLedgerRequest(keys=["k"] * MANY))),
    "RemoveLedgerEntries": Row(times(1, RemoveLedgerEntriesRequest(keys=["k"] * MANY))),
    **{name: Row(api.work, api.step_lines, api.why) for name, api in own_apis.OWN_APIS.items()},
}

# Requests that change nothing: one world serves them all, since to make one takes longer than to ask it.
READING = {name for name in ROWS if name.startswith(("Describe", "List"))} | {
    "ApiVersions",
    "ConsumerGroupDescribe",
    "FindCoordinator",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
}

CPU_RATIO = 10  # how much faster CPU time may grow than lines: time varies; a quadratic loop in C exceeds this
TURN_LINES = 20_000  # of one turn, while the units of a turn are as few as below


@pytest.fixture
def short_turns(monkeypatch):
    """Make turns and slices short, so that small requests show what large ones would do."""
    monkeypatch.setattr(turns, "ARRIVAL_UNITS", 400)
    monkeypatch.setattr(turns, "SLICE_UNITS", 100)
    monkeypatch.setattr(fetches, "MANY_PARTITIONS", 50)


def frames_of(name: str, world: World) -> list[bytes]:
    return [frame_of(request, OLDER.get(name)) for request in ROWS[name].ask(world)]


def test_every_served_api_has_a_worst_case_request_in_the_table():
    assert set(ROWS) == {handler.api.name for handler in load_handlers().values()}
    assert len(READING) > 24, "all that describe or list something are among those that only read"


def check_work(name: str, world: World) -> None:
    frames, row = frames_of(name, world), ROWS[name]
    work = world.work(frames)
    assert work.most_lines <= TURN_LINES + row.step_lines, name
    assert work.most_cpu_lines <= CPU_RATIO * (TURN_LINES + row.step_lines), name
    assert work.left == 0, name


@pytest.mark.parametrize("name", [name for name in ROWS if name not in READING])
def test_the_worst_case_request_of_each_api_stays_within_the_limits_of_a_loop_turn(short_turns, name):
    world = World()
    check_work(name, world)
    world.broker.stop()


def test_worst_case_requests_of_all_reading_apis_stay_within_the_limits_of_a_turn(short_turns):
    world = World()
    for name in sorted(READING):
        check_work(name, world)
    world.broker.stop()


# ---- what one answer holds -----------------------------------------------------------------------------------------


def offsets_of_groups(world: World) -> list[int]:
    (asked,) = offset_fetch(world)
    return [group.error_code for group in world.broker.ask(asked, 9).groups]


def producers_of_partitions(world: World) -> list[int]:
    (topic,) = world.broker.ask(*describe_producers(world)).topics
    assert all(len(part.active_producers) == (0 if part.error_code else PRODUCERS) for part in topic.partitions)
    return [part.error_code for part in topic.partitions]


def states_of_transactions(world: World) -> list[int]:
    asked = DescribeTransactionsRequest(transactional_ids=["x"] * MANY)
    return [state.error_code for state in world.broker.ask(asked).transaction_states]


@pytest.mark.parametrize(
    ("codes_of", "later"),
    [
        (offsets_of_groups, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (producers_of_partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (states_of_transactions, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_request_items_beyond_the_answers_size_limit_get_a_retriable_error(monkeypatch, codes_of, later):
    monkeypatch.setattr(turns, "LEAST_ANSWER_BYTES", 0)
    monkeypatch.setattr(turns, "MAX_ANSWER_BYTES", 20_000)
    world = World()
    codes = codes_of(world)
    answered = codes.count(ErrorCode.NONE)
    assert 1 < answered < MANY / 2
    assert codes == [ErrorCode.NONE] * answered + [later] * (MANY - answered)
    assert later.retriable
    monkeypatch.setattr(turns, "MAX_ANSWER_BYTES", 1)
    assert codes_of(world) == [ErrorCode.NONE] + [later] * (MANY - 1)
    world.broker.stop()


def test_the_more_connections_are_open_the_fewer_bytes_one_answer_may_have(monkeypatch):
    world = World()
    connections = len(world.broker.broker.server.connections)
    monkeypatch.setattr(turns, "LEAST_ANSWER_BYTES", 20_000)
    monkeypatch.setattr(turns, "ALL_ANSWERS_BYTES", 40_000 * (connections + 10))
    alone = offsets_of_groups(world).count(ErrorCode.NONE)
    others = [SimulatedClient(world.broker) for _ in range(20)]
    shared = offsets_of_groups(world).count(ErrorCode.NONE)
    others += [SimulatedClient(world.broker) for _ in range(200)]
    least = offsets_of_groups(world).count(ErrorCode.NONE)
    assert MANY > alone > shared > least > 1
    world.broker.stop()


def test_a_resource_repeated_in_a_request_counts_each_time_in_the_answer_size(monkeypatch):
    monkeypatch.setattr(turns, "LEAST_ANSWER_BYTES", 0)
    monkeypatch.setattr(turns, "MAX_ANSWER_BYTES", 20_000)
    world = World()
    made = DescribeConfigsRequest.Resource
    again, others = (
        describe_configs(world)[0].resources,
        [made(resource_type=2, resource_name=name, configuration_keys=None) for name in ("wide", "b")],
    )
    asked = DescribeConfigsRequest(resources=[*again, *others], include_documentation=True)
    results = world.broker.ask(asked).results
    codes = [result.error_code for result in results]
    answered = codes.count(ErrorCode.NONE) - len(others)
    assert 1 <= answered < MANY / 2
    refused = [ErrorCode.INVALID_REQUEST] * (MANY - answered)
    assert codes == [ErrorCode.NONE] * answered + refused + [ErrorCode.NONE] * len(others)
    assert all(result.configs for result in results[-len(others) :])
    world.broker.stop()
