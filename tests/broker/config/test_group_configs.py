"""The settings of one group: what is refused, in which words, and what a group obeys where bounds have changed."""

import pytest
from fencepost.broker.config.group_configs import OPTIONS, GroupConfigs, check, synonyms
from fencepost.broker.config.options import InvalidOption, text_of
from fencepost.broker.config.settings import BROKER_OPTIONS, BrokerSettings, Source

SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
BROKER = BrokerSettings()


# Each text is Kafka 4.3.1's answer to IncrementalAlterConfigs with these values.
@pytest.mark.parametrize(
    ("configs", "refusal"),
    [
        ({SESSION: "44999"}, f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        ({SESSION: "x"}, f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        ({SESSION: "0"}, f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        ({HEARTBEAT: ""}, f"Invalid value  for configuration {HEARTBEAT}: Not a number of type INT"),
        ({HEARTBEAT: "4999"}, f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "15001"}, f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        (
            {ASSIGNMENT: "15001"},
            f"{ASSIGNMENT} must be less than or equal to group.consumer.max.assignment.interval.ms",
        ),
        ({ASSIGNMENT: "-1"}, f"Invalid value -1 for configuration {ASSIGNMENT}: Value must be at least 0"),
        (
            {SESSION: "1", HEARTBEAT: "1"},
            f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        ({"nope": "1", HEARTBEAT: "1"}, "Unknown group config name: nope"),
        ({"consumer.assignor.offload.enable": "false"}, "Unknown group config name: consumer.assignor.offload.enable"),
    ],
)
def test_an_invalid_group_config_is_refused_with_kafkas_error_text(configs: dict[str, str], refusal: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        check(configs, BROKER)
    assert str(refused.value) == refusal


@pytest.mark.parametrize(
    ("name", "kind"), [("share.isolation.level", "share"), ("streams.session.timeout.ms", "streams")]
)
def test_settings_of_groups_that_are_not_served_are_unknown_and_why_is_shown(name: str, kind: str) -> None:
    with pytest.raises(InvalidOption, match=rf"Unknown group config name: {name} \(there are no {kind} groups here\)"):
        check({name: "1"}, BROKER)


def test_a_session_has_to_be_longer_than_the_heartbeat_interval() -> None:
    wide = BrokerSettings(group_consumer_max_heartbeat_interval_ms=60_000)
    check({SESSION: "50000", HEARTBEAT: "49999"}, wide)
    for configs in ({SESSION: "50000", HEARTBEAT: "50000"}, {HEARTBEAT: "45000"}):  # the second: the broker's session
        with pytest.raises(InvalidOption) as refused:
            check(configs, wide)
        assert str(refused.value) == f"{SESSION} must be greater than {HEARTBEAT}"


def test_the_bounds_of_a_value_are_good_values() -> None:
    for name in OPTIONS:
        kind, _, of = name.partition(".")
        for bound in ("min", "max"):
            check({name: text_of(BROKER_OPTIONS[f"group.{kind}.{bound}.{of}"].default)}, BROKER)


def test_a_group_obeys_its_own_values_and_of_the_rest_the_brokers() -> None:
    broker = BrokerSettings(group_consumer_session_timeout_ms=46_000)
    obeyed = GroupConfigs.of({HEARTBEAT: " 6000 "}, broker)
    assert obeyed == GroupConfigs(consumer_heartbeat_interval_ms=6_000, consumer_session_timeout_ms=46_000)
    assert GroupConfigs.of({}, BROKER) == GroupConfigs()


def test_where_the_bounds_have_changed_a_group_obeys_the_nearest_value() -> None:
    narrow = BrokerSettings(
        group_consumer_min_session_timeout_ms=46_000,
        group_consumer_session_timeout_ms=47_000,
        group_consumer_max_session_timeout_ms=50_000,
        group_consumer_min_assignment_interval_ms=500,
        group_consumer_max_heartbeat_interval_ms=10_000,
    )
    for text, value in (("55000", 50_000), ("45000", 46_000), ("48000", 48_000)):
        assert GroupConfigs.of({SESSION: text}, narrow).consumer_session_timeout_ms == value
    assert GroupConfigs.of({HEARTBEAT: "14000"}, narrow).consumer_heartbeat_interval_ms == 10_000
    assert GroupConfigs.of({ASSIGNMENT: "10"}, narrow).consumer_assignment_interval_ms == 500
    assert synonyms(SESSION, {SESSION: "55000"}, narrow)[0] == (SESSION, "55000", Source.GROUP)  # shown as it was given


def test_the_synonyms_of_a_setting_end_with_the_brokers() -> None:
    broker = BrokerSettings.of({Source.STATIC_BROKER: {"group.consumer.session.timeout.ms": "47000"}})
    assert synonyms(SESSION, {SESSION: " 50000"}, broker) == [
        (SESSION, "50000", Source.GROUP),
        ("group.consumer.session.timeout.ms", "47000", Source.STATIC_BROKER),
        ("group.consumer.session.timeout.ms", "45000", Source.DEFAULT),
    ]
    assert [source for _, _, source in synonyms(HEARTBEAT, {}, broker)] == [Source.DEFAULT]


def test_the_defaults_are_the_brokers() -> None:
    for row in OPTIONS.values():
        assert row.broker
        assert BROKER_OPTIONS[row.broker].default == row.default
        assert row.parse(text_of(row.default)) == row.default
