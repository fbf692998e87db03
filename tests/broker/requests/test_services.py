"""Which limit a client has met is in the broker's log, whether its answer has a place for a text or not."""

from collections.abc import Callable

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.transactions.states import machine
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.topics import DeleteRecordsRequest
from produce_requests import create, one
from simulated_broker import SimulatedBroker
from txn_client import PRODUCE, Txn

POLICY = ErrorCode.POLICY_VIOLATION
IDS, PARTITIONS, CLEANUP = "max.transactional.ids", "a transaction has at most 40000 partitions", "cleanup.policy"


def open_one(broker: SimulatedBroker, version: int = 2) -> Txn:
    """Begin a transaction with as many partitions as it may have."""
    txn = Txn(broker, "x", version)
    assert txn.init() == 0
    txn.write("t", b"v")
    return txn


def begin_another(broker: SimulatedBroker) -> int:
    open_one(broker)
    return Txn(broker, "y").init()


def add(broker: SimulatedBroker) -> int:
    (found,) = open_one(broker, 1).add("t", 1)
    return found


def add_offsets(broker: SimulatedBroker) -> int:
    return open_one(broker, 1).add_offsets()


def produce(broker: SimulatedBroker) -> int:
    txn = open_one(broker)
    answer = one(txn.client.ask(txn.producing("t", b"v", 1), PRODUCE[2]))
    assert PARTITIONS in answer.error_message
    return int(answer.error_code)


def send_offset(broker: SimulatedBroker) -> int:
    return open_one(broker).send_offset("t", 5)


def delete_records(broker: SimulatedBroker) -> int:
    broker.ask(create("kept", 1, cleanup_policy="compact"))
    Topic = DeleteRecordsRequest.Topic
    asked = Topic(name="kept", partitions=[Topic.Partition(partition_index=0, offset=0)])
    answer = broker.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1_000))
    return int(answer.topics[0].partitions[0].error_code)


def make_by_asking(broker: SimulatedBroker) -> int:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name="demanded")], allow_auto_topic_creation=True)
    return int(broker.ask(request).topics[0].error_code)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("meet", "api", "name"),
    [
        (begin_another, "InitProducerId", IDS),
        (add, "AddPartitionsToTxn", PARTITIONS),
        (add_offsets, "AddOffsetsToTxn", PARTITIONS),
        (produce, "Produce", PARTITIONS),
        (send_offset, "TxnOffsetCommit", PARTITIONS),
        (delete_records, "DeleteRecords", CLEANUP),
        (make_by_asking, "Metadata", "max.partitions"),
    ],
)
def test_a_refusal_by_a_limit_is_logged_with_the_limits_name(
    meet: Callable[[SimulatedBroker], int],
    api: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(machine, "MAX_PARTITIONS", 1)
    with SimulatedBroker(BrokerSettings(max_transactional_ids=1, max_partitions=3, num_partitions=2)) as broker:
        broker.ask(create("t", 2))
        assert meet(broker) == POLICY
    (line,) = [each.getMessage() for each in caplog.records if "is refused" in each.getMessage()]
    assert (line.startswith(f"{api} of "), name in line) == (True, True)
