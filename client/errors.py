"""The errors of the SDK, by what the caller can do about them (KIP-1050), and the class for each error code. Pure.

The rule: all are `KafkaError`s with a code; `str()` is the cause in one line, `hint` says what to do; neither contains
secrets.
"""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal

from ..protocol.errors import ErrorCode, KafkaError
from .values import Record, TopicPartition

__all__ = [  # noqa: RUF022 (in the order of the classes)
    "ErrorCode",
    "KafkaError",
    "ClientError",
    "RetriableError",
    "RequestTimedOutError",
    "BrokerUnreachableError",
    "DeliveryTimeoutError",
    "BufferFullError",
    "AbortableTransactionError",
    "ApplicationRecoverableError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "FencedInstanceIdError",
    "CommitFailedError",
    "InboxFencedError",
    "InvalidConfigurationError",
    "AuthenticationError",
    "AuthorizationError",
    "UnsupportedVersionError",
    "FatalError",
    "CommitOutcomeUnknownError",
    "OutcomeDivergedError",
    "OutboxRowError",
    "RecordTooLargeError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "CorruptRecordError",
    "RecordDeserializationError",
    "UnknownTopicError",
    "IllegalStateError",
    "AlreadyCommittedError",
    "RecordNotHeldError",
    "ClosedError",
    "ForkedError",
    "error_of",
    "is_retriable",
]

Outcome = Literal["committed", "aborted", "unknown"]
FencedBy = Literal["newer_producer", "transaction_timeout", "admin_abort", "unknown"]


class ClientError(KafkaError):
    """The base class of the SDK's errors. code: the broker's error code, or the most similar one."""

    default_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    default_hint: ClassVar[str] = ""

    def __init__(self, detail: str = "", *, code: ErrorCode | None = None, hint: str = "") -> None:
        super().__init__(self.default_code if code is None else code, detail)
        self.args = (detail,)  # for copying and pickling
        self.hint = hint or self.default_hint

    def __str__(self) -> str:
        return self.text if self.detail else super().__str__()


class RetriableError(ClientError):
    """A retry may help. The SDK itself retries until a deadline, and then raises this with the cause."""


class RequestTimedOutError(RetriableError):
    """No response in time. It is not known whether the request was carried out."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class BrokerUnreachableError(RetriableError):
    """A connection could not be made, or was lost. sent: whether the request may have reached the broker and been
    carried out.
    """

    default_code = ErrorCode.NETWORK_EXCEPTION

    def __init__(self, detail: str = "", *, code: ErrorCode | None = None, hint: str = "", sent: bool = False) -> None:
        super().__init__(detail, code=code, hint=hint)
        self.sent = sent


class DeliveryTimeoutError(RetriableError):
    """Records were not acknowledged within delivery_timeout_ms. maybe_written: they may be in the log nevertheless."""

    default_code = ErrorCode.REQUEST_TIMED_OUT

    def __init__(
        self, detail: str = "", *, code: ErrorCode | None = None, hint: str = "", maybe_written: bool = False
    ) -> None:
        super().__init__(detail, code=code, hint=hint)
        self.maybe_written = maybe_written


class BufferFullError(RetriableError):
    """No room in the producer's buffer within max_block_ms."""

    default_code = ErrorCode.REQUEST_TIMED_OUT
    default_hint = "records are sent faster than the broker acknowledges them: raise buffer_memory, or await deliveries"


class PoolBusyError(RetriableError):
    """All transactions of a pool were open for max_wait_ms. Nothing was begun."""

    default_code = ErrorCode.REQUEST_TIMED_OUT
    default_hint = "retry later, do less in one transaction, or raise the pool's size"


class AbortableTransactionError(ClientError):
    """The transaction was or must be aborted. The producer stays usable; do the work again in a new transaction."""

    default_code = ErrorCode.TRANSACTION_ABORTABLE
    default_hint = "abort the transaction and do its work again"


class ApplicationRecoverableError(ClientError):
    """This producer or group member cannot continue; the application can, with a new one."""


class ProducerFencedError(ApplicationRecoverableError):
    """This producer's epoch is not the current one. reason: why; current_epoch: -1 if not known."""

    default_code = ErrorCode.PRODUCER_FENCED

    def __init__(
        self,
        detail: str = "",
        *,
        code: ErrorCode | None = None,
        hint: str = "",
        reason: FencedBy = "unknown",
        current_epoch: int = -1,
    ) -> None:
        super().__init__(detail, code=code, hint=hint)
        self.reason: FencedBy = reason
        self.current_epoch = current_epoch


class RebalanceInProgressError(ApplicationRecoverableError):
    """The group is rebalancing; the next poll joins it."""

    default_code = ErrorCode.REBALANCE_IN_PROGRESS


