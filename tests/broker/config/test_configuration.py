"""Flags over environment over file, Kafka's spellings, and names that are refused."""

import tomllib

import pytest
from fencepost.broker.config.configuration import UnknownName, broker_settings
from fencepost.broker.config.kafka_options import DEFAULTS, NO_EFFECT
from fencepost.broker.config.options import InvalidOption
from fencepost.cli.arguments.connecting import BOOTSTRAP_VARIABLE
from fencepost.cli.arguments.login import CONFIG_VARIABLE, PASSWORD_VARIABLE, USER_VARIABLE


def test_flags_override_environment_variables_and_these_override_the_settings_file() -> None:
    file = {"num.partitions": 1, "max.connections": 11, "node.id": 12}
    environment = {"FENCEPOST_MAX_CONNECTIONS": "22", "FENCEPOST_NODE_ID": "23", "HOME": "/root"}
    settings, warnings = broker_settings({"node.id": "33"}, environment, file)
    assert (settings.num_partitions, settings.max_connections, settings.node_id) == (1, 22, 33)
    assert warnings == []


def test_the_broker_ignores_environment_variables_of_other_commands() -> None:
    variables = {BOOTSTRAP_VARIABLE: "h:1", USER_VARIABLE: "u", PASSWORD_VARIABLE: "p", CONFIG_VARIABLE: "f"}
    assert broker_settings({}, variables, {}) == broker_settings({}, {}, {})


@pytest.mark.parametrize(
    "text",
    ['"log.retention.ms" = 5', "log.retention.ms = 5", "[log.retention]\nms = 5", '[log]\n"retention.ms" = "5"'],
)
def test_kafkas_dotted_names_may_be_quoted_dotted_or_nested_in_the_file(text: str) -> None:
    assert broker_settings({}, {}, tomllib.loads(text))[0].log_retention_ms == 5


def test_the_settings_file_may_have_toml_lists_and_booleans_as_values() -> None:
    file = tomllib.loads('listeners = ["127.0.0.1:1", "[::1]:1"]\nauto.create.topics.enable = false')
    settings, _ = broker_settings({}, {}, file)
    assert settings.listeners == ("127.0.0.1:1", "[::1]:1")
    assert settings.auto_create_topics_enable is False


def test_if_a_time_is_set_in_several_units_the_setting_with_the_finest_unit_applies() -> None:
    settings, _ = broker_settings({}, {}, {"log.retention.hours": 2, "log.retention.minutes": 3, "log.roll.hours": 1})
    assert (settings.log_retention_ms, settings.log_roll_ms) == (180_000, 3_600_000)
    settings, _ = broker_settings({"log.retention.hours": "-1"}, {}, {"log.retention.ms": 5})
    assert settings.log_retention_ms == -1


@pytest.mark.parametrize(
    ("flags", "environment", "file", "message", "hint"),
    [
        ({"num.partitons": "1"}, {}, {}, "unknown setting num.partitons (flag)", "did you mean num.partitions?"),
        (
            {},
            {"FENCEPOST_LOG_RETENTION_MSS": "1"},
            {},
            "unknown setting FENCEPOST_LOG_RETENTION_MSS (environment)",
            "did you mean FENCEPOST_LOG_RETENTION_MS?",
        ),
        (
            {},
            {},
            {"xyzzy": 1},
            "unknown setting xyzzy (file)",
            "python -m fencepost.broker.config.settings_page lists every setting",
        ),
    ],
)
def test_an_unknown_setting_is_refused_and_the_nearest_name_suggested(
    flags: dict[str, str], environment: dict[str, str], file: dict[str, object], message: str, hint: str
) -> None:
    with pytest.raises(UnknownName) as refused:
        broker_settings(flags, environment, file)
    assert (str(refused.value), refused.value.hint) == (message, hint)


