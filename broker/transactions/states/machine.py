"""The transaction coordinator's decisions: from a state and an event follow an answer, the states to log, and the
markers.

The rule: nothing here changes any state. First the producer id is checked, then the epoch, then the table (table.py)
decides. All states and markers of a decision are one unit, so on this broker nobody sees a transaction that has ended
only in part. A PREPARE_x that is found in a log is completed (`owed_markers`). When the epochs of a producer id are
used up, the markers have epoch 32767 and another producer id follows, in all cases. Sources: Kafka's
TransactionCoordinator and TransactionMetadata; KIP-98, KIP-360, KIP-588, KIP-890; KIP-664 for aborts by an admin.
"""

from ....protocol.errors import ErrorCode
from ...topics.names import SHARE_STATE_TOPIC
from .outcome import end_transaction, finish_transaction
from .table import Action, Event, answer
from .transaction import (
    NEVER_MS,
    Decision,
    Inputs,
    MarkerOrder,
    PartitionKey,
    Partitions,
    Prepared,
    Status,
    Transaction,
)

TV1, TV2 = 0, 2  # for `version`: the protocol of the request, see docs/glossary.md
_UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
_FENCED = ErrorCode.PRODUCER_FENCED
_STATE = ErrorCode.INVALID_TXN_STATE
_MAY_EXPIRE = frozenset({Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT, Status.DEAD})
_DONE = Decision()
MAX_PARTITIONS = 40_000  # of one transaction: its end is one unit, and that has room for 50,000 parts
TOO_MANY = f"a transaction has at most {MAX_PARTITIONS} partitions: commit it, and begin another"


def _wrong_producer(txn: Transaction | None, producer_id: int, producer_epoch: int) -> ErrorCode:
    """Return the error if producer id and epoch are not the current ones of the transaction; NONE if they are."""
    if txn is None or txn.status is Status.DEAD or txn.producer_id != producer_id:
        return _UNKNOWN
    return ErrorCode.NONE if txn.producer_epoch == producer_epoch else _FENCED


# Filling -------------------------------------------------------------------------------------------------------------


def add_partitions(
    txn: Transaction | None, producer_id: int, producer_epoch: int, added: Partitions, version: int, given: Inputs
) -> Decision:
    """Decide whether partitions (with log ids) may join the transaction. Returns the state to log; none if all are in
    it already.

    Called for AddPartitionsToTxn, AddOffsetsToTxn and, in TV2, for the first batch. The caller has refused the whole
    request if one partition does not exist. version: TV2 for what TV2 adds, else TV1. An empty `added` opens no
    transaction.
    """
    if error := _wrong_producer(txn, producer_id, producer_epoch):
        return Decision(error)
    assert txn is not None
    cell = answer(Event.ADD, txn)
    if isinstance(cell, ErrorCode):
        return Decision(cell)
    grows = cell is Action.GROW
    known = txn.partitions if grows else {}
    if added.items() <= known.items():
        return _DONE
    partitions = {**known, **added}
    if len(partitions) > MAX_PARTITIONS:
        return Decision(ErrorCode.POLICY_VIOLATION)  # it could never be ended, and would block readers for ever
    opened = Transaction(  # _replace() takes three times as long
        txn.transactional_id,
        txn.producer_id,
        txn.producer_epoch,
        txn.timeout_ms,
        Status.ONGOING,
        partitions,
        txn.start_ms if grows else given.now_ms,
        given.now_ms,
        txn.started_age_ms if grows else given.age_ms,
        given.age_ms,
        txn.last_producer_epoch,
        txn.previous_producer_id,
        txn.next_producer_id,
        txn.next_producer_epoch,
        version,
        txn.enable_2pc,
        txn.prepared,
        txn.opened_at if grows else given.next_offset(txn.transactional_id),
    )
    return Decision(states=(opened,))


def verify(
    txn: Transaction | None, producer_id: int, producer_epoch: int, partition: PartitionKey, log_id: int
) -> ErrorCode:
    """Return NONE if a batch (or offsets) of TV1 may be written to the partition, else the error: INVALID_TXN_STATE if
    the partition was not added.

    log_id: the partition's log. If its topic was deleted and created again, the log is another one, which was not
    added.
    """
    if error := _wrong_producer(txn, producer_id, producer_epoch):
        return error
    assert txn is not None
    cell = answer(Event.VERIFY, txn)
    if isinstance(cell, ErrorCode):
        return cell
    return ErrorCode.NONE if txn.partitions.get(partition) == log_id else _STATE


