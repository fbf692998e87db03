"""Settings by Java's and librdkafka's names: what cannot be kept is refused by its name."""

import re

import pytest
from fencepost.client.config_names import settings_from
from fencepost.client.errors import InvalidConfigurationError
from fencepost.client.partitioner import PARTITIONERS
from fencepost.client.settings import (
    AdminSettings,
    ConsumerSettings,
    ProducerSettings,
    ShareConsumerSettings,
    consumer_settings,
    producer_settings,
)

BROKER = {"bootstrap.servers": "a"}


def producer(**more):
    return settings_from(ProducerSettings, BROKER | {name.replace("_", "."): value for name, value in more.items()})


def consumer(**more):
    return settings_from(ConsumerSettings, BROKER | {name.replace("_", "."): value for name, value in more.items()})


def test_max_decompressed_bytes_is_positive_and_by_default_twice_the_fetch_limit():
    assert consumer().decompressed_limit == 128 << 20  # the least default
    assert consumer(fetch_max_bytes=1 << 30).decompressed_limit == 2 << 30
    assert consumer(max_decompressed_bytes="1000").decompressed_limit == 1000
    with pytest.raises(InvalidConfigurationError):
        consumer(max_decompressed_bytes=0)


@pytest.mark.parametrize("value", [False, "false"])
def test_the_setting_enable_auto_offset_store_false_is_refused_with_a_hint(value):
    with pytest.raises(InvalidConfigurationError, match=r"enable\.auto\.offset\.store") as refused:
        consumer(group_id="g", enable_auto_offset_store=value)
    assert "enable.auto.commit=False" in refused.value.hint
    assert consumer(group_id="g", enable_auto_offset_store="true")


def test_from_config_turns_auto_commit_on_for_a_consumer_with_a_group():
    assert consumer(group_id="g").enable_auto_commit
    assert not consumer(group_id="g", enable_auto_commit="false").enable_auto_commit
    assert not consumer().enable_auto_commit
    assert not consumer_settings("a", group_id="g").enable_auto_commit


def test_serializers_may_be_functions_or_javas_string_and_byte_array_classes():
    """Another class of Java, or a value that is not callable, raises InvalidConfigurationError."""
    assert producer(value_serializer=str.encode).value_serializer is str.encode
    java = "org.apache.kafka.common.serialization."
    assert producer(key_serializer=java + "ByteArraySerializer").key_serializer is None
    assert producer(key_serializer=java + "StringSerializer").key_serializer("ü") == b"\xc3\xbc"
    assert consumer(key_deserializer="StringDeserializer").key_deserializer(b"\xc3\xbc") == "ü"
    with pytest.raises(InvalidConfigurationError, match=r"value\.deserializer"):
        consumer(value_deserializer=java + "LongDeserializer")
    with pytest.raises(InvalidConfigurationError, match="value_serializer"):
        producer_settings("a", value_serializer=5)


def test_partitioners_are_known_names_or_functions():
    for name in PARTITIONERS:
        assert producer(partitioner=name).partitioner == name
    assert producer(partitioner=max).partitioner is max
    for wrong in ("murmur3", 5):
        with pytest.raises(InvalidConfigurationError, match="partitioner"):
            producer(partitioner=wrong)


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({"compression_type": "zstd", "compression_level": "9"}, 9),
        ({"compression_codec": "gzip", "compression_level": -1}, None),
        ({"compression_type": "zstd", "compression_zstd_level": 19, "compression_gzip_level": 2}, 19),
        ({"compression_type": "snappy", "compression_gzip_level": 2}, None),
    ],
)
def test_the_compression_level_comes_from_the_setting_for_the_codec_in_use(given, level):
    assert producer(**given).compression_level == level


@pytest.mark.parametrize(
    "given",
    [
        {"compression_type": "zstd", "compression_level": 23},
        {"compression_type": "gzip", "compression_level": 0},
        {"compression_type": "gzip", "compression_level": 2.5},
        {"compression_type": "lz4", "compression_lz4_level": 3},
        {"compression_level": 3},
    ],
)
def test_a_compression_level_that_the_codec_does_not_have_is_refused(given):
    with pytest.raises(InvalidConfigurationError, match="compression_level"):
        producer(**given)


HARMLESS = {
    "client.dns.lookup": "use_all_dns_ips",
    "send.buffer.bytes": 131072,
    "receive.buffer.bytes": "-1",
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "socket.connection.setup.timeout.max.ms": 30000,
    "metrics.recording.level": "INFO",
    "interceptor.classes": [],
    "enable.metrics.push": "true",
    "metadata.recovery.strategy": "rebootstrap",
    "group.protocol": "CLASSIC",
    "security.providers": None,
    "statistics.interval.ms": 0,
    "socket.keepalive.enable": True,
    "enable.partition.eof": "false",
    "exclude.internal.topics": True,
    "transaction.two.phase.commit.enable": False,
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "queued.min.messages": 100_000,
    "batch.num.messages": 10_000,
    "enable.sparse.connections": True,
    "queuing.strategy": "fifo",
}