class FencedInstanceIdError(ApplicationRecoverableError):
    """Another member has joined with this group_instance_id."""

    default_code = ErrorCode.FENCED_INSTANCE_ID
    default_hint = "each running member needs its own group_instance_id"


class CommitFailedError(ApplicationRecoverableError):
    """The member is no longer in the group: other members own its partitions and read their records again."""

    default_code = ErrorCode.ILLEGAL_GENERATION
    default_hint = "the new owners read the records again; poll more often or raise max_poll_interval_ms"


class InboxFencedError(CommitFailedError):
    """Another consumer has moved a partition's place (its offset in the database), or claimed it. The block was rolled
    back.
    """

    default_hint = "go on with the next batch: what is still this consumer's is read again from its place"


class InvalidConfigurationError(ClientError):
    """A setting is wrong; a retry does not help."""

    default_code = ErrorCode.INVALID_CONFIG


class AuthenticationError(InvalidConfigurationError):
    """The broker rejects the client's credentials, or the client rejects the broker's certificate."""

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED


class AuthorizationError(InvalidConfigurationError):
    """The user is not allowed to do this."""

    default_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class UnsupportedVersionError(InvalidConfigurationError):
    """The broker does not support this API, or not the needed version."""

    default_code = ErrorCode.UNSUPPORTED_VERSION


class FatalError(ClientError):
    """The client cannot be used any more: a bug in it or in the broker, or a damaged log."""


class CommitOutcomeUnknownError(ClientError):
    """A commit got no response: it may have been carried out or not. `await err.resolve()` finds out."""

    default_code = ErrorCode.NETWORK_EXCEPTION
    default_hint = "await err.resolve() before repeating the work"

    def __init__(
        self,
        detail: str = "",
        *,
        code: ErrorCode | None = None,
        hint: str = "",
        resolve: "Callable[[], Awaitable[Outcome]] | None" = None,
    ) -> None:
        super().__init__(detail, code=code, hint=hint)
        self._resolve = resolve

    async def resolve(self) -> Outcome:
        """Return the outcome of the commit; "unknown" if it cannot be found out any more."""
        return "unknown" if self._resolve is None else await self._resolve()

    def __reduce__(self) -> tuple[type, tuple[object, ...], dict[str, object]]:
        # Only the process in which it was raised can resolve it.
        return type(self), (self.detail,), {**self.__dict__, "_resolve": None}


class OutcomeDivergedError(ClientError):
    """Broker and database contradict each other about a transaction over both. Nothing more was changed."""

    default_code = ErrorCode.LEDGER_CONFLICT
    default_hint = "docs/how-to/database.md says what each contradiction means; a restored backup is the usual reason"


class OutboxRowError(ClientError):
    """A row of an outbox cannot be sent. It and the rows after it stay. position: of the row."""

    default_code = ErrorCode.INVALID_RECORD
    default_hint = "correct or delete the row, then start the relay again: no row was skipped"

    def __init__(
        self, detail: str = "", *, code: ErrorCode | None = None, hint: str = "", position: Any = None
    ) -> None:
        super().__init__(detail, code=code, hint=hint)
        self.position = position


class RecordTooLargeError(ClientError):
    """A record or a batch is larger than the client or the topic allows."""

    default_code = ErrorCode.MESSAGE_TOO_LARGE


class NoOffsetError(ClientError):
    """A partition has no committed offset, and auto_offset_reset is not set."""

    default_code = ErrorCode.OFFSET_OUT_OF_RANGE
    default_hint = 'set auto_offset_reset to "earliest" or "latest", or seek'


class OffsetOutOfRangeError(ClientError):
    """The position is outside the log."""

    default_code = ErrorCode.OFFSET_OUT_OF_RANGE
    default_hint = 'set auto_offset_reset to "earliest" or "latest", or seek'


class CorruptRecordError(ClientError):
    """The checksum or layout of a batch is wrong. partition, offset: where; None and -1 if not known."""

    default_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(
        self,
        detail: str = "",
        *,
        code: ErrorCode | None = None,
        hint: str = "",
        partition: TopicPartition | None = None,
        offset: int = -1,
    ) -> None:
        super().__init__(detail, code=code, hint=hint)
        self.partition = partition
        self.offset = offset


class RecordDeserializationError(CorruptRecordError):
    """A deserializer raised `__cause__`: for these bytes, or because, for example, a schema registry is unavailable.

    field: "key" or "value". record: with key and value as bytes. The next read tries again; seek to skip the record.
    """

    def __init__(self, record: Record, field: str, error: BaseException) -> None:
        tp = TopicPartition(record.topic, record.partition)
        super().__init__(
            f"{tp}: at offset {record.offset}: the {field} cannot be deserialized: {error!r}",
            hint="read again to retry, or seek past it to skip it",
            partition=tp,
            offset=record.offset,
        )
        self.record = record
        self.field = field