# Ending --------------------------------------------------------------------------------------------------------------


def end(
    txn: Transaction | None, commit: bool, producer_id: int, producer_epoch: int, version: int, given: Inputs
) -> Decision:
    """Decide an EndTxn. version: TV2 from request version 5 on, else TV1; with TV2 the epoch is bumped.

    A retry in TV2 has the producer id and epoch that the first attempt replaced, and gets the same answer. In TV1 a
    retry cannot be told from a request for a later transaction; the connection fence keeps a late one from ending a
    later transaction. For the same reason TV1 is refused for transactions with acknowledgements of share groups: a late
    acknowledgement would become part of the next transaction.
    """
    event = (Event.COMMIT_V2 if commit else Event.ABORT_V2) if version >= TV2 else _V1[commit]
    if version >= TV2 and txn is not None and txn.client_version >= TV2 and txn.is_last(producer_id, producer_epoch):
        event = Event.COMMIT_V2_RETRY if commit else Event.ABORT_V2_RETRY
    elif error := _wrong_producer(txn, producer_id, producer_epoch):
        return Decision(error)
    cell = answer(event, txn)
    if isinstance(cell, ErrorCode):
        if cell or version < TV2 or txn is None:
            return Decision(cell)
        return Decision(producer_id=txn.producer_id, producer_epoch=txn.producer_epoch)
    assert txn is not None
    if version < TV2 and has_acknowledged(txn):
        return Decision(_STATE)
    decision = end_transaction(txn, cell, given)
    if version >= TV2 and not decision.gone:
        last = decision.states[-1]
        return decision._replace(producer_id=last.producer_id, producer_epoch=last.producer_epoch)
    return decision


def has_acknowledged(txn: Transaction) -> bool:
    """Return whether the transaction has acknowledged records of share groups."""
    return any(topic == SHARE_STATE_TOPIC for topic, _ in txn.partitions)


_V1 = {True: Event.COMMIT_V1, False: Event.ABORT_V1}


def expire(txn: Transaction, given: Inputs) -> Decision:
    """If the transaction's timeout has passed, decide to abort it and to fence its producer; else return an empty
    decision.

    The producer may continue: InitProducerId with the producer id and epoch that it had is answered with the next epoch
    (KIP-588).
    """
    deadline = deadline_age_ms(txn)
    cell = answer(Event.TIMEOUT, txn)
    if deadline is None or given.age_ms <= deadline or isinstance(cell, ErrorCode):
        return _DONE
    return end_transaction(txn, cell, given)


def deadline_age_ms(txn: Transaction) -> int | None:
    """Return the store's age in ms at which the transaction times out; None if no transaction is open, or if it has no
    timeout.
    """
    if txn.status is not Status.ONGOING:
        return None
    if txn.prepared is not None:
        prepared = txn.prepared
        return None if prepared.timeout_ms == NEVER_MS else prepared.since_age_ms + prepared.timeout_ms
    return None if txn.enable_2pc else txn.started_age_ms + txn.timeout_ms


def force_abort(txn: Transaction | None, given: Inputs) -> Decision:
    """Decide to abort the open transaction, regardless of its producer, and to fence that producer. Without an open
    transaction it is a success.

    A held transaction is not aborted (INVALID_TXN_STATE): its commit may be decided elsewhere already.
    """
    cell = answer(Event.FORCE_ABORT, txn)
    if isinstance(cell, ErrorCode):
        return Decision(cell)
    assert txn is not None
    return end_transaction(txn, cell, given)


def part_aborted(
    txn: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    partition: PartitionKey,
    log_id: int,
    given: Inputs,
) -> Decision:
    """Abort the rest of a transaction of which an admin's marker has ended one partition (KIP-664).

    In Kafka the coordinator does not learn of such a marker, and the client's commit succeeds although a part is
    missing. Here the rest is aborted in the same unit, with a bumped epoch, exactly as a timeout does: clients know how
    to handle that, no extra state has to survive a restart, and all last stable offsets advance. A later EndTxn(commit)
    is answered PRODUCER_FENCED with TV1, because its epoch is an old one, and INVALID_TXN_STATE with TV2, because it
    names a transaction that was aborted.

    If the marker is for a partition that is not in the transaction, or for another producer id or an older epoch, the
    decision is empty: the caller then writes only the marker (this is how hanging transactions are ended).
    """
    if txn is None or producer_id != txn.producer_id or producer_epoch < txn.producer_epoch:
        return _DONE
    return force_abort(txn, given) if txn.partitions.get(partition) == log_id else _DONE


