"""The errors with which the console answers a request: a status, a code, one line of cause and one of hint. Pure.

The rule: an error is JSON in the shape of Confluent's REST API, `{"error_code", "message"}`, with a field `hint` added;
the first three digits of the code are the status.
"""

from typing import Any

from ...client.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnreachableError,
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnknownTopicError,
    UnsupportedVersionError,
)

BAD_REQUEST = 40001
NOT_LOGGED_IN, CHANGES_REFUSED, NOT_FROM_HERE, DENIED = 40101, 40301, 40302, 40303
NO_ROUTE, NOT_FOUND, METHOD, CONFLICT, CONFIRM_PREPARED = 40402, 40403, 40501, 40901, 40902
TOO_LARGE, NOT_JSON, BAD_PARAMETER, TOO_MANY = 41301, 41501, 42201, 42901
FAILED, NO_SUCH_API, UNREACHABLE, CROWDED, TIMED_OUT = 50001, 50101, 50301, 50302, 50401

_BY_CODE = {
    ErrorCode.GROUP_ID_NOT_FOUND: NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: NOT_FOUND,
    ErrorCode.INVALID_TOPIC_EXCEPTION: BAD_PARAMETER,
    ErrorCode.INVALID_REQUEST: BAD_PARAMETER,
    ErrorCode.INVALID_GROUP_ID: BAD_PARAMETER,
    ErrorCode.MESSAGE_TOO_LARGE: TOO_LARGE,  # a batch that decompresses to more than the console's limit
    ErrorCode.INVALID_TXN_STATE: CONFLICT,
    ErrorCode.CONCURRENT_TRANSACTIONS: CONFLICT,
    ErrorCode.PRODUCER_FENCED: CONFLICT,
    ErrorCode.INVALID_PRODUCER_EPOCH: CONFLICT,
}
_BY_CLASS: tuple[tuple[type[KafkaError], int], ...] = (
    (UnknownTopicError, NOT_FOUND),
    (AuthorizationError, DENIED),
    (AuthenticationError, UNREACHABLE),
    (UnsupportedVersionError, NO_SUCH_API),
    (BrokerUnreachableError, UNREACHABLE),
    (RequestTimedOutError, TIMED_OUT),
    (OffsetOutOfRangeError, BAD_PARAMETER),
    (RecordTooLargeError, TOO_LARGE),
    (CorruptRecordError, FAILED),
)


class Problem(Exception):
    """Raised to end a request with an error answer. error_code: HTTP status and two more digits, as in Confluent's API
    (40402). hint: what the user can do. more: further fields of the JSON body.
    """

    def __init__(
        self, error_code: int, message: str, hint: str | None = None, more: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message
        self.hint = hint
        self.more = more or {}

    @property
    def status(self) -> int:
        """Return the HTTP status: the error code without its last two digits."""
        return self.error_code // 100

    def body(self) -> dict[str, Any]:
        """Return the JSON body of the answer."""
        return {"error_code": self.error_code, "message": self.message, "hint": self.hint, **self.more}


def problem_of(error: KafkaError) -> Problem:
    """Return the problem to answer with for an error of the SDK, with its message and hint. An error code or class
    without an entry in the table becomes FAILED.
    """
    code = _BY_CODE.get(error.code)
    if code is None:
        code = next((number for kind, number in _BY_CLASS if isinstance(error, kind)), FAILED)
    return Problem(code, " ".join(str(error).split()), getattr(error, "hint", "") or None)
