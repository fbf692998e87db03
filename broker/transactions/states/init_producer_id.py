"""InitProducerId with a transactional id: the client that sends it becomes the id's only producer, and earlier ones are
fenced.

The rule: a transaction that an earlier producer left open is aborted in the same unit, and the answer, with the new
epoch, comes at once. Kafka answers CONCURRENT_TRANSACTIONS while it aborts, and clients ask again; they accept a
success as well. So the epoch is increased once, not twice (KAFKA-19367). A producer that sends the producer id and
epoch it had (KIP-360) gets the next epoch, or the current one if the answer with that was lost. With any other pair it
is refused, and an open transaction stays open, where Kafka aborts it before it refuses. A held transaction (PrepareTxn)
is not aborted for anybody, because it may already be decided: the answer is CONCURRENT_TRANSACTIONS until it has ended.
Sources: Kafka's TransactionCoordinator.handleInitProducerId; KIP-360, KIP-588, KIP-939.
"""

from typing import NamedTuple

from ....protocol.errors import ErrorCode
from .outcome import end_transaction
from .table import Action, Event, answer
from .transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_OFFSET,
    TWO_PHASE_TIMEOUT_MS,
    Decision,
    Inputs,
    Status,
    Transaction,
)


class Initialisation(NamedTuple):
    """The fields of an InitProducerId request. producer_id, producer_epoch: the pair that the producer had, -1 if none
    (KIP-360).
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_ID
    producer_epoch: int = NO_EPOCH
    enable_2pc: bool = False
    keep_prepared_txn: bool = False


class Limits(NamedTuple):
    """The settings transaction.max.timeout.ms and transaction.two.phase.commit.enable."""

    max_timeout_ms: int = 900_000
    two_phase_commit: bool = False


def init_producer_id(txn: Transaction | None, request: Initialisation, limits: Limits, given: Inputs) -> Decision:
    """Decide about an InitProducerId. Returns the states to log, and the producer id and epoch, or the error, to
    answer.

    txn: the id's state; None if the id is unknown.
    """
    if error := _refusal(request, limits):
        return Decision(error)
    cell = answer(_event(txn, request), txn)
    if isinstance(cell, ErrorCode):
        return Decision(cell)
    return _finish(txn, cell, request, given)


def _refusal(request: Initialisation, limits: Limits) -> ErrorCode:
    """Return the error of a request that is wrong in every state, in Kafka's order of checks; NONE if valid."""
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH) or not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if request.enable_2pc and not limits.two_phase_commit:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared_txn:
        return ErrorCode.UNSUPPORTED_VERSION  # as in Kafka, where KIP-939 is not finished either
    if not request.enable_2pc and not 0 < request.timeout_ms <= limits.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _event(txn: Transaction | None, request: Initialisation) -> Event:
    """Return the event in the transaction table: INIT for a new producer, or one with the current producer id and
    epoch; INIT_RETRY for the pair that the last bump of the epoch replaced; INIT_STALE for any other pair.
    """
    if txn is None or request.producer_id == NO_ID or txn.producer_epoch == NO_EPOCH:
        return Event.INIT
    if (request.producer_id, request.producer_epoch) == (txn.producer_id, txn.producer_epoch):
        return Event.INIT
    if txn.is_last(request.producer_id, request.producer_epoch):
        return Event.INIT_RETRY
    return Event.INIT_STALE


def _finish(txn: Transaction | None, do: Action, request: Initialisation, given: Inputs) -> Decision:
    """Return the decision for an allowed request. Its last state is EMPTY, with the producer id and epoch that the
    client is given. do: the action from the transaction table.
    """
    decision = Decision()
    timeout_ms = TWO_PHASE_TIMEOUT_MS if request.enable_2pc else request.timeout_ms
    if do is Action.CREATE or txn is None:
        started = Transaction(request.transactional_id, given.new_producer_id(), 0, timeout_ms)
    elif do is Action.ABORT_AND_BEGIN:
        decision = _abort(txn, given)
        started = decision.states[-1]
    elif do is Action.SAME:
        started = txn
    elif txn.exhausted:
        started = txn._replace(
            producer_id=given.new_producer_id(), producer_epoch=0, previous_producer_id=txn.producer_id
        )
    else:
        started = txn._replace(producer_epoch=txn.producer_epoch + 1)
    last_epoch = started.last_producer_epoch
    if do is not Action.SAME:
        last_epoch = NO_EPOCH if txn is None or request.producer_id == NO_ID else txn.producer_epoch
    started = started._replace(
        timeout_ms=timeout_ms,
        enable_2pc=request.enable_2pc,
        status=Status.EMPTY,
        partitions={},
        start_ms=-1,
        started_age_ms=-1,
        last_producer_epoch=last_epoch,
        last_update_ms=given.now_ms,
        updated_age_ms=given.age_ms,
        opened_at=NO_OFFSET,
    )
    states = (*decision.states, started)
    return decision._replace(states=states, producer_id=started.producer_id, producer_epoch=started.producer_epoch)


def _abort(txn: Transaction, given: Inputs) -> Decision:
    """Abort the open transaction. Unlike elsewhere, an ephemeral id is not forgotten at this end: it gets another
    producer id.
    """
    worn = txn._replace(producer_epoch=LAST_EPOCH) if given.ephemeral else txn
    return end_transaction(worn, Action.ABORT_AND_BUMP, given._replace(ephemeral=False))
