"""The options: Spark's names and meanings, errors that say what to do, and no secret in any text."""

import json
import pickle
import time

import pytest
from fencepost.client.errors import InvalidConfigurationError
from fencepost.client.values import TopicPartition
from fencepost.spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    amount_of_bytes,
    duration_ms,
    redact,
    source_options,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def stream(**options):
    return source_options(SERVERS | {"subscribe": "t"} | {k: str(v) for k, v in options.items()}, streaming=True)


def batch(**options):
    return source_options(SERVERS | {"subscribe": "t"} | {k: str(v) for k, v in options.items()}, streaming=False)


def refusal(options, streaming=True):
    with pytest.raises(InvalidConfigurationError) as caught:
        source_options(options, streaming=streaming)
    return f"{caught.value} {caught.value.hint}"


def test_defaults_are_those_of_spark_except_for_the_isolation_level():
    options = stream()
    assert options.reads_committed
    assert options.fail_on_loss
    assert not options.include_headers
    assert options.starting == Bound(edge=LATEST)
    assert batch().starting == Bound(edge=EARLIEST)
    assert batch().ending.edge == LATEST
    assert options.patience_ms == 120_000
    assert options.max_delay_ms == 900_000
    assert (options.max_offsets, options.min_offsets, options.max_bytes, options.min_partitions) == (None,) * 4


def test_option_names_are_case_insensitive():
    options = source_options(SERVERS | {"SUBSCRIBEPATTERN": "a.*", "maxoffsetspertrigger": "7"}, streaming=True)
    assert options.selection.selects("abc")
    assert not options.selection.selects("xabc"), "the whole name has to match"
    assert options.max_offsets == 7


def test_an_unknown_source_option_is_refused_and_the_nearest_name_suggested():
    assert "'maxOffsetsPerTrigger'" in refusal(SERVERS | {"subscribe": "t", "maxOffsetPerTrigger": "1"})
    assert "'kafka.bootstrap.servers'" in refusal(SERVERS | {"bootstrap.servers": "x"})
    assert "isolation.level" in refusal(SERVERS | {"subscribe": "t", "kafka.isolation.levl": "x"})


def test_options_that_sparks_own_connector_refuses_are_refused():
    for name in ("kafka.auto.offset.reset", "kafka.key.deserializer", "kafka.enable.auto.commit"):
        assert "not supported" in refusal(SERVERS | {"subscribe": "t", name: "x"})


def test_a_missing_bootstrap_servers_option_is_refused():
    assert "kafka.bootstrap.servers" in refusal({"subscribe": "t"})


@pytest.mark.parametrize("given", [{}, {"subscribe": "a", "assign": '{"a":[0]}'}, {"subscribe": " , "}])
def test_options_that_select_topics_in_no_or_several_ways_are_refused(given):
    assert "subscribe" in refusal(SERVERS | given)


@pytest.mark.parametrize("java", ["[a-z&&[^x]]+", "[a-c[x-z]]+", "[[:alpha:]]+", r"\p{Lower}+", r"\Qa.b\E", "(?<n>a)"])
def test_a_pattern_that_means_something_else_in_java_is_refused(java):
    assert "subscribePattern" in refusal(SERVERS | {"subscribePattern": java})


@pytest.mark.parametrize("same", [r"orders-[a-z]+[^x]", r"a\[b[c]", "(?i)orders.*", r"o[\]\w-]+(?!dlq)", "[]a]|[^]b]"])
def test_a_pattern_that_means_the_same_in_java_is_accepted(same):
    assert source_options(SERVERS | {"subscribePattern": same}, streaming=True).selection.pattern == same


@pytest.mark.parametrize("wrong", ["x", "{}", '{"a":0}', '{"a":[-1]}', '{"a":["0"]}', '{"a":[true]}', "[1]"])
def test_a_malformed_assign_option_is_refused(wrong):
    assert "assign" in refusal(SERVERS | {"assign": wrong})


def test_the_option_assign_selects_the_partitions_in_its_json():
    options = source_options(SERVERS | {"assign": '{"b":[1,0],"a":[2]}'}, streaming=True)
    assert options.selection.partitions == (("a", 2), ("b", 0), ("b", 1))
    assert options.selection.named == ("a", "b")


def test_isolation_level_options_by_both_names_are_refused_if_they_differ():
    assert not stream(isolationLevel="read_uncommitted").reads_committed
    assert not stream(**{"kafka.isolation.level": "READ_UNCOMMITTED"}).reads_committed
    both = {"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"}
    assert "isolation" in refusal(SERVERS | {"subscribe": "t"} | both)
    assert "read_committed or" in refusal(SERVERS | {"subscribe": "t", "isolationLevel": "committed"})


def test_timestamp_options_take_precedence_over_offset_options():
    each = {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "earliest"}
    assert stream(**each, startingTimestamp=9).starting == Bound(timestamp=9)
    assert stream(**each).starting == Bound(timestamps={T0: 5})
    assert stream(**each, startingOffsetsByTimestampStrategy="latest").starting.latest_if_none
    ends = {"endingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsets": "latest"}
    assert batch(**ends, endingTimestamp=9).ending.timestamp == 9
    assert batch(**ends).ending.timestamps == {T0: 5}


