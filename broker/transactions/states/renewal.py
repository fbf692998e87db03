"""Gives a transactional id a new producer id in a restored directory, so that the producer from before the backup
cannot continue.

The rule: after a restore, clients may hold pairs (producer id, epoch) that were given out after the backup, and the id
would get the same pairs again. So it gets a new producer id. An open transaction is aborted, since its producer may
have ended it after the backup. A transaction that waits for a decision of the ledger keeps its pair, because the
decision names it by that; it gets the new producer id when it ends. Pure.
"""

from .outcome import end_transaction
from .table import Action
from .transaction import LAST_EPOCH, NO_EPOCH, NO_OFFSET, Decision, Inputs, Status, Transaction


def with_new_producer_id(txn: Transaction, given: Inputs) -> Decision:
    """Return the decision that gives the id a new producer id. It aborts an open transaction; but one that is prepared,
    or of two-phase commit, stays open, and the id gets the new producer id when it ends.

    A transaction in a PREPARE state must have been completed before.
    """
    if txn.status is not Status.ONGOING:
        started = txn._replace(
            status=Status.EMPTY,
            producer_id=given.new_producer_id(),
            producer_epoch=0,
            previous_producer_id=txn.producer_id,
            last_producer_epoch=NO_EPOCH,
            opened_at=NO_OFFSET,
        )
        return Decision(states=(started,))
    if txn.prepared is not None or txn.enable_2pc:
        waiting = txn._replace(next_producer_id=given.new_producer_id(), next_producer_epoch=0)
        return Decision(states=(waiting,))
    decision = end_transaction(txn._replace(producer_epoch=LAST_EPOCH), Action.ABORT_AND_BUMP, given)
    if decision.gone:
        return decision
    *before, last = decision.states
    return decision._replace(states=(*before, last._replace(last_producer_epoch=NO_EPOCH)))
