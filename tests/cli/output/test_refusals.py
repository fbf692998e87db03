"""What a command prints for an error: one line of cause, a hint, and the exit code of its kind."""

import errno

import pytest
from fencepost.cli.output.refusals import refusal
from fencepost.client import errors
from fencepost.client.errors import ErrorCode, KafkaError, error_of

EXIT_CODES = {
    errors.UnknownTopicError: 3,
    errors.RequestTimedOutError: 4,
    errors.BrokerUnreachableError: 4,
    errors.DeliveryTimeoutError: 4,
    errors.BufferFullError: 4,
    errors.ProducerFencedError: 5,
    errors.FencedInstanceIdError: 5,
    errors.CommitFailedError: 5,
    errors.RebalanceInProgressError: 5,
    errors.AuthenticationError: 6,
    errors.AuthorizationError: 6,
    errors.InvalidConfigurationError: 2,
    errors.RecordTooLargeError: 2,
    errors.UnsupportedVersionError: 1,
    errors.FatalError: 1,
    errors.CorruptRecordError: 1,
}


@pytest.mark.parametrize("kind", EXIT_CODES, ids=lambda kind: kind.__name__)
def test_each_class_of_sdk_errors_gets_its_exit_code_and_a_hint(kind: type[KafkaError]) -> None:
    failure = refusal(kind("why it failed"))  # type: ignore[arg-type]
    assert (failure.exit_code, failure.message) == (EXIT_CODES[kind], "why it failed")
    assert failure.hint


def test_every_kafka_error_code_has_a_hint_and_an_exit_code(subtests: pytest.Subtests) -> None:
    for code in sorted(set(ErrorCode) - {ErrorCode.NONE}):
        with subtests.test(code.name):
            failure = refusal(error_of(code, "why"))
            assert failure.exit_code in range(1, 7)
            assert failure.hint
            assert "\n" not in failure.message + failure.hint


def test_refusal_shows_the_hint_of_the_error_instead_of_the_general_one() -> None:
    assert refusal(errors.FatalError("why", hint="do this")).hint == "do this"


def test_a_refused_connection_is_reported_with_the_systems_error_text() -> None:
    inner = OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
    error = errors.BrokerUnreachableError(f"cannot connect: {inner.strerror}")
    error.__cause__ = inner
    assert refusal(error).message == "cannot connect: connection refused"
