"""How large settings may be: one value, those of one resource, all together; and a start after all that was asked."""

import pytest
from config_requests import APPEND, BROKER, OK, SET, TOPIC, alter, change, overrides
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.topics.config_sizes import ConfigSizes
from fencepost.protocol.errors import KafkaError
from fencepost.protocol.messages.configs import DescribeConfigsRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from simulated_broker import SimulatedBroker


@pytest.fixture
def topic(broker: SimulatedBroker) -> SimulatedBroker:
    """A broker with a topic a."""
    broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]))
    return broker


REPLICAS = "leader.replication.throttled.replicas"
TOO_LONG = (
    40,
    "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [SET, APPEND])
def test_a_config_value_of_32767_bytes_is_stored_and_a_longer_one_is_refused(topic: SimulatedBroker, verb: int) -> None:
    most = "0:1," + "1" * (32_767 - 6) + ":1"
    assert change(topic, TOPIC, "a", (REPLICAS, verb, most)) == OK
    assert change(topic, TOPIC, "a", (REPLICAS, APPEND, "2:1")) == TOO_LONG
    for version in range(1, 5):
        resource = DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name="a")
        (result,) = topic.ask(DescribeConfigsRequest(resources=[resource]), version).results
        assert most in [config.value for config in result.configs]
    with topic.again() as again:
        assert overrides(again) == {REPLICAS: most}


def test_the_size_of_a_config_value_is_counted_in_bytes_not_characters(broker: SimulatedBroker) -> None:
    name = "sasl.kerberos.service.name"
    assert change(broker, BROKER, "1", (name, SET, "ü" * 16_383)) == OK
    broker.broker.topics.check_broker_configs("1", {name: "ü" * 16_383})
    with pytest.raises(KafkaError, match="32767 bytes"):
        broker.broker.topics.check_broker_configs("1", {name: "ü" * 16_384})


@pytest.mark.slow
def test_many_huge_config_changes_leave_a_catalogue_that_the_next_start_can_read(topic: SimulatedBroker) -> None:
    """Each request is within all limits; added up they would make a catalogue record that is too large to be read."""
    for number in range(100):
        entries = ",".join(f"{number * 3000 + each}:1" for each in range(3_000))
        change(topic, TOPIC, "a", (REPLICAS, APPEND, entries))
        change(topic, BROKER, "1", *((f"unknown.{number}.{each}", SET, "x" * 30_000) for each in range(60)))
        alter(topic, BROKER, "", {f"unknown.{number}.{each}": "x" * 30_000 for each in range(60)})
    with topic.again() as again:
        assert len(overrides(again)[REPLICAS]) <= 32_767
        assert again.broker.topics.broker_configs("1") == again.broker.topics.broker_configs("") == {}


def test_settings_beyond_configs_max_bytes_in_total_get_policy_violation() -> None:
    """A change that takes less is accepted; a deleted topic makes room."""
    full = (44, "the settings of topics and brokers take all that is allowed: configs.max.bytes")
    text = "0:1," * 249 + "0:1"
    with SimulatedBroker(BrokerSettings(configs_max_bytes=2_000)) as broker:
        for name in ("a", "b", "c"):
            broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name=name)]))
        assert change(broker, TOPIC, "a", (REPLICAS, SET, text)) == OK
        assert change(broker, TOPIC, "b", (REPLICAS, SET, text)) == full
        assert change(broker, TOPIC, "b", (REPLICAS, SET, text), validate_only=True) == full
        assert change(broker, BROKER, "1", ("sasl.kerberos.service.name", SET, text)) == full
        made = CreateTopicsRequest.Topic
        with_configs = made(name="d", configs=[made.Config(name=REPLICAS, value=text)])
        (answer,) = broker.ask(CreateTopicsRequest(topics=[with_configs])).topics
        assert (answer.error_code, answer.error_message) == full
        assert change(broker, TOPIC, "a", (REPLICAS, SET, "0:1")) == OK, "less is always taken"
        assert change(broker, TOPIC, "b", (REPLICAS, SET, text)) == OK
        with broker.again() as again:
            assert change(again, TOPIC, "c", (REPLICAS, SET, text)) == full
            again.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="b")], timeout_ms=1))
            assert change(again, TOPIC, "c", (REPLICAS, SET, text)) == OK


def test_settings_of_one_resource_above_262144_bytes_are_refused() -> None:
    sizes = ConfigSizes()
    before = {f"n{number}": "x" * 32_000 for number in range(8)}
    sizes.check({}, before, 1 << 30)
    with pytest.raises(KafkaError, match="262144 bytes"):
        sizes.check(before, {**before, "more": "x" * 32_000}, 1 << 30)
    # What is already above the limits may stay.
    sizes.check({**before, "n9": "x" * 99_999}, {**before, "n9": "x" * 99_999}, 0)
