"""Errors of the SDK as answers of the console."""

import pytest
from fencepost.client.errors import ErrorCode, KafkaError
from fencepost.console.http.problems import problem_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "the records are larger than 1 byte when decompressed"), 413),
        (KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "there is none"), 404),
        (KafkaError(ErrorCode.PRODUCER_FENCED, "another has its id"), 409),
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "two\nlines"), 500),
    ],
)
def test_a_broker_error_becomes_the_matching_http_status(error: KafkaError, status: int) -> None:
    problem = problem_of(error)
    assert problem.status == status
    assert "\n" not in problem.message
