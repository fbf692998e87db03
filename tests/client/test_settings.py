"""Settings: the rules between them, their defaults, other libraries' names, and that no secret is shown."""

import pickle

import pytest
from fencepost.client.config_names import settings_from
from fencepost.client.errors import (
    AbortableTransactionError,
    CommitOutcomeUnknownError,
    ErrorCode,
    InvalidConfigurationError,
    ProducerFencedError,
    error_of,
    is_retriable,
)
from fencepost.client.setting_checks import INT32_MAX
from fencepost.client.settings import (
    ConsumerSettings,
    ProducerSettings,
    addresses_of,
    consumer_settings,
    producer_settings,
)


def _refused(**keywords) -> InvalidConfigurationError:
    with pytest.raises(InvalidConfigurationError) as caught:
        producer_settings("a", **keywords)
    return caught.value


@pytest.mark.requirement("S-48")
@pytest.mark.parametrize("acks", [0, 1])
def test_idempotence_with_acks_other_than_all_is_refused_with_kafkas_message(acks):
    error = _refused(acks=acks)
    assert "Must set acks to all in order to use the idempotent producer." in str(error)
    assert "enable_idempotence=False" in error.hint
    assert producer_settings("a", acks=acks, enable_idempotence=False).required_acks == acks


@pytest.mark.requirement("S-49")
def test_idempotence_without_retries_is_refused():
    assert "Must set retries to non-zero" in str(_refused(retries=0))
    assert producer_settings("a", retries=0, enable_idempotence=False).most_retries == 0


@pytest.mark.requirement("S-50", "C-5")
def test_idempotence_with_more_than_five_in_flight_is_refused():
    assert "5" in str(_refused(max_in_flight=6))
    assert producer_settings("a").max_in_flight == 5
    assert producer_settings("a", max_in_flight=50, enable_idempotence=False).max_in_flight == 50


@pytest.mark.requirement("S-51", "S-52", "C-5")
def test_the_default_producer_is_idempotent_with_acks_all_and_retries():
    settings = producer_settings("a")
    assert settings.enable_idempotence
    assert settings.required_acks == -1
    assert settings.most_retries == INT32_MAX


@pytest.mark.requirement("S-53", "S-54", "S-117")
@pytest.mark.parametrize(("idempotent", "transactional"), [(False, None), (True, None), (True, "t")])
def test_only_a_transactional_id_with_idempotence_off_is_refused(idempotent, transactional):
    settings = producer_settings("a", enable_idempotence=idempotent, transactional_id=transactional)
    assert (settings.enable_idempotence, settings.transactional_id) == (idempotent, transactional)
    assert "idempotence" in str(_refused(enable_idempotence=False, transactional_id="t"))


@pytest.mark.requirement("S-55", "S-117")
def test_the_default_transaction_timeout_is_60_seconds():
    assert producer_settings("a").transaction_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ("a:1,b", (("a", 1), ("b", 9092))),
        (["[::1]:2", ("c", 3)], (("::1", 2), ("c", 3))),
        ("PLAINTEXT://a:1, a:1", (("a", 1),)),
    ],
)
def test_bootstrap_servers_may_be_a_string_a_list_or_addresses(servers, found):
    assert addresses_of(servers) == found


@pytest.mark.parametrize("servers", ["", "a:b", "a:0", "a:70000", ":1", [], "a:1;b:2", "a:1 b:2"])
def test_invalid_bootstrap_addresses_are_refused(servers):
    with pytest.raises(InvalidConfigurationError, match="bootstrap_servers"):
        producer_settings(servers)


def test_an_unknown_keyword_is_a_type_error_that_suggests_the_nearest_one():
    with pytest.raises(TypeError, match="did you mean 'linger_ms'"):
        producer_settings("a", linger=5)


WRONG = [
    {"isolation_level": "dirty"},
    {"auto_offset_reset": "middle"},
    {"group_id": ""},
    {"group_id": "g", "group_instance_id": ""},  # an environment variable that is empty: all members would be one
]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_invalid_value_of_a_consumer_setting_is_refused(wrong):
    with pytest.raises(InvalidConfigurationError):
        consumer_settings("a", **wrong)


@pytest.mark.requirement("S-117", "S-118")
def test_by_default_a_consumer_reads_committed_records_and_does_not_autocommit():
    settings = consumer_settings("a", group_id="g")
    assert (settings.isolation_level, settings.enable_auto_commit, settings.auto_offset_reset) == (
        "read_committed",
        False,
        "none",
    )