# PrepareTxn and what the ledger decides ------------------------------------------------------------------------------


def prepare(
    txn: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    prepared: Prepared,
    decided: int | None,
    given: Inputs,
) -> Decision:
    """Decide a PrepareTxn. decided: the number of the ledger's last decision under the key; None if there is none.

    If `decided` is at or above the number that the transaction would wait for, the transaction is aborted: the decision
    has states to log, and the error INVALID_TXN_STATE, which the caller answers as LEDGER_CONFLICT. A repeated
    PrepareTxn succeeds and changes nothing: the timeout still counts from the first one.
    """
    if error := _wrong_producer(txn, producer_id, producer_epoch):
        return Decision(error)
    assert txn is not None
    cell = answer(Event.PREPARE, txn)
    if isinstance(cell, ErrorCode):
        return Decision(cell)
    if not txn.partitions:  # a request that named no partition has opened it, at Kafka's coordinator
        return Decision(_STATE)
    if txn.prepared is not None:
        same = txn.prepared == prepared._replace(since_age_ms=txn.prepared.since_age_ms)
        return _DONE if same else Decision(_STATE)
    if decided is not None and decided >= prepared.number:
        return end_transaction(txn, Action.ABORT_AND_BUMP, given)._replace(error=_STATE)
    waiting = txn._replace(
        prepared=prepared._replace(since_age_ms=given.age_ms),
        last_update_ms=given.now_ms,
        updated_age_ms=given.age_ms,
    )
    return Decision(states=(waiting,))


def settle_prepared(txn: Transaction | None, commit: bool, given: Inputs) -> Decision:
    """Decide to commit or abort a prepared transaction, as the ledger decided. The caller has checked that this
    decision is the one it waits for.
    """
    cell = answer(Event.DECIDE_COMMIT if commit else Event.DECIDE_ABORT, txn)
    if isinstance(cell, ErrorCode) or txn is None:
        return Decision(cell if isinstance(cell, ErrorCode) else _UNKNOWN)
    return end_transaction(txn, cell, given)


# What is found in the log --------------------------------------------------------------------------------------------


def owed_markers(txn: Transaction) -> MarkerOrder | None:
    """Return the markers that a transaction in PREPARE_COMMIT or PREPARE_ABORT still needs; None in other states."""
    if txn.status is Status.PREPARE_COMMIT:
        return MarkerOrder(True, txn.producer_id, txn.producer_epoch, txn.partitions)
    if txn.status in (Status.PREPARE_ABORT, Status.PREPARE_EPOCH_FENCE):
        return MarkerOrder(False, txn.producer_id, txn.producer_epoch, txn.partitions)
    return None


def finish(txn: Transaction, given: Inputs) -> Decision:
    """Return the decision that completes a transaction in PREPARE_COMMIT or PREPARE_ABORT: its markers and the COMPLETE
    state. Empty in other states.
    """
    order = owed_markers(txn)
    if order is None:
        return _DONE
    return Decision(states=(finish_transaction(txn, given),), marker=order if order.partitions else None)


def is_unused(txn: Transaction) -> bool:
    """Return whether the id has no transaction that is open or still needs markers."""
    return txn.status in _MAY_EXPIRE


def may_expire(txn: Transaction, expiration_ms: int, age_ms: int) -> bool:
    """Return whether the id has been unused for `expiration_ms`, so that a tombstone may remove it. age_ms: the
    store's.
    """
    return is_unused(txn) and age_ms - txn.updated_age_ms >= expiration_ms


__all__ = [
    "Action",
    "Decision",
    "Event",
    "Inputs",
    "MarkerOrder",
    "Partitions",
    "Prepared",
    "Status",
    "Transaction",
    "add_partitions",
    "deadline_age_ms",
    "end",
    "expire",
    "finish",
    "force_abort",
    "is_unused",
    "may_expire",
    "owed_markers",
    "part_aborted",
    "prepare",
    "settle_prepared",
    "verify",
]
