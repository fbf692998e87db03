"""The meaning of the error codes in responses to requests of a transaction. Pure.

The rule: only code 0 is a success. A code that leaves the result open (a bug of the broker, a timeout there, a
coordinator that is moving) is PERHAPS: only the same request again may follow it. Sources: Kafka's TransactionManager
and TransactionCoordinator, which also returns COORDINATOR_NOT_AVAILABLE if the write of a decision timed out; KIP-588,
KIP-890, KIP-1050.
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from ...effects.counts import list_text
from ...protocol.errors import ErrorCode
from ..errors import KafkaError, error_of


class Verdict(Enum):
    """What a code means for the transaction."""

    DONE = "done"
    AGAIN = "again"  # not carried out: send the same request again
    PERHAPS = "perhaps"  # perhaps carried out: only send the same request again
    ABORT = "abort"  # not carried out, and never will be: abort the transaction
    NOT_OPEN = "not open"  # there is no such open transaction
    FENCED = "fenced"  # the epoch is not the current one
    FATAL = "fatal"  # the producer cannot be used any more


_E = ErrorCode
_FENCED = {_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_ID_MAPPING}
_MOVING = {_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR, _E.REQUEST_TIMED_OUT, _E.NETWORK_EXCEPTION}
_NOT_YET = {_E.COORDINATOR_LOAD_IN_PROGRESS, _E.CONCURRENT_TRANSACTIONS, _E.THROTTLING_QUOTA_EXCEEDED}
_NEVER = {
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    _E.CLUSTER_AUTHORIZATION_FAILED,
    _E.UNSUPPORTED_VERSION,
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    _E.INVALID_REQUEST,
}


def _table(*rows: tuple[Iterable[ErrorCode], Verdict]) -> Mapping[int, Verdict]:
    """Return a table from error code to verdict, in which NONE is DONE. rows: codes and their verdict; a later row
    wins.
    """
    found: dict[int, Verdict] = {_E.NONE: Verdict.DONE}
    for codes, verdict in rows:
        found.update(dict.fromkeys(codes, verdict))
    return found


_LATER = _MOVING | _NOT_YET | {_E.UNKNOWN_TOPIC_OR_PARTITION, _E.UNKNOWN_SERVER_ERROR}
_WRITING = _table((_LATER, Verdict.AGAIN), (_FENCED, Verdict.FENCED), (_NEVER, Verdict.FATAL))
_INIT = _table((_LATER, Verdict.AGAIN), (_FENCED, Verdict.FENCED))
_END = _table(
    (_NOT_YET, Verdict.AGAIN),
    (_MOVING, Verdict.PERHAPS),
    (_FENCED, Verdict.FENCED),
    ({_E.INVALID_TXN_STATE}, Verdict.NOT_OPEN),
    ({_E.TRANSACTION_ABORTABLE}, Verdict.ABORT),
    (_NEVER, Verdict.FATAL),
)


_ACKNOWLEDGING = _table(
    ((_MOVING | _NOT_YET) - {_E.REQUEST_TIMED_OUT, _E.NETWORK_EXCEPTION}, Verdict.AGAIN),
    (_FENCED, Verdict.FENCED),
    (_NEVER - {_E.INVALID_REQUEST, _E.UNSUPPORTED_VERSION}, Verdict.FATAL),
)


def of_init(code: int) -> Verdict:
    """Return the verdict on an error code of InitProducerId."""
    return _INIT.get(code, Verdict.FATAL)


def of_end(code: int) -> Verdict:
    """Return the verdict on an error code of EndTxn. An unknown code is PERHAPS."""
    return _END.get(code, Verdict.PERHAPS)


def of_write(code: int) -> Verdict:
    """Return the verdict on an error code of a write. A write may be repeated safely, so AGAIN is returned where EndTxn
    would get PERHAPS.

    An unknown code is ABORT, which is always possible.
    """
    return _WRITING.get(code, Verdict.ABORT)


def of_acknowledgement(code: int) -> Verdict:
    """Return the verdict on an error code of TxnShareAcknowledge. A refused request changes nothing at the broker. An
    unknown code is ABORT.
    """
    return _ACKNOWLEDGING.get(code, Verdict.ABORT)


def of_failure(code: int) -> Verdict:
    """Return the verdict on the error of a batch that failed and is not sent again: FENCED, FATAL or ABORT."""
    verdict = _WRITING.get(code, Verdict.ABORT)
    return verdict if verdict in (Verdict.FENCED, Verdict.FATAL) else Verdict.ABORT


def refused(codes: Mapping[str, int], code: int) -> KafkaError:
    """Return the KafkaError for `code`, with the names of the requested items that were refused with it. codes: the
    error code of each item, by its name.
    """
    names = [name for name, each in codes.items() if each == code]
    return error_of(code, f"{list_text(names, 'partition')}: {error_of(code)}")


_WORST = (Verdict.FATAL, Verdict.FENCED, Verdict.ABORT, Verdict.AGAIN)


def worst(codes: Iterable[int]) -> tuple[Verdict, int]:
    """Return the worst verdict on the error codes of a request's items, and its code; DONE and 0 without an error.

    OPERATION_NOT_ATTEMPTED counts only if no item has another error: it means that another item failed.
    """
    failed = [code for code in codes if code]
    named = [code for code in failed if code != _E.OPERATION_NOT_ATTEMPTED]
    if not named:
        return (Verdict.AGAIN, failed[0]) if failed else (Verdict.DONE, 0)
    for verdict in _WORST:
        for code in named:
            if of_write(code) is verdict:
                return verdict, code
    raise AssertionError(named)