def test_setting_names_units_and_values_of_java_and_librdkafka_are_converted():
    java = settings_from(
        ProducerSettings, {"bootstrap.servers": "a", "enable.idempotence": "true", "batch.size": "1", "acks": "all"}
    )
    assert (java.max_batch_size, java.required_acks) == (1, -1)
    librdkafka = settings_from(
        ProducerSettings, {"metadata.broker.list": "a", "queue.buffering.max.kbytes": 8, "queue.buffering.max.ms": 5}
    )
    assert (librdkafka.buffer_memory, librdkafka.linger_ms) == (8192, 5)
    names = "org.apache.kafka.clients.consumer.RangeAssignor"
    consumer = settings_from(
        ConsumerSettings,
        {"bootstrap.servers": "a", "auto.offset.reset": "smallest", "partition.assignment.strategy": names},
    )
    assert (consumer.auto_offset_reset, consumer.partition_assignment_strategy) == ("earliest", ("range",))


def test_an_unknown_dotted_name_is_refused_and_the_nearest_suggested():
    with pytest.raises(InvalidConfigurationError, match=r"did you mean 'enable\.idempotence'"):
        settings_from(ProducerSettings, {"bootstrap.servers": "a", "enable.idempotance": True})


def test_the_repr_of_settings_shows_no_password():
    jaas = 'org.apache.kafka…PlainLoginModule required username="me" password="hush-hush";'
    settings = settings_from(
        ProducerSettings,
        {
            "bootstrap.servers": "a",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
            "ssl.key.password": "hush-too",
        },
    )
    assert settings.security.password == "hush-hush"
    assert "hush" not in repr(settings)


@pytest.mark.parametrize("name", ["client_id", "transactional_id", "group_id", "group_instance_id"])
@pytest.mark.parametrize("value", [5, b"x", "\ud800", "x" * 32_768])
def test_an_id_that_the_protocol_cannot_encode_is_refused_by_the_settings(name, value):
    settings = producer_settings if name == "transactional_id" else consumer_settings
    with pytest.raises(InvalidConfigurationError, match=name):
        settings("a", **{"group_id": "g", name: value} if settings is consumer_settings else {name: value})


@pytest.mark.parametrize("keywords", [{"sasl_mechanism": "PLAIN"}, {"security_protocol": "SASL_SSL"}])
def test_incomplete_security_settings_are_refused_with_a_hint(keywords):
    assert _refused(**keywords).hint


def test_errors_of_broker_codes_have_their_class_and_hint_and_can_be_pickled():
    fenced = error_of(ErrorCode.INVALID_PRODUCER_EPOCH, transactional=True)
    assert isinstance(fenced, ProducerFencedError)
    spoiled = error_of(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, transactional=True)
    assert isinstance(spoiled, AbortableTransactionError)
    assert spoiled.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert is_retriable(error_of(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert not is_retriable(error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert "7777" in str(error_of(7777))
    again = pickle.loads(pickle.dumps(ProducerFencedError("out", reason="newer_producer", hint="why")))
    assert (str(again), again.reason, again.hint) == ("out", "newer_producer", "why")
    unknown = CommitOutcomeUnknownError("no answer", code=ErrorCode.REQUEST_TIMED_OUT, hint="why")
    again = pickle.loads(pickle.dumps(unknown))
    assert (str(again), again.code, again.hint) == ("no answer", ErrorCode.REQUEST_TIMED_OUT, "why")


@pytest.mark.parametrize("servers", [None, 5, b"a:9092", [5]])
def test_bootstrap_servers_of_a_wrong_type_are_refused_with_the_settings_name(servers):
    with pytest.raises(InvalidConfigurationError, match="bootstrap_servers"):
        producer_settings(servers)


@pytest.mark.parametrize("what", ["username", "password"])
def test_a_sasl_setting_by_another_clients_name_gets_a_hint_with_ours(what):
    with pytest.raises(TypeError, match=f"did you mean 'sasl_plain_{what}'"):
        producer_settings("a", **{f"sasl_{what}": "x"})


@pytest.mark.parametrize("value", [None, "false", 1])
@pytest.mark.parametrize("name", ["enable_idempotence", "allow_auto_create_topics", "ssl_check_hostname"])
def test_a_boolean_setting_given_none_a_text_or_a_number_is_refused(name, value):
    assert name.removeprefix("ssl_") in str(_refused(**{name: value}))


def test_check_crcs_none_is_refused():
    with pytest.raises(InvalidConfigurationError, match="check_crcs=None"):
        consumer_settings("a", check_crcs=None)
