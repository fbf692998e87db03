"""The settings of one group: what is refused, with which text, and which values apply if the bounds have changed."""

import pytest
from fencepost.broker.config.group_configs import BOUNDED, OPTIONS, GroupConfigs, check, reset_duration_ms, synonyms
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
        (
            {"share.session.timeout.ms": "60001"},
            "share.session.timeout.ms must be less than or equal to group.share.max.session.timeout.ms",
        ),
        (
            {"share.record.lock.duration.ms": "14999"},
            "share.record.lock.duration.ms must be greater than or equal to group.share.min.record.lock.duration.ms",
        ),
        (
            {"share.record.lock.duration.ms": "999"},
            "Invalid value 999 for configuration share.record.lock.duration.ms: Value must be at least 1000",
        ),
        (
            {"share.delivery.count.limit": "11"},
            "share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit",
        ),
        (
            {"share.partition.max.record.locks": "4001"},
            "share.partition.max.record.locks must be less than or equal to group.share.max.partition.max.record.locks",
        ),
        (
            {"share.assignment.interval.ms": "15001"},
            "share.assignment.interval.ms must be less than or equal to group.share.max.assignment.interval.ms",
        ),
        (
            {"share.auto.offset.reset": "none"},
            "Invalid value none for configuration share.auto.offset.reset: Invalid value `none` for configuration "
            "share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format "
            "'by_duration:<PnDTnHnMn.nS>'.",
        ),
        (
            {"share.isolation.level": "READ_COMMITTED"},
            "Invalid value READ_COMMITTED for configuration share.isolation.level: String must be one of: "
            "read_committed, read_uncommitted",
        ),
        (
            {"share.renew.acknowledge.enable": "1"},
            "Invalid value 1 for configuration share.renew.acknowledge.enable: Expected value to be either true or "
            "false",
        ),
    ],
)
def test_an_invalid_group_config_is_refused_with_kafkas_error_text(configs: dict[str, str], refusal: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        check(configs, BROKER)
    assert str(refused.value) == refusal


def test_settings_of_streams_groups_are_refused_as_unknown_with_the_reason() -> None:
    name = "streams.session.timeout.ms"
    with pytest.raises(InvalidOption, match=rf"Unknown group config name: {name} \(there are no streams groups here\)"):
        check({name: "1"}, BROKER)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("P1D", 86_400_000),
        ("pt1h2m3s", 3_723_000),
        ("P1DT1M", 86_460_000),
        ("PT1.5S", 1_500),
        ("PT0.0019S", 1),
        ("PT1.S", 1_000),
        ("-PT-1S", 1_000),
        ("PT1M-1S", 59_000),
        ("PT-0.5S", None),
        ("-PT1S", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("1D", None),
        ("P1Y", None),
        ("PT.5S", None),
        ("PT1.0000000001S", None),
        ("PT1M1H", None),
        ("P9999999999999999999D", None),
        (" PT1S", None),
        ("", None),
    ],
)
def test_share_auto_offset_reset_by_duration_is_parsed_as_in_java_and_not_negative(text: str, ms: int | None) -> None:
    reset = {"share.auto.offset.reset": f"by_duration:{text}"}
    if ms is None:
        with pytest.raises(InvalidOption):
            check(reset, BROKER)
    else:
        check(reset, BROKER)
        assert reset_duration_ms(GroupConfigs.of(reset, BROKER).share_auto_offset_reset) == ms


def test_a_group_obeys_its_own_share_settings_within_the_brokers_bounds() -> None:
    given = {
        "share.auto.offset.reset": "earliest",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "share.delivery.count.limit": "10",
        "share.record.lock.duration.ms": "60000",
    }
    narrow = BrokerSettings(group_share_max_delivery_count_limit=6, group_share_partition_max_record_locks=500)
    assert GroupConfigs.of(given, narrow) == GroupConfigs(
        share_auto_offset_reset="earliest",
        share_isolation_level="read_committed",
        share_renew_acknowledge_enable=False,
        share_delivery_count_limit=6,
        share_record_lock_duration_ms=60_000,
        share_partition_max_record_locks=500,
    )


def test_a_group_setting_without_a_broker_setting_lists_its_default_as_a_synonym() -> None:
    reset = "share.auto.offset.reset"
    assert synonyms(reset, {reset: "earliest"}, BROKER) == [
        (reset, "earliest", Source.GROUP),
        (reset, "latest", Source.DEFAULT),
    ]


def test_a_session_timeout_not_above_the_heartbeat_interval_is_refused() -> None:
    wide = BrokerSettings(group_consumer_max_heartbeat_interval_ms=60_000)
    check({SESSION: "50000", HEARTBEAT: "49999"}, wide)
    for configs in ({SESSION: "50000", HEARTBEAT: "50000"}, {HEARTBEAT: "45000"}):  # the second: the broker's session
        with pytest.raises(InvalidOption) as refused:
            check(configs, wide)
        assert str(refused.value) == f"{SESSION} must be greater than {HEARTBEAT}"


def test_group_config_values_equal_to_a_bound_are_accepted() -> None:
    for name in (row.name for row in BOUNDED):
        kind, _, of = name.partition(".")
        for bound in ("min", "max"):
            check({name: text_of(BROKER_OPTIONS[f"group.{kind}.{bound}.{of}"].default)}, BROKER)


def test_a_group_uses_its_own_values_and_the_brokers_for_the_others() -> None:
    broker = BrokerSettings(group_consumer_session_timeout_ms=46_000)
    obeyed = GroupConfigs.of({HEARTBEAT: " 6000 "}, broker)
    assert obeyed == GroupConfigs(consumer_heartbeat_interval_ms=6_000, consumer_session_timeout_ms=46_000)
    assert GroupConfigs.of({}, BROKER) == GroupConfigs()


def test_a_group_value_outside_the_brokers_new_bounds_is_replaced_by_the_bound() -> None:
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


def test_synonyms_of_a_group_config_are_the_groups_value_the_brokers_and_the_default() -> None:
    broker = BrokerSettings.of({Source.STATIC_BROKER: {"group.consumer.session.timeout.ms": "47000"}})
    assert synonyms(SESSION, {SESSION: " 50000"}, broker) == [
        (SESSION, "50000", Source.GROUP),
        ("group.consumer.session.timeout.ms", "47000", Source.STATIC_BROKER),
        ("group.consumer.session.timeout.ms", "45000", Source.DEFAULT),
    ]
    assert [source for _, _, source in synonyms(HEARTBEAT, {}, broker)] == [Source.DEFAULT]


def test_a_group_config_has_the_default_of_the_broker_setting_behind_it() -> None:
    # All others have a broker setting, whose default they share.
    assert [name for name, row in OPTIONS.items() if row not in BOUNDED] == [
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.renew.acknowledge.enable",
    ]
    for row in OPTIONS.values():
        assert not row.broker or BROKER_OPTIONS[row.broker].default == row.default
        assert row.parse(text_of(row.default)) == row.default