@pytest.mark.parametrize("cls", [ProducerSettings, ConsumerSettings, AdminSettings])
def test_settings_of_other_clients_without_effect_here_are_accepted(cls):
    assert settings_from(cls, BROKER | HARMLESS) == settings_from(cls, BROKER)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only"),
        ("metric.reporters", "com.example.Reporter"),
        ("interceptor.classes", ["com.example.Audit"]),
        ("security.providers", "com.example.Provider"),
        ("enable.partition.eof", True),
        ("exclude.internal.topics", "false"),
        ("transaction.two.phase.commit.enable", "true"),
        ("enable.gapless.guarantee", True),
        ("queuing.strategy", "lifo"),
    ],
)
def test_unsupported_values_of_other_clients_settings_raise_an_error_naming_them(name, value):
    with pytest.raises(InvalidConfigurationError, match=re.escape(name)) as refused:
        settings_from(ConsumerSettings, BROKER | {name: value})
    assert refused.value.hint


@pytest.mark.parametrize("listed", [list, ", ".join])
def test_javas_assignor_classes_are_accepted_in_a_list_or_comma_separated(listed):
    java = "org.apache.kafka.clients.consumer."
    strategies = [java + "CooperativeStickyAssignor", java + "RangeAssignor"]
    found = consumer(group_id="g", partition_assignment_strategy=listed(strategies))
    assert found.partition_assignment_strategy == ("cooperative-sticky", "range")


@pytest.mark.parametrize("names_first", [True, False])
def test_enabling_certificate_verification_keeps_disabled_host_name_checks_off(names_first):
    text = [("ssl.endpoint.identification.algorithm", "none"), ("enable.ssl.certificate.verification", True)]
    config = dict(text if names_first else reversed(text))
    assert not settings_from(ConsumerSettings, BROKER | config).security.check_hostname
    assert settings_from(ConsumerSettings, BROKER | dict(text[1:])).security.check_hostname


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ('username="u" password="c;d=e"', "c;d=e"),
        (r'username="u" password="a\"b\\c"', 'a"b\\c'),
        ("username=u password=secret", "secret"),
        ("username='u' password='it\"s' tokenauth=\"false\"", 'it"s'),
        ('password="p" keystorepassword="k" username="u"', "p"),
    ],
)
def test_a_password_with_escapes_in_sasl_jaas_config_is_read_as_java_reads_it(text, password):
    module = f"org.apache.kafka.common.security.plain.PlainLoginModule required {text};"
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": module}
    found = settings_from(ProducerSettings, BROKER | config).security
    assert (found.username, found.password) == ("u", password)


def test_other_clients_texts_for_unlimited_times_numbers_and_booleans_are_read():
    for forever in (0, "-1"):
        assert producer(connections_max_idle_ms=forever).connections_max_idle_ms == 2**31 - 1
    assert producer(message_timeout_ms="0").delivery_timeout_ms == 2**31 - 1
    assert producer(linger_ms="0.5").linger_ms == 0.5
    assert consumer(group_id="g", enable_auto_commit=1).enable_auto_commit is True
    with pytest.raises(InvalidConfigurationError, match="must be true or false"):
        consumer(group_id="g", enable_auto_commit=2)


def test_a_consumers_wrong_setting_name_gets_no_hint_to_a_producer_setting():
    with pytest.raises(InvalidConfigurationError) as refused:
        consumer(compression_level=3)
    assert "did you mean 'compression.level'" not in str(refused.value)


def test_group_protocol_is_set_by_javas_name_for_consumers_and_ignored_by_producers():
    """An unknown protocol is refused, and so is a remote assignor with the classic protocol."""
    config = {"bootstrap.servers": "a:1", "group.id": "g", "group.protocol": "CONSUMER"}
    made = settings_from(ConsumerSettings, {**config, "group.remote.assignor": "range"})
    assert (made.group_protocol, made.group_remote_assignor) == ("consumer", "range")
    assert settings_from(ConsumerSettings, {**config, "group.remote.assignor": ""}).group_remote_assignor is None
    settings_from(ProducerSettings, {"bootstrap.servers": "a:1", "group.protocol": "consumer"})
    with pytest.raises(InvalidConfigurationError, match="group_protocol='streams' is not valid"):
        settings_from(ConsumerSettings, {**config, "group.protocol": "streams"})
    with pytest.raises(InvalidConfigurationError, match="group_remote_assignor needs"):
        settings_from(ConsumerSettings, {**config, "group.protocol": "classic", "group.remote.assignor": "range"})


@pytest.mark.parametrize("name", ["session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"])
def test_settings_the_broker_decides_are_refused_with_the_consumer_protocol(name):
    config = {"bootstrap.servers": "a:1", "group.id": "g", name: "range" if "strategy" in name else 10_000}
    settings_from(ConsumerSettings, config)
    with pytest.raises(InvalidConfigurationError, match=name.replace(".", "_")) as raised:
        settings_from(ConsumerSettings, {**config, "group.protocol": "consumer"})
    assert "leave it out" in raised.value.hint


@pytest.mark.parametrize(
    ("name", "of_group", "hint"),
    [
        ("share.auto.offset.reset", "share.auto.offset.reset", "give auto_offset_reset to the consumer"),
        ("isolation.level", "share.isolation.level", "set it for the group"),
        ("session.timeout.ms", "share.session.timeout.ms", "set it for the group"),
    ],
)
def test_a_share_consumer_refuses_a_group_setting_and_names_the_config_of_the_group(
    name: str, of_group: str, hint: str
) -> None:
    with pytest.raises(InvalidConfigurationError) as refused:
        settings_from(ShareConsumerSettings, {"bootstrap.servers": "h:1", "group.id": "g", name: "x"})
    assert str(refused.value) == f"{name!r} is no setting of a share consumer: its group has {of_group}"
    assert hint in refused.value.hint
