"""KIP-939, as far as Kafka has it: InitProducerId version 6, where transaction.two.phase.commit.enable opts in."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import ApiVersionsRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from simulated_broker import SimulatedBroker
from txn_client import Txn, state, values

OFTEN = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 1000}


def listed(broker):
    """Return the highest version of InitProducerId that ApiVersions lists."""
    answer = broker.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    return {each.api_key: each.max_version for each in answer.api_keys}[22]


def init(broker, **more):
    asked = {"transactional_id": "t", "transaction_timeout_ms": 1000, "enable2_pc": True} | more
    return broker.ask(InitProducerIdRequest(**asked), 6)


def test_without_two_phase_commit_version_6_of_init_producer_id_is_not_offered():
    with SimulatedBroker() as broker:
        assert listed(broker) == 5
        with pytest.raises(ConnectionError):
            init(broker)


@pytest.mark.slow
def test_a_transaction_with_enable_2pc_never_times_out():
    with SimulatedBroker(BrokerSettings(transaction_two_phase_commit_enable=True, **OFTEN)) as broker:
        assert listed(broker) == 6
        broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]))
        answer = init(broker)
        assert (answer.error_code, answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (0, -1, -1)
        txn = Txn(broker, "t", 2)
        txn.goes_on_as(answer.producer_id, answer.producer_epoch)
        txn.write("a", b"v")
        broker.wait(500)
        assert state(broker, "t") == "Ongoing"
        assert txn.commit() == 0
        assert values(broker, "a") == [b"v"]


def test_a_transaction_without_enable_2pc_still_times_out():
    with SimulatedBroker(BrokerSettings(transaction_two_phase_commit_enable=True, **OFTEN)) as broker:
        broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]))
        answer = init(broker, enable2_pc=False)
        txn = Txn(broker, "t", 2)
        txn.goes_on_as(answer.producer_id, answer.producer_epoch)
        txn.write("a", b"v")
        broker.wait(5)
        assert state(broker, "t") == "CompleteAbort"


def test_init_producer_id_with_keep_prepared_transaction_is_refused_as_in_kafka():
    with SimulatedBroker(BrokerSettings(transaction_two_phase_commit_enable=True)) as broker:
        assert init(broker, keep_prepared_txn=True).error_code == ErrorCode.UNSUPPORTED_VERSION
