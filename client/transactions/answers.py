"""What an answer to a request of a transaction means, by its error code.

The rule: success is code 0 and nothing else, and a code that says neither yes nor no (a bug of the broker, a time-out
there, a coordinator that is moving) is a "perhaps": only the same request again may follow it. Sources: Kafka's
TransactionManager and TransactionCoordinator, which answers COORDINATOR_NOT_AVAILABLE also for a decision whose write
timed out; KIP-588, KIP-890, KIP-1050.
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from ...protocol.errors import ErrorCode


class Verdict(Enum):
    """What follows."""

    DONE = "done"
    AGAIN = "again"  # certainly not carried out: the same again
    PERHAPS = "perhaps"  # perhaps carried out: the same again, and nothing else
    ABORT = "abort"  # not carried out, and never will be: the transaction has to be aborted
    NOT_OPEN = "not open"  # there is no such open transaction
    FENCED = "fenced"  # the epoch is not the current one
    FATAL = "fatal"


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


def of_init(code: int) -> Verdict:
    """InitProducerId."""
    return _INIT.get(code, Verdict.FATAL)


def of_end(code: int) -> Verdict:
    """EndTxn. A code that nobody knows is a perhaps."""
    return _END.get(code, Verdict.PERHAPS)


def of_write(code: int) -> Verdict:
    """AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit: carried out twice they do the same, so perhaps is again.

    An unknown code spoils the transaction, which can always be aborted.
    """
    return _WRITING.get(code, Verdict.ABORT)


def of_failure(code: int) -> Verdict:
    """A batch that failed for good, by its error: what becomes of the transaction."""
    verdict = _WRITING.get(code, Verdict.ABORT)
    return verdict if verdict in (Verdict.FENCED, Verdict.FATAL) else Verdict.ABORT


_WORST = (Verdict.FATAL, Verdict.FENCED, Verdict.ABORT, Verdict.AGAIN)


def worst(codes: Iterable[int]) -> tuple[Verdict, int]:
    """Of many items' codes: the one that decides. OPERATION_NOT_ATTEMPTED says only that another one failed."""
    failed = [code for code in codes if code]
    named = [code for code in failed if code != _E.OPERATION_NOT_ATTEMPTED]
    if not named:
        return (Verdict.AGAIN, failed[0]) if failed else (Verdict.DONE, 0)
    for verdict in _WORST:
        for code in named:
            if of_write(code) is verdict:
                return verdict, code
    raise AssertionError(named)
