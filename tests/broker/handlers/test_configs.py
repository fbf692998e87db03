"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, as Kafka 4.3.1 answers them.

Numbers as on the wire. Error codes: 17 INVALID_TOPIC_EXCEPTION, 40 INVALID_CONFIG, 42 INVALID_REQUEST. Sources of a
value: 1 the topic, 2 this broker, 3 all brokers, 4 the start of the broker, 5 the default.
"""

import pytest
from config_requests import APPEND, BROKER, DELETE, OK, SET, SUBTRACT, TOPIC, alter, change, describe, overrides
from fencepost.broker.config.kafka_options import NO_EFFECT, SETTABLE
from fencepost.broker.config.no_effect import SPELT_OTHERWISE
from fencepost.broker.config.settings import BROKER_OPTIONS, BrokerSettings
from fencepost.broker.topics.catalogue import broker_configs_changed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
)
from fencepost.protocol.messages.topics import CreateTopicsRequest
from simulated_broker import SimulatedBroker


@pytest.fixture
def topic(broker: SimulatedBroker) -> SimulatedBroker:
    """A broker with a topic a."""
    broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]))
    return broker


# ---- describing ----------------------------------------------------------------------------------------------


def test_describe_configs_returns_type_documentation_and_synonyms(topic: SimulatedBroker) -> None:
    change(topic, TOPIC, "a", ("max.message.bytes", SET, "9000"))
    (config,) = describe(
        topic, TOPIC, "a", ["max.message.bytes"], include_synonyms=True, include_documentation=True
    ).configs
    assert (config.value, config.config_source, config.config_type, config.read_only) == ("9000", 1, 3, False)
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("max.message.bytes", "9000", 1),
        ("message.max.bytes", "1048588", 5),
    ]
    assert config.documentation


def test_describe_configs_returns_only_requested_settings_and_omits_unknown_ones(topic: SimulatedBroker) -> None:
    found = describe(topic, TOPIC, "a", ["segment.ms", "nope", "retention.ms"]).configs
    assert [config.name for config in found] == ["retention.ms", "segment.ms"]
    assert [config.documentation for config in found] == [None, None]
    assert len(describe(topic, TOPIC, "a", []).configs) == len(describe(topic, TOPIC, "a").configs) > 30


def test_describe_configs_marks_which_broker_settings_are_read_only(broker: SimulatedBroker) -> None:
    found = {config.name: config for config in describe(broker, BROKER, "1").configs}
    assert found["num.partitions"].read_only
    assert not found["message.max.bytes"].read_only
    assert (found["durability.mode"].value, found["durability.mode"].config_source) == ("fsync", 5)
    assert describe(broker, BROKER, "").configs == []


def test_describe_configs_gives_static_broker_as_source_of_a_setting_made_at_start() -> None:
    with SimulatedBroker(BrokerSettings(num_partitions=3)) as broker:
        (config,) = describe(broker, BROKER, "1", ["num.partitions"]).configs
        assert (config.value, config.config_source) == ("3", 4)


@pytest.mark.parametrize(
    ("kind", "name", "code", "text"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic or partition here."),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (0, "1", ErrorCode.INVALID_REQUEST, "Unknown resource type 0"),
        (99, "1", ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_describe_configs_gives_each_unknown_resource_its_own_error(
    topic: SimulatedBroker, kind: int, name: str, code: int, text: str
) -> None:
    good = DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name="a")
    bad = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name)
    first, second = topic.ask(DescribeConfigsRequest(resources=[bad, good])).results
    assert (first.error_code, first.configs) == (code, [])
    assert first.error_message == text
    assert (second.error_code, second.error_message) == (0, "")


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_of_describe_configs_is_answered(topic: SimulatedBroker, version: int) -> None:
    resource = DescribeConfigsRequest.Resource(
        resource_type=TOPIC, resource_name="a", configuration_keys=["segment.ms"]
    )
    (result,) = topic.ask(DescribeConfigsRequest(resources=[resource]), version).results
    assert [(config.name, config.value) for config in result.configs] == [("segment.ms", "604800000")]


# ---- changing topics -----------------------------------------------------------------------------------------


def test_alter_configs_replaces_all_earlier_settings(topic: SimulatedBroker) -> None:
    assert alter(topic, TOPIC, "a", {"retention.ms": "5", "cleanup.policy": "compact"}) == OK
    assert overrides(topic) == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert alter(topic, TOPIC, "a", {"segment.ms": "50000"}) == OK
    assert overrides(topic) == {"segment.ms": "50000"}
    assert alter(topic, TOPIC, "a", {}) == OK
    assert overrides(topic) == {}


def test_incremental_alter_configs_keeps_the_other_settings(topic: SimulatedBroker) -> None:
    steps: list[tuple[tuple[str, int, str | None], dict[str, str]]] = [
        (("retention.ms", SET, "5"), {"retention.ms": "5"}),
        (("segment.ms", SET, "55555"), {"retention.ms": "5", "segment.ms": "55555"}),
        (("retention.ms", DELETE, None), {"segment.ms": "55555"}),
        (("retention.ms", DELETE, None), {"segment.ms": "55555"}),
        (("nope", DELETE, None), {"segment.ms": "55555"}),
        (("segment.ms", DELETE, "ignored"), {}),
        (("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
        (("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
        (("cleanup.policy", SUBTRACT, "compact"), {"cleanup.policy": ""}),
        (("cleanup.policy", SET, "delete"), {"cleanup.policy": "delete"}),
    ]
    for step, expected in steps:
        assert change(topic, TOPIC, "a", step) == OK
        assert overrides(topic) == expected, step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "entry", "code", "text"),
    [
        (TOPIC, "a", ("nope", SET, "1"), 40, "Unknown topic config name: nope"),
        (
            TOPIC,
            "a",
            ("retention.ms", SET, "-5"),
            40,
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        (TOPIC, "a", ("retention.ms", SET, None), 42, "Null value not supported for : retention.ms"),
        (TOPIC, "a", ("cleanup.policy", APPEND, None), 42, "Null value not supported for : cleanup.policy"),
        (
            TOPIC,
            "a",
            ("retention.ms", APPEND, "5"),
            40,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            TOPIC,
            "a",
            ("cleanup.policy", APPEND, "foo"),
            40,
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (TOPIC, "nope", ("retention.ms", SET, "5"), 3, "The topic 'nope' does not exist."),
        (TOPIC, "", ("retention.ms", SET, "5"), 42, "Default topic resources are not allowed."),
        (BROKER, "1", ("num.partitions", SET, "3"), 42, "Cannot update these configs dynamically: [num.partitions]"),
        (BROKER, "2", ("message.max.bytes", SET, "3"), 42, "Unexpected broker id, expected 1, but received 2"),
        (BROKER, "x", ("message.max.bytes", SET, "3"), 42, "Node id must be an integer, but it is: x"),
        (
            BROKER,
            "",
            ("message.max.bytes", SET, "-1"),
            42,
            "Invalid value -1 for configuration message.max.bytes: Value must be at least 0",
        ),
        (0, "x", ("a", SET, "1"), 42, "Unknown resource type 0"),
        (5, "x", ("a", SET, "1"), 42, "Unknown resource type 5"),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_an_invalid_config_change_is_refused_with_kafkas_text(
    topic: SimulatedBroker,
    kind: int,
    name: str,
    entry: tuple[str, int, str | None],
    code: int,
    text: str,
    validate_only: bool,
) -> None:
    assert change(topic, kind, name, entry, validate_only=validate_only) == (code, text)
    if entry[1] == SET:
        assert alter(topic, kind, name, {entry[0]: entry[2]}, validate_only=validate_only) == (code, text)
    assert overrides(topic) == {}


def test_incremental_alter_configs_refuses_an_unknown_operation(topic: SimulatedBroker) -> None:
    # Kafka answers UNKNOWN_SERVER_ERROR here.
    assert change(topic, TOPIC, "a", ("cleanup.policy", 9, "compact"))[0] == ErrorCode.INVALID_REQUEST


def test_one_invalid_setting_leaves_the_whole_resource_unchanged(topic: SimulatedBroker) -> None:
    code, _ = change(topic, TOPIC, "a", ("retention.ms", SET, "5"), ("segment.ms", SET, "0"))
    assert code == ErrorCode.INVALID_CONFIG
    assert overrides(topic) == {}


def test_altering_a_setting_or_a_resource_twice_in_one_request_is_refused(topic: SimulatedBroker) -> None:
    doubled = change(topic, TOPIC, "a", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
    assert doubled == (42, "Error due to duplicate config keys")
    resource = AlterConfigsRequest.Resource(resource_type=TOPIC, resource_name="a", configs=[])
    answers = topic.ask(AlterConfigsRequest(resources=[resource, resource])).responses
    assert [(answer.error_code, answer.error_message) for answer in answers] == [
        (42, "Each resource must appear at most once.")
    ] * 2


def test_alter_configs_with_validate_only_changes_nothing(topic: SimulatedBroker) -> None:
    assert alter(topic, TOPIC, "a", {"retention.ms": "77"}, validate_only=True) == OK
    assert change(topic, TOPIC, "a", ("retention.ms", SET, "77"), validate_only=True) == OK
    assert overrides(topic) == {}


def test_changed_configs_survive_a_power_cut(topic: SimulatedBroker) -> None:
    assert change(topic, TOPIC, "a", ("retention.ms", SET, "5")) == OK
    assert change(topic, BROKER, "", ("message.max.bytes", SET, "2000")) == OK
    with topic.after_power_cut() as again:
        assert overrides(again) == {"retention.ms": "5"}
        assert again.broker.settings.message_max_bytes == 2000


# ---- changing the broker -------------------------------------------------------------------------------------


def test_a_dynamic_broker_setting_applies_to_topics_that_do_not_override_it(topic: SimulatedBroker) -> None:
    """The value for one broker wins over the value for all brokers."""
    topic.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="b")]))
    change(topic, TOPIC, "b", ("max.message.bytes", SET, "7000"))
    assert change(topic, BROKER, "", ("message.max.bytes", SET, "5000")) == OK
    assert change(topic, BROKER, "1", ("message.max.bytes", SET, "6000")) == OK
    of_a = topic.broker.topics.by_name["a"].partitions[0].rules.max_message_bytes
    of_b = topic.broker.topics.by_name["b"].partitions[0].rules.max_message_bytes
    assert (of_a, of_b) == (6000, 7000)
    (config,) = describe(topic, TOPIC, "a", ["max.message.bytes"], include_synonyms=True).configs
    assert [(each.value, each.source) for each in config.synonyms] == [("6000", 2), ("5000", 3), ("1048588", 5)]
    (of_all,) = describe(topic, BROKER, "").configs
    assert (of_all.name, of_all.value, of_all.config_source) == ("message.max.bytes", "5000", 3)
    assert change(topic, BROKER, "1", ("message.max.bytes", DELETE, None)) == OK
    assert topic.broker.settings.message_max_bytes == 5000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
@pytest.mark.parametrize("of", ["", "1"], ids=["all brokers", "this broker"])
def test_alter_configs_refuses_a_connection_limit_below_10(broker: SimulatedBroker, name: str, of: str) -> None:
    """A lower limit could not be changed back: no client could connect, not even after a restart, and a command line
    flag does not override a dynamic setting.
    """
    for value in ("0", "1", "9"):
        refused = change(broker, BROKER, of, (name, SET, value))
        assert refused[0] == ErrorCode.INVALID_REQUEST
        assert f"{name}: Value must be at least 10" in (refused[1] or "")
    assert change(broker, BROKER, of, (name, SET, "10")) == OK
    with broker.again() as again:
        assert change(again, BROKER, of, (name, DELETE, None)) == OK


def test_a_stored_limit_that_would_keep_all_clients_out_is_ignored() -> None:
    with SimulatedBroker() as broker:
        stored = {"max.connections": "0", "message.max.bytes": "5000"}
        broker.broker.topics._log.commit([broker_configs_changed("1", stored)])
        broker.wait(1)
        with broker.again() as again:
            assert again.broker.settings.max_connections == 10_000
            assert again.broker.settings.message_max_bytes == 5000
            assert change(again, BROKER, "1", ("max.connections", DELETE, None)) == OK


def test_a_start_that_ignores_dynamic_settings_lets_them_be_reset() -> None:
    """Settings that were not reset apply again at the next ordinary start."""
    with SimulatedBroker() as broker:
        assert change(broker, BROKER, "1", ("max.connections", SET, "10")) == OK
        assert change(broker, BROKER, "", ("message.max.bytes", SET, "5000")) == OK
        broker.stop()
        with SimulatedBroker(disk=broker.disk, ignore_dynamic=True) as ignoring:
            assert ignoring.broker.settings.max_connections == 10_000
            assert ignoring.broker.settings.message_max_bytes == 1_048_588
            assert change(ignoring, BROKER, "1", ("max.connections", DELETE, None)) == OK
            assert ignoring.broker.settings.message_max_bytes == 1_048_588
            with ignoring.again() as obeying:
                assert obeying.broker.settings.max_connections == 10_000
                assert obeying.broker.settings.message_max_bytes == 5000


@pytest.mark.parametrize("number", ["9" * 5_000, "2147483648", "-2147483649", "1.0", "", "-"])
def test_a_broker_id_that_is_no_int32_is_refused_and_other_resources_are_described(topic: SimulatedBroker, number: str):
    resources = [
        DescribeConfigsRequest.Resource(resource_type=BROKER, resource_name=number or "x"),
        DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name="a"),
    ]
    wrong, right = topic.ask(DescribeConfigsRequest(resources=resources)).results
    assert wrong.error_code == ErrorCode.INVALID_REQUEST
    assert "must be an integer" in wrong.error_message
    assert (right.error_code, bool(right.configs)) == (0, True)
    refused = change(topic, BROKER, number or "x", ("message.max.bytes", SET, "5000"))
    assert refused[0] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("spelling", ["01", "+1", "001", "\N{ARABIC-INDIC DIGIT ONE}"])
def test_alter_configs_accepts_only_the_canonical_spelling_of_the_broker_id(
    broker: SimulatedBroker, spelling: str
) -> None:
    """Settings under another spelling would be stored without effect, with a separate limit for each."""
    entry = "message.max.bytes", SET, "5000"
    refused = (42, f"Unexpected broker id, expected 1, but received {spelling}")
    assert change(broker, BROKER, spelling, entry) == change(broker, BROKER, spelling, entry, validate_only=True)
    assert change(broker, BROKER, spelling, entry) == alter(broker, BROKER, spelling, {entry[0]: "5000"}) == refused
    found = describe(broker, BROKER, spelling)
    assert (found.error_code, found.configs) == (ErrorCode.INVALID_REQUEST, [])
    assert found.error_message == f"Unexpected broker id, expected 1 or empty string, but received {spelling}"
    assert broker.broker.topics.catalogue.broker_configs == {}


@pytest.mark.parametrize("name", ["01", "7"], ids=["another spelling", "an id it had before"])
def test_settings_stored_for_another_broker_id_are_shown_and_can_be_removed(broker: SimulatedBroker, name: str) -> None:
    """They have no effect, and no new value can be given to them."""
    stored = {"message.max.bytes": "5000", "mesage.max.bytes": "1", "num.io.threads": "9"}
    broker.broker.topics._log.commit([broker_configs_changed(name, stored)])
    broker.wait(1)
    with broker.again() as again:
        shown = describe(again, BROKER, name, include_synonyms=True).configs
        assert {each.name: each.value for each in shown} == stored | {"mesage.max.bytes": None}
        assert again.broker.settings.message_max_bytes == 1_048_588
        for entry in (("message.max.bytes", SET, "6000"), ("num.network.threads", SET, "3")):
            assert change(again, BROKER, name, entry) == (42, f"Unexpected broker id, expected 1, but received {name}")
        assert change(again, BROKER, name, ("message.max.bytes", DELETE, None)) == OK
        assert again.broker.topics.broker_configs(name) == {"mesage.max.bytes": "1", "num.io.threads": "9"}
        assert alter(again, BROKER, name, {}) == OK
        assert again.broker.topics.broker_configs(name) == {}
        assert describe(again, BROKER, name).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("of", ["", "1"], ids=["all brokers", "this broker"])
@pytest.mark.parametrize("validate_only", [True, False])
def test_an_unknown_broker_setting_is_refused_with_the_nearest_name(
    broker: SimulatedBroker, of: str, validate_only: bool
) -> None:
    refused = (42, "Unknown broker config name: mesage.max.bytes (did you mean message.max.bytes?)")
    assert change(broker, BROKER, of, ("mesage.max.bytes", SET, "1"), validate_only=validate_only) == refused
    assert alter(broker, BROKER, of, {"mesage.max.bytes": "1"}, validate_only=validate_only) == refused
    assert change(broker, BROKER, of, ("zzz", APPEND, "1")) == (42, "Unknown broker config name: zzz")
    assert change(broker, BROKER, of, ("zzz", DELETE, None)) == OK
    assert broker.broker.topics.broker_configs(of) == {}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("log.flush.interval.message", "log.flush.interval.messages"),
        ("min.insync.replica", "min.insync.replicas"),
        ("MESSAGE.MAX.BYTES", "message.max.bytes"),
        ("num.io.thread", "num.io.threads"),
        ("num.partition", "num.partitions"),
    ],
)
def test_the_suggested_setting_name_comes_from_all_accepted_names(
    broker: SimulatedBroker, name: str, meant: str
) -> None:
    refused = (42, f"Unknown broker config name: {name} (did you mean {meant}?)")
    assert change(broker, BROKER, "", (name, SET, "1")) == refused


@pytest.mark.parametrize(
    "name",
    ["listener.name.internal.ssl.keystore.password", "ssl.keystore.password", "sasl.jaas.config", "log.dirs"],
)
def test_passwords_and_settings_that_cannot_change_are_refused_and_not_stored(
    broker: SimulatedBroker, name: str
) -> None:
    refused = (42, f"Cannot update these configs dynamically: [{name}]")
    assert change(broker, BROKER, "1", (name, SET, "a secret")) == refused
    assert alter(broker, BROKER, "1", {name: "a secret"}) == refused
    assert broker.broker.topics.broker_configs("1") == {}


def test_no_setting_that_can_be_changed_at_runtime_is_a_password() -> None:
    assert not [row.name for row in BROKER_OPTIONS.values() if row.dynamic and row.is_secret]


def test_unknown_settings_stored_by_an_earlier_version_can_be_removed(broker: SimulatedBroker) -> None:
    stored = {"mesage.max.bytes": "1", "listener.name.a.ssl.key.password": "x", "long": "x" * 40_000}
    broker.broker.topics._log.commit([broker_configs_changed("1", stored)])
    broker.wait(1)
    with broker.again() as again:
        assert change(again, BROKER, "1", ("message.max.bytes", SET, "5000")) == OK
        assert again.broker.settings.message_max_bytes == 5000
        for name in stored:
            assert change(again, BROKER, "1", (name, DELETE, None)) == OK
        assert again.broker.topics.broker_configs("1") == {"message.max.bytes": "5000"}


def test_every_kafka_broker_setting_is_shown_with_its_value_for_one_node() -> None:
    """A setting without effect has the value that is true of a single broker, and a documentation. Passwords have no
    value.
    """
    with SimulatedBroker(BrokerSettings(node_id=7, log_retention_ms=7_200_000)) as broker:
        node = str(broker.broker.node_id)
        found = {config.name: config for config in describe(broker, BROKER, node, include_documentation=True).configs}
        kafkas = NO_EFFECT.keys() | SPELT_OTHERWISE.keys()
        assert len(kafkas) == 224, "of the 340 that 4.3.1 has; the others are obeyed"
        assert kafkas | BROKER_OPTIONS.keys() == found.keys()
        values = {name: found[name].value for name in kafkas}
        true_here = {
            "broker.id": "7",
            "log.dirs": ".fencepost",
            "log.retention.hours": "2",
            "log.retention.minutes": "120",
            "log.roll.hours": "168",
            "min.insync.replicas": "1",
            "default.replication.factor": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "remote.log.storage.system.enable": "false",
            "group.coordinator.rebalance.protocols": "classic,consumer",
            "log.flush.interval.messages": "9223372036854775807",
            "log.flush.interval.ms": None,
            "ssl.keystore.password": None,
        }
        assert {name: values[name] for name in true_here} == true_here
        assert found["ssl.keystore.password"].is_sensitive
        assert all(found[name].documentation for name in kafkas)
        assert {name for name in kafkas if not found[name].read_only} == SETTABLE
        for version in (1, 2, 3):
            resource = DescribeConfigsRequest.Resource(resource_type=BROKER, resource_name=node)
            (result,) = broker.ask(DescribeConfigsRequest(resources=[resource]), version).results
            assert len(result.configs) == len(found)


def test_an_unknown_stored_setting_is_described_without_its_value(broker: SimulatedBroker) -> None:
    broker.broker.topics._log.commit([broker_configs_changed("", {"some.password": "secret"})])
    for of in ("", "1"):
        (config,) = describe(broker, BROKER, of, ["some.password"], include_synonyms=True).configs
        assert (config.value, config.is_sensitive, config.read_only) == (None, True, False)
        assert {each.value for each in config.synonyms} == {None}


# ---- loggers and client metrics, of which there are none -----------------------------------------------------

LOGGER, METRICS = 8, 16  # resource types


@pytest.mark.parametrize(
    ("kind", "name", "described", "altered"),
    [
        (LOGGER, "1", (0, ""), (40, "Logger interval.ms does not exist!")),
        (LOGGER, "", (42, "Broker id must not be empty"), (42, "Node id must not be empty")),
        (
            LOGGER,
            "x",
            (42, "Broker id must be an integer, but it is: x"),
            (42, "Node id must be an integer, but it is: x"),
        ),
        (METRICS, "x", (0, ""), (42, "there are no client metrics subscriptions here")),
        (
            METRICS,
            "",
            (42, "Client metrics subscription name must not be empty"),
            (42, "there are no client metrics subscriptions here"),
        ),
    ],
)
def test_loggers_and_client_metrics_have_no_configs_and_altering_them_is_refused(
    broker: SimulatedBroker, kind: int, name: str, described: tuple[int, str], altered: tuple[int, str]
) -> None:
    found = describe(broker, kind, name)
    assert (found.error_code, found.error_message) == described
    assert found.configs == []
    assert change(broker, kind, name, ("interval.ms", SET, "1000")) == altered
    assert change(broker, kind, name, ("interval.ms", SET, "1000"), validate_only=True) == altered


def test_a_setting_without_effect_is_stored_and_survives_a_restart(broker: SimulatedBroker) -> None:
    name = "sasl.kerberos.min.time.before.relogin"
    assert change(broker, BROKER, "1", (name, SET, "60000")) == (0, None)
    assert change(broker, BROKER, "1", (name, SET, "soon"))[0] == ErrorCode.INVALID_REQUEST
    with broker.again() as second:
        assert second.broker.topics.broker_configs("1") == {name: "60000"}
        assert change(second, BROKER, "1", (name, DELETE, None)) == (0, None)
        assert second.broker.topics.broker_configs("1") == {}
