"""Settings of Kafka's brokers that have no effect here: which values are accepted, described, and logged at start.

Sources of a value, as on the wire: 1 the topic, 2 this broker, 3 all brokers, 5 the default.
"""

import pytest
from config_requests import APPEND, BROKER, OK, SET, TOPIC, change, describe
from fencepost.broker.config.kafka_options import NO_EFFECT, SETTABLE
from fencepost.broker.config.options import Option
from fencepost.broker.topics.catalogue import broker_configs_changed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import CreateTopicsRequest
from simulated_broker import SimulatedBroker


@pytest.fixture
def topic(broker: SimulatedBroker) -> SimulatedBroker:
    """A broker with a topic a."""
    broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]))
    return broker


def beyond(row: Option) -> list[str]:
    """Return values that are just out of a setting's bounds."""
    found = [] if row.at_least is None else [str(int(row.at_least) - 1)]
    return found if row.at_most is None else [*found, str(int(row.at_most) + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name in SETTABLE if beyond(NO_EFFECT[name])))
def test_a_value_outside_kafkas_bounds_is_refused_for_a_setting_without_effect(
    broker: SimulatedBroker, name: str
) -> None:
    for value in beyond(NO_EFFECT[name]):
        code, text = change(broker, BROKER, "1", (name, SET, value))
        assert code == ErrorCode.INVALID_REQUEST
        assert (text or "").startswith(f"Invalid value {value} for configuration {name}: Value must be ")
    assert change(broker, BROKER, "1", (name, SET, str(int(NO_EFFECT[name].at_least or 0)))) == OK


def test_kafkas_settings_for_thread_counts_must_be_at_least_1(broker: SimulatedBroker) -> None:
    counts = {name for name in SETTABLE if "threads" in name or name == "num.replica.fetchers"}
    assert len(counts) == 6
    assert {NO_EFFECT[name].at_least for name in counts} == {1}


@pytest.mark.parametrize(
    ("option", "of_broker"),
    [("min.insync.replicas", "min.insync.replicas"), ("flush.ms", "log.flush.interval.ms")],
)
def test_a_topic_inherits_settings_without_effect_from_the_broker(
    topic: SimulatedBroker, option: str, of_broker: str
) -> None:
    def shown() -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
        (config,) = describe(topic, TOPIC, "a", [option], include_synonyms=True).configs
        return config.value, config.config_source, [(each.name, each.value, each.source) for each in config.synonyms]

    default = shown()[2]
    assert [source for _, _, source in default] == [5]
    assert change(topic, BROKER, "", (of_broker, SET, "2")) == OK
    assert shown() == ("2", 3, [(of_broker, "2", 3), *default])
    made = topic.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="b")])).topics[0]
    assert [(each.value, each.config_source) for each in made.configs if each.name == option] == [("2", 3)]
    assert change(topic, BROKER, "1", (of_broker, SET, "3")) == OK
    assert shown() == ("3", 2, [(of_broker, "3", 2), (of_broker, "2", 3), *default])
    assert change(topic, TOPIC, "a", (option, SET, "4")) == OK
    assert shown() == ("4", 1, [(option, "4", 1), (of_broker, "3", 2), (of_broker, "2", 3), *default])


def test_unknown_stored_settings_are_logged_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    with SimulatedBroker() as broker:
        stored = {
            "mesage.max.bytes": "1",
            "some.password": "secret",
            "message.max.bytes": "5000",
            "num.io.threads": "9",
        }
        broker.broker.topics._log.commit([broker_configs_changed("", stored)])
        broker.wait(1)
        with broker.again():
            pass
    (line,) = [record.message for record in caplog.records if "by an earlier version" in record.message]
    assert "kept for all brokers by an earlier version, and ignored: mesage.max.bytes, some.password" in line
    assert "secret" not in line


def test_settings_without_effect_are_described_with_their_stored_values(broker: SimulatedBroker) -> None:
    """Values that Kafka would refuse are refused."""
    assert change(broker, BROKER, "", ("log.flush.interval.ms", SET, "6"), ("min.insync.replicas", SET, "2")) == OK
    assert change(broker, BROKER, "1", ("log.flush.interval.ms", SET, "7")) == OK
    (flush,) = describe(broker, BROKER, "1", ["log.flush.interval.ms"], include_synonyms=True).configs
    assert [(each.value, each.source) for each in flush.synonyms] == [("7", 2), ("6", 3), (None, 5)]
    assert [(each.name, each.value) for each in describe(broker, BROKER, "").configs] == [
        ("log.flush.interval.ms", "6"),
        ("min.insync.replicas", "2"),
    ]
    for name, value in (("log.flush.interval.messages", "0"), ("log.flush.interval.ms", "soon")):
        code, text = change(broker, BROKER, "", (name, SET, value))
        assert code == ErrorCode.INVALID_REQUEST
        assert text.startswith(f"Invalid value {value} for configuration {name}: ")
    code, text = change(broker, BROKER, "", ("num.io.threads", APPEND, "9"))
    assert (code, text) == (
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key num.io.threads because its type is not LIST.",
    )
