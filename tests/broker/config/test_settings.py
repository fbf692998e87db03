"""The tables of settings: bounds, texts of refusal, and where a value comes from."""

from pathlib import Path

import pytest
from fencepost.broker.config import settings_page
from fencepost.broker.config.options import InvalidOption, text_of
from fencepost.broker.config.settings import (
    BROKER_OPTIONS,
    TOPIC_OPTIONS,
    BrokerSettings,
    Source,
    TopicSettings,
    topic_synonyms,
)

ROOT = Path(__file__).parents[3]


# Each text is Kafka 4.3.1's answer to CreateTopics with that value.
@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "1.5", "Invalid value 1.5 for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "1_000", "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG"),
        (
            "max.message.bytes",
            "99999999999",
            "Invalid value 99999999999 for configuration max.message.bytes: Not a number of type INT",
        ),
        (
            "segment.bytes",
            "100",
            "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "cleanup.policy",
            "delete,foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "compression.type",
            "bad",
            "Invalid value bad for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "compression.gzip.level",
            "100",
            "Invalid value 100 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.zstd.level",
            "100",
            "Invalid value 100 for configuration compression.zstd.level: Value must be no more than 22",
        ),
        (
            "leader.replication.throttled.replicas",
            "x",
            "Invalid value [x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            "remote.storage.enable",
            "true",
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_an_invalid_topic_config_is_refused_with_kafkas_error_text(name: str, text: str, refusal: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        TopicSettings.of({name: text}, BrokerSettings()).check()
    assert str(refused.value) == refusal


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("retention.bytes", "-5", -5),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "compact,compact", ("compact",)),
        ("cleanup.policy", "", ()),
        ("leader.replication.throttled.replicas", "*", ("*",)),
    ],
)
def test_topic_config_values_are_parsed_as_leniently_as_in_kafka(name: str, text: str, value: object) -> None:
    settings = TopicSettings.of({name: text}, BrokerSettings())
    assert getattr(settings, TOPIC_OPTIONS[name].field_name) == value


def test_of_several_wrong_topic_configs_the_one_that_kafka_checks_first_is_reported() -> None:
    with pytest.raises(InvalidOption, match=r"segment\.bytes"):
        TopicSettings.of({"retention.ms": "-2", "segment.bytes": "1"}, BrokerSettings())


def test_settings_that_contradict_another_setting_are_refused() -> None:
    """min.compaction.lag.ms above max.compaction.lag.ms; queued.max.request.bytes below the size of the largest
    request.
    """
    with pytest.raises(InvalidOption, match=r"min\.compaction\.lag\.ms \(10\) > max\.compaction\.lag\.ms \(5\)"):
        TopicSettings.of({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, BrokerSettings()).check()
    with pytest.raises(InvalidOption, match=r"queued\.max\.request\.bytes must be at least"):
        BrokerSettings.of({Source.STATIC_BROKER: {"queued.max.request.bytes": "1000"}})


def test_a_topic_setting_falls_back_to_the_brokers_and_then_to_the_default() -> None:
    broker = BrokerSettings.of({Source.STATIC_BROKER: {"log.retention.ms": "7", "log.segment.bytes": "2000000"}})
    settings = TopicSettings.of({"retention.ms": "8"}, broker)
    assert (settings.retention_ms, settings.segment_bytes, settings.index_interval_bytes) == (8, 2_000_000, 4096)
    assert topic_synonyms("retention.ms", {"retention.ms": " 8"}, broker) == [
        ("retention.ms", "8", Source.TOPIC),
        ("log.retention.ms", "7", Source.STATIC_BROKER),
        ("log.retention.ms", "604800000", Source.DEFAULT),
    ]


def test_a_dynamic_broker_setting_wins_over_file_and_flags() -> None:
    static = BrokerSettings.of({Source.STATIC_BROKER: {"message.max.bytes": "1"}})
    both = static.with_layer(Source.DYNAMIC_BROKER, {"message.max.bytes": "3"}).with_layer(
        Source.DYNAMIC_DEFAULT_BROKER, {"message.max.bytes": "2", "log.roll.ms": "9"}
    )
    assert (both.message_max_bytes, both.log_roll_ms) == (3, 9)
    assert [source.name for _, _, source in both.synonyms("message.max.bytes")] == [
        "DYNAMIC_BROKER",
        "DYNAMIC_DEFAULT_BROKER",
        "STATIC_BROKER",
        "DEFAULT",
    ]
    assert both.with_layer(Source.DYNAMIC_BROKER, {}).message_max_bytes == 2


def test_settings_given_in_code_survive_a_change_of_others_by_alter_configs() -> None:
    settings = BrokerSettings(num_partitions=3).with_layer(Source.DYNAMIC_BROKER, {"max.connections": "5"})
    assert (settings.num_partitions, settings.max_connections) == (3, 5)
    assert settings.synonyms("num.partitions")[0] == ("num.partitions", "3", Source.STATIC_BROKER)


def test_every_default_value_of_a_setting_passes_its_own_check() -> None:
    """Also, each setting has a description, and a topic setting has the same default as its broker setting."""
    for table in (BROKER_OPTIONS, TOPIC_OPTIONS):
        for row in table.values():
            assert row.parse(text_of(row.default)) == row.default, row.name
            assert row.doc, row.name
    for row in TOPIC_OPTIONS.values():
        if row.broker:
            assert BROKER_OPTIONS[row.broker].default == row.default, row.name


def test_the_documentation_page_of_settings_is_generated_from_the_tables() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    assert page == settings_page.page(), "make generated"
