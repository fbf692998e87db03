"""Errors of the SDK as failures of a command: cause, hint and exit code."""

import os
from collections.abc import Iterator

from ...client.errors import (
    ApplicationRecoverableError,
    AuthenticationError,
    AuthorizationError,
    BrokerUnreachableError,
    ErrorCode,
    InvalidConfigurationError,
    KafkaError,
    RetriableError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from .failures import CONFLICT, DENIED, FAILED, NOT_FOUND, TIMED_OUT, WRONG_USAGE, Failure

_NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "fencepost topic list shows all topics, fencepost topic create creates one",
    ErrorCode.UNKNOWN_TOPIC_ID: "fencepost topic list shows all topics",
    ErrorCode.GROUP_ID_NOT_FOUND: "fencepost group list shows all groups with their types: share-group is for those of "
    "the type share",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "fencepost txn list shows all transactional ids",
    ErrorCode.RESOURCE_NOT_FOUND: "check its name",
}
_FENCED = "another producer has this transactional id: only one may run at a time (docs/on-call.md)"
_CONFLICT = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "fencepost topic describe shows it; topic alter and topic add-partitions change it",
    ErrorCode.NON_EMPTY_GROUP: (
        "stop its consumers first, fencepost group describe -m shows them; those of a share group, and its open "
        "transactions, are in fencepost share-group describe -m, and fencepost txn abort ends one"
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop its consumers first; fencepost group describe shows them",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the previous transaction is still ending; try again in a moment",
    ErrorCode.INVALID_TXN_STATE: "fencepost txn list and fencepost txn producers show what is open",
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: _FENCED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "the coordinator has moved; try again",
}
_WRONG = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic's name has 1 to 249 letters, digits, '.', '_' and '-'",
    ErrorCode.INVALID_PARTITIONS: "partitions can be added, never removed; a topic has at least one",
    ErrorCode.INVALID_REPLICATION_FACTOR: "no more replicas than brokers; fencepost doctor HOST:PORT lists the brokers",
    ErrorCode.INVALID_REQUEST: "--help shows the arguments",
    ErrorCode.MESSAGE_TOO_LARGE: "the limits are max.message.bytes of the topic and -X max.request.size",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the limit, for --hold too, is the broker's transaction.max.timeout.ms",
}
_UNREACHABLE = "is a Kafka broker running there? -b HOST:PORT sets the address; run fencepost doctor HOST:PORT"
_SLOW = "use a longer --timeout, or run fencepost doctor HOST:PORT"
_ADVERTISED = "clients connect to the address that the broker advertises: fencepost doctor HOST:PORT checks it"
_DENIED = "check --user and its password; --sasl sets the mechanism, --tls-ca the certificate authorities"
_NOT_ALLOWED = "this user may not do that; fencepost acl add grants rights, --user NAME logs in as another user"
_OPTIONS = {  # what the SDK's hints call by its own names
    "set security_protocol and sasl_plain_username": "--user NAME logs in",
    "sasl_plain_username": "--user",
    "sasl_plain_password": "its password",
    "sasl_mechanism": "--sasl",
    "ssl_cafile": "--tls-ca",
    "ssl_certfile": "--tls-cert",
    "ssl_keyfile": "--tls-key",
}
_AUTHORIZER = "fencepost serve with --super-user NAME, or authorizer.class.name, turns it on"
_BY_BROKER = "the broker refused it; see its log"


def refusal(error: KafkaError, bootstrap: str = "HOST:PORT") -> Failure:
    """Return the failure for an error. bootstrap: the broker's address, for hints that can be copied."""
    code, hint = _code_and_hint(error)
    hint = with_options(getattr(error, "hint", "") or hint)
    return Failure(_cause(error), hint.replace("doctor HOST:PORT", f"doctor {bootstrap}"), code)


def with_options(hint: str) -> str:
    """Return a hint of the SDK with its settings replaced by options of commands."""
    for name, option in _OPTIONS.items():
        hint = hint.replace(name, option)
    return hint


def _cause(error: KafkaError) -> str:
    """Return the error's text; asyncio's wording of a failed connection is replaced by the operating system's."""
    text = str(error)
    for inner in _causes(error):
        if isinstance(inner, OSError) and inner.errno and "Connect call failed" in (inner.strerror or ""):
            text = text.replace(str(inner.strerror), os.strerror(inner.errno).lower())
    return text.replace(
        "ConnectionResetError", "the broker closed the connection at once; does it expect TLS, or plain text?"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and the chain of its causes."""
    inner: BaseException | None = error
    while inner is not None:
        yield inner
        inner = inner.__cause__


def _code_and_hint(error: KafkaError) -> tuple[int, str]:
    """Return exit code and hint for an error of the broker."""
    if isinstance(error, AuthorizationError):
        return DENIED, _NOT_ALLOWED
    if isinstance(error, AuthenticationError):
        return DENIED, _DENIED
    if error.code is ErrorCode.SECURITY_DISABLED:
        return FAILED, f"the broker has no authorizer, so everybody may do everything; {_AUTHORIZER}"
    if isinstance(error, UnsupportedVersionError):
        return FAILED, "this broker is too old for it; fencepost doctor HOST:PORT shows its version"
    if isinstance(error, UnknownTopicError) or error.code in _NOT_FOUND:
        return NOT_FOUND, _NOT_FOUND.get(error.code, _NOT_FOUND[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    if error.code in _CONFLICT:
        return CONFLICT, _CONFLICT[error.code]
    if isinstance(error, ApplicationRecoverableError):
        return CONFLICT, "another client has taken over; start again"
    if isinstance(error, InvalidConfigurationError) or error.code in _WRONG:
        return WRONG_USAGE, _WRONG.get(error.code, "--help shows the arguments")
    if isinstance(error, BrokerUnreachableError):
        return TIMED_OUT, _UNREACHABLE
    if isinstance(error, RetriableError):
        advertised = any(isinstance(each, BrokerUnreachableError) for each in _causes(error))
        return TIMED_OUT, _ADVERTISED if advertised else _SLOW
    return FAILED, _BY_BROKER
