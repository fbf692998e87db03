"""How a transaction ends: PREPARE_x, the markers, COMPLETE_x, and the producer id and epoch that its producer uses
next.

The rule: if the end bumps the epoch, the markers have the new epoch, which at once fences the producer that wrote
(KIP-890). If no epoch is left, or a new producer id was set aside (renewal.py), the markers have epoch 32767, the
producer id is never used again, and the new one follows with epoch 0. If the id is ephemeral, the markers have epoch
32767 too, but the id is removed with its transaction. An outcome that was logged never changes. Source: Kafka's
TransactionMetadata.prepareAbortOrCommit and prepareComplete.
"""

from ....storage.producers.producers import RETIRED_EPOCH
from .table import Action
from .transaction import NO_EPOCH, NO_ID, NO_OFFSET, Decision, Inputs, MarkerOrder, Status, Transaction

_COMMITS = frozenset({Action.COMMIT, Action.COMMIT_AND_BUMP})
_BUMPS = frozenset({Action.COMMIT_AND_BUMP, Action.ABORT_AND_BUMP, Action.ABORT_NOTHING})


def end_transaction(txn: Transaction, do: Action, given: Inputs) -> Decision:
    """Return the decision that commits or aborts a transaction; its error is NONE. do: the action from the table, which
    says whether to commit, and whether the epoch is bumped.

    There is no marker if the transaction has no partitions. An ephemeral id is removed when its transaction ends.
    """
    commit = do in _COMMITS
    bumps = do in _BUMPS or given.ephemeral
    ending = _prepare_bumping_epoch(txn, commit, given) if bumps else _prepare_keeping_epoch(txn, commit, given)
    order = None
    if txn.partitions:
        order = MarkerOrder(commit, ending.producer_id, ending.producer_epoch, txn.partitions)
    if given.ephemeral:
        return Decision(states=(ending,), marker=order, gone=True)
    return Decision(states=(ending, finish_transaction(ending, given)), marker=order)


def _prepare_keeping_epoch(txn: Transaction, commit: bool, given: Inputs) -> Transaction:
    """Return the state PREPARE_COMMIT or PREPARE_ABORT of TV1: the producer keeps its id and epoch."""
    return Transaction(  # _replace() takes three times as long
        txn.transactional_id,
        txn.producer_id,
        txn.producer_epoch,
        txn.timeout_ms,
        Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT,
        txn.partitions,
        txn.start_ms,
        given.now_ms,
        txn.started_age_ms,
        given.age_ms,
        txn.last_producer_epoch,
        txn.previous_producer_id,
        txn.next_producer_id,
        txn.next_producer_epoch,
        client_version=0,
        enable_2pc=txn.enable_2pc,
        prepared=None,
        opened_at=txn.opened_at,
    )


def _prepare_bumping_epoch(txn: Transaction, commit: bool, given: Inputs) -> Transaction:
    """Return the state PREPARE_COMMIT or PREPARE_ABORT with a bumped epoch, which is also written into the markers.

    If no epoch is left, or a new producer id was set aside, the state also names the producer id that its producer uses
    next.
    """
    set_aside = txn.next_producer_id != NO_ID
    ends = txn.exhausted or set_aside or given.ephemeral  # the producer id is never used again
    rotates = ends and not given.ephemeral
    began = txn.status is Status.ONGOING  # else there is no transaction, and only the epoch is bumped
    return txn._replace(
        producer_epoch=RETIRED_EPOCH if ends else txn.producer_epoch + 1,
        last_producer_epoch=txn.producer_epoch,
        next_producer_id=(txn.next_producer_id if set_aside else given.new_producer_id()) if rotates else NO_ID,
        next_producer_epoch=0 if rotates else NO_EPOCH,
        status=Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT,
        start_ms=txn.start_ms if began else given.now_ms,
        started_age_ms=txn.started_age_ms if began else given.age_ms,
        last_update_ms=given.now_ms,
        updated_age_ms=given.age_ms,
        client_version=2,
        prepared=None,
        opened_at=txn.opened_at if began else NO_OFFSET,
    )


def finish_transaction(txn: Transaction, given: Inputs) -> Transaction:
    """Return the COMPLETE state that follows a PREPARE state. In it no transaction is open, and the next producer id
    and epoch are in effect.
    """
    rotated = txn.next_producer_id != NO_ID
    return Transaction(
        txn.transactional_id,
        txn.next_producer_id if rotated else txn.producer_id,
        max(txn.next_producer_epoch, 0) if rotated else txn.producer_epoch,
        txn.timeout_ms,
        Status.COMPLETE_COMMIT if txn.status is Status.PREPARE_COMMIT else Status.COMPLETE_ABORT,
        {},
        txn.start_ms,
        given.now_ms,
        txn.started_age_ms,
        given.age_ms,
        txn.last_producer_epoch,
        txn.producer_id if rotated else txn.previous_producer_id,
        NO_ID,
        NO_EPOCH,
        txn.client_version,
        txn.enable_2pc,
        txn.prepared,
        txn.opened_at,
    )
