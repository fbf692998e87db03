"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, as Kafka 4.3.1 answers them."""

from typing import Any

import pytest
from fencepost.broker.config.settings import BROKER_OPTIONS, BrokerSettings
from fencepost.broker.topics.catalogue import broker_configs_changed
from fencepost.broker.topics.config_sizes import ConfigSizes
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from simulated_broker import SimulatedBroker

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
OK = (0, None)


@pytest.fixture
def topic(broker: SimulatedBroker) -> SimulatedBroker:
    """A broker with a topic a."""
    broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]))
    return broker


def describe(broker: SimulatedBroker, kind: int, name: str, keys: list[str] | None = None, **asked: Any) -> Any:
    resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=keys)
    (result,) = broker.ask(DescribeConfigsRequest(resources=[resource], **asked)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def alter(broker: SimulatedBroker, kind: int, name: str, configs: dict[str, str | None], **asked: Any) -> Any:
    entries = [AlterConfigsRequest.Resource.Config(name=key, value=value) for key, value in configs.items()]
    resource = AlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=entries)
    (result,) = broker.ask(AlterConfigsRequest(resources=[resource], **asked)).responses
    return result.error_code, result.error_message


Change = IncrementalAlterConfigsRequest.Resource.Config


def change(broker: SimulatedBroker, kind: int, name: str, *changes: tuple[str, int, str | None], **asked: Any) -> Any:
    entries = [Change(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=entries)
    (result,) = broker.ask(IncrementalAlterConfigsRequest(resources=[resource], **asked)).responses
    return result.error_code, result.error_message


def overrides(broker: SimulatedBroker, topic: str = "a") -> dict[str, str]:
    return {config.name: config.value for config in describe(broker, TOPIC, topic).configs if config.config_source == 1}


# ---- describing ----------------------------------------------------------------------------------------------


def test_a_setting_is_described_with_type_words_and_all_that_it_falls_back_to(topic: SimulatedBroker) -> None:
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


def test_only_the_settings_asked_for_are_described_and_unknown_ones_left_out(topic: SimulatedBroker) -> None:
    found = describe(topic, TOPIC, "a", ["segment.ms", "nope", "retention.ms"]).configs
    assert [config.name for config in found] == ["retention.ms", "segment.ms"]
    assert [config.documentation for config in found] == [None, None]
    assert len(describe(topic, TOPIC, "a", []).configs) == len(describe(topic, TOPIC, "a").configs) > 30


def test_the_brokers_settings_say_which_can_be_changed_while_it_runs(broker: SimulatedBroker) -> None:
    found = {config.name: config for config in describe(broker, BROKER, "1").configs}
    assert found["num.partitions"].read_only
    assert not found["message.max.bytes"].read_only
    assert (found["durability.mode"].value, found["durability.mode"].config_source) == ("fsync", 5)
    assert describe(broker, BROKER, "").configs == []


def test_a_setting_from_flag_or_file_is_described_as_such() -> None:
    with SimulatedBroker(BrokerSettings(num_partitions=3)) as broker:
        (config,) = describe(broker, BROKER, "1", ["num.partitions"]).configs
        assert (config.value, config.config_source) == ("3", 4)


@pytest.mark.parametrize(
    ("kind", "name", "code", "text"),
    [
        (TOPIC, "nope", 3, None),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (0, "1", 42, None),
        (99, "1", 42, None),
    ],
)
def test_a_resource_that_is_not_there_is_answered_by_itself(
    topic: SimulatedBroker, kind: int, name: str, code: int, text: str | None
) -> None:
    good = DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name="a")
    bad = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name)
    first, second = topic.ask(DescribeConfigsRequest(resources=[bad, good])).results
    assert (first.error_code, first.configs) == (code, [])
    assert text is None or first.error_message == text
    assert (second.error_code, second.error_message) == (0, "")


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_of_describe_configs_is_answered(topic: SimulatedBroker, version: int) -> None:
    resource = DescribeConfigsRequest.Resource(
        resource_type=TOPIC, resource_name="a", configuration_keys=["segment.ms"]
    )
    (result,) = topic.ask(DescribeConfigsRequest(resources=[resource]), version).results
    assert [(config.name, config.value) for config in result.configs] == [("segment.ms", "604800000")]


# ---- changing topics -----------------------------------------------------------------------------------------


def test_alter_configs_replaces_everything_there_was(topic: SimulatedBroker) -> None:
    assert alter(topic, TOPIC, "a", {"retention.ms": "5", "cleanup.policy": "compact"}) == OK
    assert overrides(topic) == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert alter(topic, TOPIC, "a", {"segment.ms": "50000"}) == OK
    assert overrides(topic) == {"segment.ms": "50000"}
    assert alter(topic, TOPIC, "a", {}) == OK
    assert overrides(topic) == {}