class UnknownTopicError(ClientError):
    """The topic or partition does not exist."""

    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class IllegalStateError(ClientError):
    """The client's state does not allow this call."""

    default_code = ErrorCode.INVALID_REQUEST


class AlreadyCommittedError(IllegalStateError):
    """A transaction would commit a batch, or records before it, a second time. Nothing was begun or written."""

    default_hint = "its work is done: continue with the next batch"


class RecordNotHeldError(IllegalStateError):
    """A record of a share group is not this consumer's any more, so it cannot be acknowledged by it."""

    default_code = ErrorCode.INVALID_RECORD_STATE
    default_hint = "it is delivered again, unless it was acknowledged: go on with the next record"


class ClosedError(IllegalStateError):
    """The client was closed."""


class ForkedError(IllegalStateError):
    """The process was forked; clients and brokers can only be used in the parent."""

    default_hint = "create clients after the fork"


_RECOVERABLE: dict[ErrorCode, type[ClientError]] = {
    ErrorCode.PRODUCER_FENCED: ProducerFencedError,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ApplicationRecoverableError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceIdError,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgressError,
    ErrorCode.ILLEGAL_GENERATION: CommitFailedError,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitFailedError,
    ErrorCode.STALE_MEMBER_EPOCH: CommitFailedError,
    ErrorCode.FENCED_MEMBER_EPOCH: CommitFailedError,
    ErrorCode.UNRELEASED_INSTANCE_ID: FencedInstanceIdError,
}
_SET_UP_WRONG: dict[ErrorCode, type[ClientError]] = {
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersionError,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: UnsupportedVersionError,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: UnsupportedVersionError,
    ErrorCode.INVALID_CONFIG: InvalidConfigurationError,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: InvalidConfigurationError,
    ErrorCode.INVALID_SESSION_TIMEOUT: InvalidConfigurationError,
    ErrorCode.INVALID_GROUP_ID: InvalidConfigurationError,
    ErrorCode.INVALID_REQUIRED_ACKS: InvalidConfigurationError,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: InvalidConfigurationError,
    ErrorCode.GROUP_MAX_SIZE_REACHED: InvalidConfigurationError,
    ErrorCode.UNSUPPORTED_ASSIGNOR: InvalidConfigurationError,
    ErrorCode.INVALID_REGULAR_EXPRESSION: InvalidConfigurationError,
}
_OTHERS: dict[ErrorCode, type[ClientError]] = {
    ErrorCode.TRANSACTION_ABORTABLE: AbortableTransactionError,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLargeError,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordTooLargeError,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.CORRUPT_MESSAGE: CorruptRecordError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicError,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOutError,
    ErrorCode.INVALID_RECORD_STATE: RecordNotHeldError,
    ErrorCode.INVALID_TXN_STATE: FatalError,
}
_PERHAPS_FULL = "if it goes on, the disk may be nearly full: fencepost doctor says so"
_HINTS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _PERHAPS_FULL,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _PERHAPS_FULL,
    ErrorCode.NOT_ENOUGH_REPLICAS: _PERHAPS_FULL,
    ErrorCode.KAFKA_STORAGE_ERROR: _PERHAPS_FULL,
    ErrorCode.POLICY_VIOLATION: "the broker's log names the limit that was met; for a new topic perhaps max.partitions",
}
_CODES = {int(code): code for code in ErrorCode}
_CLASSES = _RECOVERABLE | _SET_UP_WRONG | _OTHERS


def code_of(number: int) -> ErrorCode:
    """Return the code with this number; UNKNOWN_SERVER_ERROR for an unknown one of a newer broker."""
    try:
        return _CODES[number]
    except KeyError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_of(code: int, detail: str = "", *, transactional: bool = False) -> KafkaError:
    """Return the error for a code. transactional: return AbortableTransactionError if the error only makes the
    transaction fail.
    """
    known = code_of(code)
    if known is ErrorCode.UNKNOWN_SERVER_ERROR and not detail and code != known:
        detail = f"the broker returned error code {code}, which this client does not know"
    if transactional and known not in _RECOVERABLE and known not in _SET_UP_WRONG and known not in _STAYS:
        return AbortableTransactionError(detail or known.text, code=known)
    cls = _CLASSES.get(known) or (RetriableError if known.retriable else ClientError)
    return cls(detail, code=known, hint=_HINTS.get(known, ""))


def refusal(code: int, words: str | None = None) -> KafkaError:
    """Return the error for a code, with the code's name and the broker's message in `words`, if any, on one line."""
    return error_of(code, f"{code_of(code).name}: {' '.join(words.split())}" if words else "")


_STAYS = frozenset({ErrorCode.INVALID_TXN_STATE})  # fatal in a transaction, too


def is_retriable(error: BaseException) -> bool:
    """Return whether the same request may be sent again, provided that it is idempotent."""
    if isinstance(error, RetriableError):
        return True
    return isinstance(error, KafkaError) and error.code.retriable
