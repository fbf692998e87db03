"""The error codes against two other tables of them."""

import kio.schema.errors
from fencepost.protocol.errors import ErrorCode, KafkaError
from wire_oracles import kafka_errors

OURS_FROM = 10_000  # what no Kafka has, in answers to APIs that no Kafka has


def test_error_codes_names_and_retriability_are_those_of_kafka_4_3() -> None:
    ours = {code.name: (int(code), code.retriable) for code in ErrorCode if code < OURS_FROM}
    theirs = {code.name.upper(): (int(code), code.retriable) for code in kio.schema.errors.ErrorCode}
    assert ours == theirs


def test_every_error_number_of_kafka_python_is_an_error_code() -> None:
    errors = [error for error in vars(kafka_errors).values() if isinstance(getattr(error, "errno", None), int)]
    assert len(errors) > 80
    assert {error.errno for error in errors} <= {int(code) for code in ErrorCode}


def test_every_error_code_has_a_message() -> None:
    assert not [code.name for code in ErrorCode if not code.text.endswith(".")]


def test_the_text_of_a_kafka_error_is_its_detail_or_else_the_message_of_its_code() -> None:
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms is no number")) == (
        "INVALID_CONFIG: retention.ms is no number"
    )
    assert KafkaError(ErrorCode.NONE).text == "No error."


def test_an_error_text_is_truncated_to_fit_a_string_field_of_32767_bytes() -> None:
    assert len(KafkaError(ErrorCode.INVALID_CONFIG, "é" * 100_000).text.encode()) < 32_767