def test_incremental_changes_leave_the_other_settings_alone(topic: SimulatedBroker) -> None:
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
def test_a_change_that_cannot_be_is_refused_in_kafkas_words(
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


def test_an_unknown_operation_is_refused(topic: SimulatedBroker) -> None:
    # Kafka answers UNKNOWN_SERVER_ERROR here.
    assert change(topic, TOPIC, "a", ("cleanup.policy", 9, "compact"))[0] == 42


def test_a_resource_is_changed_whole_or_not_at_all(topic: SimulatedBroker) -> None:
    code, _ = change(topic, TOPIC, "a", ("retention.ms", SET, "5"), ("segment.ms", SET, "0"))
    assert code == 40
    assert overrides(topic) == {}


def test_a_setting_or_a_resource_named_twice_is_refused(topic: SimulatedBroker) -> None:
    doubled = change(topic, TOPIC, "a", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
    assert doubled == (42, "Error due to duplicate config keys")
    resource = AlterConfigsRequest.Resource(resource_type=TOPIC, resource_name="a", configs=[])
    answers = topic.ask(AlterConfigsRequest(resources=[resource, resource])).responses
    assert [(answer.error_code, answer.error_message) for answer in answers] == [
        (42, "Each resource must appear at most once.")
    ] * 2


def test_a_change_that_is_only_validated_changes_nothing(topic: SimulatedBroker) -> None:
    assert alter(topic, TOPIC, "a", {"retention.ms": "77"}, validate_only=True) == OK
    assert change(topic, TOPIC, "a", ("retention.ms", SET, "77"), validate_only=True) == OK
    assert overrides(topic) == {}


def test_changes_survive_a_power_cut(topic: SimulatedBroker) -> None:
    assert change(topic, TOPIC, "a", ("retention.ms", SET, "5")) == OK
    assert change(topic, BROKER, "", ("message.max.bytes", SET, "2000")) == OK
    with topic.after_power_cut() as again:
        assert overrides(again) == {"retention.ms": "5"}
        assert again.broker.settings.message_max_bytes == 2000


# ---- changing the broker -------------------------------------------------------------------------------------


def test_a_brokers_setting_changes_at_run_time_for_topics_that_do_not_override_it(topic: SimulatedBroker) -> None:
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


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
@pytest.mark.parametrize("of", ["", "1"], ids=["all brokers", "this broker"])
def test_what_would_keep_everybody_out_cannot_be_set_over_the_wire(broker: SimulatedBroker, name: str, of: str) -> None:
    """It could not be set back: nobody could connect, over restarts too, and whatever a flag says."""
    for value in ("0", "1", "9"):
        refused = change(broker, BROKER, of, (name, SET, value))
        assert refused[0] == ErrorCode.INVALID_REQUEST
        assert f"{name}: Value must be at least 10" in (refused[1] or "")
    assert change(broker, BROKER, of, (name, SET, "10")) == OK
    with broker.again() as again:
        assert change(again, BROKER, of, (name, DELETE, None)) == OK


def test_what_an_earlier_version_let_be_set_keeps_nobody_out() -> None:
    with SimulatedBroker() as broker:
        stored = {"max.connections": "0", "message.max.bytes": "5000"}
        broker.broker.topics._log.commit([broker_configs_changed("1", stored)])
        broker.wait(1)
        with broker.again() as again:
            assert again.broker.settings.max_connections == 10_000
            assert again.broker.settings.message_max_bytes == 5000
            assert change(again, BROKER, "1", ("max.connections", DELETE, None)) == OK


def test_a_start_that_ignores_what_was_set_while_running_lets_it_be_set_back() -> None:
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
def test_a_broker_id_that_is_no_int_is_refused_and_the_other_resources_are_served(topic: SimulatedBroker, number: str):
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


@pytest.mark.parametrize("of", ["", "1"], ids=["all brokers", "this broker"])
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_setting_of_the_broker_that_nobody_knows_is_refused_with_the_nearest(
    broker: SimulatedBroker, of: str, validate_only: bool
) -> None:
    refused = (42, "Unknown broker config name: mesage.max.bytes (did you mean message.max.bytes?)")
    assert change(broker, BROKER, of, ("mesage.max.bytes", SET, "1"), validate_only=validate_only) == refused
    assert alter(broker, BROKER, of, {"mesage.max.bytes": "1"}, validate_only=validate_only) == refused
    assert change(broker, BROKER, of, ("zzz", APPEND, "1")) == (42, "Unknown broker config name: zzz")
    assert change(broker, BROKER, of, ("zzz", DELETE, None)) == OK
    assert broker.broker.topics.broker_configs(of) == {}


@pytest.mark.parametrize(
    "name",
    ["listener.name.internal.ssl.keystore.password", "ssl.keystore.password", "sasl.jaas.config", "log.dirs"],
)
def test_no_password_and_no_other_spelling_is_kept_in_the_catalogue(broker: SimulatedBroker, name: str) -> None:
    refused = (42, f"Cannot update these configs dynamically: [{name}]")
    assert change(broker, BROKER, "1", (name, SET, "a secret")) == refused
    assert alter(broker, BROKER, "1", {name: "a secret"}) == refused
    assert broker.broker.topics.broker_configs("1") == {}


def test_nothing_that_can_be_set_over_the_wire_is_a_secret() -> None:
    assert not [row.name for row in BROKER_OPTIONS.values() if row.dynamic and row.is_secret]


def test_what_an_earlier_version_kept_opens_and_can_be_removed(broker: SimulatedBroker) -> None:
    stored = {"mesage.max.bytes": "1", "listener.name.a.ssl.key.password": "x", "long": "x" * 40_000}
    broker.broker.topics._log.commit([broker_configs_changed("1", stored)])
    broker.wait(1)
    with broker.again() as again:
        assert change(again, BROKER, "1", ("message.max.bytes", SET, "5000")) == OK
        assert again.broker.settings.message_max_bytes == 5000
        for name in stored:
            assert change(again, BROKER, "1", (name, DELETE, None)) == OK
        assert again.broker.topics.broker_configs("1") == {"message.max.bytes": "5000"}


# ---- how large settings may be -------------------------------------------------------------------------------

REPLICAS = "leader.replication.throttled.replicas"
TOO_LONG = (
    40,
    "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
)


@pytest.mark.parametrize("verb", [SET, APPEND])
def test_a_value_may_have_32767_bytes_and_every_client_can_be_told_it(topic: SimulatedBroker, verb: int) -> None:
    most = "0:1," + "1" * (32_767 - 6) + ":1"
    assert change(topic, TOPIC, "a", (REPLICAS, verb, most)) == OK
    assert change(topic, TOPIC, "a", (REPLICAS, APPEND, "2:1")) == TOO_LONG
    for version in range(1, 5):
        resource = DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name="a")
        (result,) = topic.ask(DescribeConfigsRequest(resources=[resource]), version).results
        assert most in [config.value for config in result.configs]
    with topic.again() as again:
        assert overrides(again) == {REPLICAS: most}


def test_bytes_are_counted_and_not_letters(broker: SimulatedBroker) -> None:
    name = "sasl.kerberos.service.name"
    assert change(broker, BROKER, "1", (name, SET, "ü" * 16_383)) == OK
    broker.broker.topics.check_broker_configs("1", {name: "ü" * 16_383})
    with pytest.raises(KafkaError, match="32767 bytes"):
        broker.broker.topics.check_broker_configs("1", {name: "ü" * 16_384})


def test_hostile_requests_for_settings_leave_a_catalogue_that_opens(topic: SimulatedBroker) -> None:
    """Each alone may be within all bounds of a request; together they would make a record that no start takes."""
    for number in range(100):
        entries = ",".join(f"{number * 3000 + each}:1" for each in range(3_000))
        change(topic, TOPIC, "a", (REPLICAS, APPEND, entries))
        change(topic, BROKER, "1", *((f"unknown.{number}.{each}", SET, "x" * 30_000) for each in range(60)))
        alter(topic, BROKER, "", {f"unknown.{number}.{each}": "x" * 30_000 for each in range(60)})
    with topic.again() as again:
        assert len(overrides(again)[REPLICAS]) <= 32_767
        assert again.broker.topics.broker_configs("1") == again.broker.topics.broker_configs("") == {}


def test_all_settings_together_have_a_bound_that_its_error_names() -> None:
    full = (44, "no room for more settings of topics and brokers: configs.max.bytes")
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


def test_one_resource_has_a_bound_of_its_own() -> None:
    sizes = ConfigSizes()
    before = {f"n{number}": "x" * 32_000 for number in range(8)}
    sizes.check({}, before, 1 << 30)
    with pytest.raises(KafkaError, match="262144 bytes"):
        sizes.check(before, {**before, "more": "x" * 32_000}, 1 << 30)
    sizes.check({**before, "n9": "x" * 99_999}, {**before, "n9": "x" * 99_999}, 0)


def test_what_is_not_obeyed_is_kept_and_does_not_prevent_a_start(broker: SimulatedBroker) -> None:
    name = "sasl.kerberos.min.time.before.relogin"
    assert change(broker, BROKER, "1", (name, SET, "60000")) == (0, None)
    assert change(broker, BROKER, "1", (name, SET, "soon"))[0] == 42
    with broker.again() as second:
        assert second.broker.topics.broker_configs("1") == {name: "60000"}
        assert change(second, BROKER, "1", (name, DELETE, None)) == (0, None)
        assert second.broker.topics.broker_configs("1") == {}
