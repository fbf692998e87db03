"""What becomes of a transactional id in a directory that was restored: nobody who had it before goes on with it.

The rule: after a restore from a backup, clients may hold pairs (producer id, epoch) that were given after the backup,
and the id would be given the same ones again. So it goes on with a new producer id. What was open is aborted: its
producer may have ended it long ago. What waits for a decision from outside keeps its pair, by which the decision names
it, and gets the new producer id with its end. Pure.
"""

from .outcome import ended
from .table import Action
from .transaction import LAST_EPOCH, NO_EPOCH, Decision, Inputs, Status, Transaction


def renewed(txn: Transaction, given: Inputs) -> Decision:
    """The id with a new producer id. What was decided and not ended must have been finished before."""
    if txn.status is not Status.ONGOING:
        started = txn._replace(
            status=Status.EMPTY,
            producer_id=given.new_producer_id(),
            producer_epoch=0,
            previous_producer_id=txn.producer_id,
            last_producer_epoch=NO_EPOCH,
        )
        return Decision(states=(started,))
    if txn.prepared is not None or txn.enable_2pc:
        waiting = txn._replace(next_producer_id=given.new_producer_id(), next_producer_epoch=0)
        return Decision(states=(waiting,))
    decision = ended(txn._replace(producer_epoch=LAST_EPOCH), Action.ABORT_AND_BUMP, given)
    if decision.gone:
        return decision
    *before, last = decision.states
    return decision._replace(states=(*before, last._replace(last_producer_epoch=NO_EPOCH)))