def test_starting_offsets_of_sparks_kafka_source_and_our_checkpoints_are_accepted():
    found = stream(startingOffsets='{"@fencepost":{"v":1},"t":{"0":23,"1":-2}}').starting.offsets
    assert found == {T0: 23, T1: EARLIEST}


@pytest.mark.parametrize("wrong", ['{"t":{"0":-3}}', '{"t":{"x":1}}', '{"t":{"0":"1"}}', '{"t":[1]}', "erliest", "{}"])
def test_malformed_starting_offsets_are_refused_with_an_example_of_the_form(wrong):
    assert '"1":-1' in refusal(SERVERS | {"subscribe": "t", "startingOffsets": wrong})


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
def test_offsets_and_times_above_2_to_63_minus_1_are_refused(name):
    refusal(SERVERS | {"subscribe": "t", name: json.dumps({"t": {"0": 2**63}})}, streaming=False)
    batch(**{name: json.dumps({"t": {"0": 2**63 - 1}})})


def test_offset_options_that_contradict_each_other_or_select_no_records_are_refused():
    given = SERVERS | {"subscribe": "t"}
    assert "latest" in refusal(given | {"startingOffsets": "latest"}, streaming=False)
    assert "latest" in refusal(given | {"startingOffsets": '{"t":{"0":-1}}'}, streaming=False)
    assert "earliest" in refusal(given | {"endingOffsets": '{"t":{"0":-2}}'}, streaming=False)
    assert "no end" in refusal(given | {"endingOffsets": "latest"})
    assert "greater than" in refusal(given | {"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"})


def test_an_option_without_effect_in_this_kind_of_query_is_ignored_with_a_note():
    assert any("maxOffsetsPerTrigger" in note for note in batch(maxOffsetsPerTrigger=5).notes)
    assert any("kafka.group.id" in note for note in stream(**{"kafka.group.id": "g"}).notes)
    assert stream(maxOffsetsPerTrigger=5).notes == ()


def test_sizes_and_durations_of_spark_options_may_have_units_and_raise_if_malformed():
    assert amount_of_bytes("x", "64m") == 64 << 20
    assert amount_of_bytes("x", "1024") == 1024
    assert duration_ms("x", "15m") == 900_000
    assert duration_ms("x", "250") == duration_ms("x", "250ms") == 250
    for wrong in ("", "0", "-1", "m", "1x", "1.5m", "9" * 19, "9" * 15 + "m", "9" * 5000):
        with pytest.raises(InvalidConfigurationError):
            amount_of_bytes("x", wrong)


def test_no_secret_is_in_the_repr_of_options():
    secrets = {
        "kafka.sasl.jaas.config": 'x username="u" password="hush";',
        "kafka.ssl.key.password": "hush",
        "kafka.sasl.password": "hush",
    }
    assert "hush" not in repr(redact(SERVERS | secrets))
    given = SERVERS | {"subscribe": "t", "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    options = source_options(given | {"kafka.sasl.username": "u", "kafka.sasl.password": "hush"}, streaming=True)
    assert "hush" not in repr(options)
    assert options.connection.security.password == "hush"


def test_pem_certificates_and_token_provider_options_reach_client_settings():
    pem = "-----BEGIN CERTIFICATE-----\nhush\n"
    given = SERVERS | {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.certificates": pem,
        "kafka.ssl.keystore.certificate.chain": pem,
        "kafka.ssl.keystore.key": pem,
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauth.token.provider": "time:time",
        "kafka.sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
    }
    shown = redact(given)
    assert (shown["kafka.ssl.keystore.key"], shown["kafka.sasl.oauth.token.provider"]) == ("***", "***")
    options = source_options(given | {"subscribe": "t"}, streaming=True)
    security = options.connection.security
    assert (security.ca_pem, security.certificate_pem, security.key_pem) == (pem, pem, pem)
    assert security.token_provider is time.time
    again = source_options(given | {"subscribe": "t"}, streaming=True)
    assert {options.connection: 1}[again.connection] == 1, "connections are shared by their settings"
    assert "hush" not in repr(options)


def test_options_can_be_pickled_and_equal_servers_give_equal_connections():
    options = stream(startingOffsets='{"t":{"0":5}}')
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options.connection) == hash(batch(includeHeaders="true").connection)
    assert options.connection == batch().connection


@pytest.mark.parametrize("name", ["failOnDataLoss", "includeHeaders"])
@pytest.mark.parametrize("wrong", ["yes", "1", ""])
def test_a_boolean_option_with_another_value_is_refused(name, wrong):
    with pytest.raises(InvalidConfigurationError, match=f"'{name}' must be true or false, not {wrong!r}"):
        source_options(SERVERS | {"subscribe": "t", name: wrong}, streaming=False)