def test_settings_that_only_kafka_needs_are_accepted_and_named_in_one_warning() -> None:
    file = tomllib.loads(
        'process.roles = "broker,controller"\nzookeeper.connect = "z:2181"\ndefault.replication.factor = 3\n'
        'listener.security.protocol.map = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"\nnode.id = 7'
    )
    settings, warnings = broker_settings({}, {}, file)
    assert settings.node_id == 7
    assert len(warnings) == 1
    for name in ("process.roles", "zookeeper.connect", "default.replication.factor"):
        assert name in warnings[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.provider", "SunJSSE"),
        ("sasl.jaas.config", "x"),
        ("super.users", "User:admin"),
    ],
)
def test_a_security_setting_that_would_have_no_effect_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidOption, match="asks for protection"):
        broker_settings({name: text}, {}, {})


def test_the_only_accepted_authorizer_class_is_kafkas_standard_authorizer() -> None:
    """With it, super.users is accepted, and refused if a part of it is not of the form User:name."""
    file = tomllib.loads(
        '"authorizer.class.name" = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"\n'
        'super.users = "User:admin;User:CN=a,O=b"\nallow.everyone.if.no.acl.found = true'
    )
    settings, warnings = broker_settings({}, {}, file)
    assert (settings.super_users, settings.allow_everyone_if_no_acl_found) == ("User:admin;User:CN=a,O=b", True)
    assert not warnings
    with pytest.raises(
        InvalidOption, match=r"kafka\.security\.Other for configuration authorizer\.class\.name: the only"
    ):
        broker_settings({"authorizer.class.name": "kafka.security.Other"}, {}, {})
    with pytest.raises(InvalidOption, match="'admin' is not of the form User:name"):
        broker_settings({"super.users": "User:a;admin"}, {}, file)


def test_an_invalid_setting_value_is_refused_with_the_settings_name() -> None:
    with pytest.raises(InvalidOption, match=r"Invalid value 0 for configuration num\.partitions"):
        broker_settings({"num.partitions": "0"}, {}, {})
    with pytest.raises(InvalidOption, match=r"Invalid value x for configuration log\.roll\.hours"):
        broker_settings({"log.roll.hours": "x"}, {}, {})
    with pytest.raises(InvalidOption, match="HOST:PORT"):
        broker_settings({"listeners": "::1:9092"}, {}, {})


def test_settings_with_a_listener_prefix_are_read_from_flags_and_environment() -> None:
    settings, warnings = broker_settings(
        {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN"},
        {"FENCEPOST_LISTENER_NAME_SASL_PLAINTEXT_CONNECTIONS_MAX_REAUTH_MS": "5000"},
        tomllib.loads('listeners = "SASL_PLAINTEXT://127.0.0.1:1"\n"sasl.enabled.mechanisms" = "SCRAM-SHA-512"'),
    )
    assert not warnings
    (listener,) = settings.served_listeners
    assert (listener.options.sasl_enabled_mechanisms, listener.options.connections_max_reauth_ms) == (("PLAIN",), 5000)


@pytest.mark.parametrize("file", ['"log.dirs" = "/a,/b"', '"log.dirs" = ["/a", "/b"]'])
def test_log_dirs_with_several_directories_is_refused(file: str) -> None:
    with pytest.raises(InvalidOption, match=r"log\.dirs \(broker\.toml\) names 2 directories, and a broker has one"):
        broker_settings({}, {}, tomllib.loads(file), "broker.toml")


def test_log_dirs_accepts_a_list_of_one_and_log_dir_accepts_a_comma_in_a_path() -> None:
    assert broker_settings({}, {}, {"log.dirs": ["/a"]})[0].log_dir == "/a"
    assert broker_settings({"log.dir": "/a,b"}, {}, {})[0].log_dir == "/a,b"


@pytest.mark.parametrize("name", ["num.io.threads", "queued.max.requests", "log.flush.interval.messages"])
@pytest.mark.parametrize("value", ["-1", "0", "many"])
def test_an_impossible_value_of_an_ignored_setting_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=f"Invalid value {value} for configuration {name}"):
        broker_settings({}, {}, {name: value})
    assert broker_settings({}, {}, {name: 1})[1] == [f"names that only Kafka needs are ignored: {name}"]


def test_settings_without_effect_accept_kafkas_default_values() -> None:
    for name, default in DEFAULTS.items():
        if default is not None:
            NO_EFFECT[name].parse(default)
