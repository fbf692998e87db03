"""A request about thousands of topics is answered as if at once, and holds nobody else up."""

import pytest
from fencepost.broker import slices
from fencepost.broker.settings import BrokerSettings
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

NAMES = [f"t{number}" for number in range(50)]


@pytest.fixture
def broker(monkeypatch):
    """Every topic is a slice of its own."""
    monkeypatch.setattr(slices, "SLICE_MS", 0)
    with SimulatedBroker(BrokerSettings()) as broker:
        yield broker


def create(names=NAMES):
    topics = [CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000)


def count(broker):
    return len(broker.ask(MetadataRequest(topics=None)).topics)


def test_each_item_is_answered_in_the_order_asked(broker):
    created = broker.ask(create([*NAMES, "no good", "t3", "t3"])).topics
    assert [topic.name for topic in created] == [name for name in NAMES if name != "t3"] + ["no good", "t3"]
    assert [topic.error_code for topic in created] == [0] * 49 + [17, 42]
    resource = IncrementalAlterConfigsRequest.Resource
    change = resource.Config(name="retention.ms", config_operation=0, value="7")
    asked = [resource(resource_type=2, resource_name=name, configs=[change]) for name in NAMES]
    altered = broker.ask(IncrementalAlterConfigsRequest(resources=asked)).responses
    assert [(one.resource_name, one.error_code) for one in altered] == [(n, 0 if n != "t3" else 3) for n in NAMES]
    wanted = [
        DescribeConfigsRequest.Resource(resource_type=2, resource_name=name, configuration_keys=["retention.ms"])
        for name in NAMES
    ]
    described = broker.ask(DescribeConfigsRequest(resources=wanted)).results
    assert [config.value for one in described for config in one.configs] == ["7"] * 49
    grown = [CreatePartitionsRequest.Topic(name=name, count=2) for name in NAMES]
    assert [one.error_code for one in broker.ask(CreatePartitionsRequest(topics=grown, timeout_ms=1)).results].count(
        0
    ) == 49
    gone = [DeleteTopicsRequest.Topic(name=name) for name in NAMES]
    deleted = broker.ask(DeleteTopicsRequest(topics=gone, timeout_ms=1)).responses
    assert [one.error_code for one in deleted].count(0) == 49
    assert count(broker) == 0


def test_others_are_served_in_between(broker):
    client, other = SimulatedClient(broker), SimulatedClient(broker)
    client.send(create())
    other.send(MetadataRequest(topics=None))
    seen = len(other.receive().topics)
    assert 0 < seen < 50
    assert len(client.receive().topics) == count(broker) == 50


def test_those_behind_it_on_the_same_connection_come_after_it(broker):
    client = SimulatedClient(broker)
    client.send(create())
    client.send(MetadataRequest(topics=None))
    assert len(client.receive().topics) == 50
    assert len(client.receive().topics) == 50


def test_it_goes_on_in_one_slice_where_that_is_quick(broker, monkeypatch):
    monkeypatch.setattr(slices, "SLICE_MS", 4)
    assert [topic.error_code for topic in broker.ask(create()).topics] == [0] * 50
