"""A transactional id in a restored directory: no pair of before counts any more, whatever was known of it."""

import pytest
from fencepost.broker.transactions.states.machine import settle_prepared
from fencepost.broker.transactions.states.renewal import with_new_producer_id
from fencepost.broker.transactions.states.transaction import LAST_EPOCH, NO_EPOCH, Status
from fencepost.protocol.errors import ErrorCode
from transaction_states import EPOCH, NEXT_PRODUCER, PRODUCER, Environment, begin, held, pair, transaction

STATES = [Status.EMPTY, Status.ONGOING, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT]
BEFORE = 6  # the producer id that a rotation replaced


@pytest.mark.parametrize("status", STATES)
@pytest.mark.parametrize("last_epoch", [NO_EPOCH, EPOCH - 1, LAST_EPOCH])
@pytest.mark.parametrize("epoch", [0, EPOCH, LAST_EPOCH])
def test_after_a_restore_init_with_any_earlier_producer_id_and_epoch_is_fenced(
    status: Status, last_epoch: int, epoch: int
) -> None:
    """A restore renews the producer id of each transactional id. The replaced id and epoch would otherwise be accepted
    as a retry of InitProducerId (KIP-360).
    """
    known = transaction(status, epoch, last_producer_epoch=last_epoch, previous_producer_id=BEFORE)
    environment = Environment()
    renewed = with_new_producer_id(known, environment.inputs()).states[-1]
    assert (renewed.producer_id, renewed.producer_epoch) == (NEXT_PRODUCER, 0)
    for producer_id in (PRODUCER, BEFORE):
        for old_epoch in {0, epoch, last_epoch, EPOCH - 1, EPOCH, LAST_EPOCH, LAST_EPOCH - 1} - {NO_EPOCH}:
            asked = begin(renewed, environment, (producer_id, old_epoch))
            assert (asked.error, asked.states) == (ErrorCode.PRODUCER_FENCED, ()), (producer_id, old_epoch)
    assert pair(begin(renewed, environment)) == (NEXT_PRODUCER, 1)


def test_a_restore_keeps_a_held_transaction_and_its_end_gives_a_new_producer_id() -> None:
    """A held transaction is ended only by its decision, or by the timeout of its own prepare."""
    environment = Environment()
    renewed = with_new_producer_id(held(), environment.inputs()).states[-1]
    assert renewed.prepared == held().prepared
    assert (renewed.producer_id, renewed.producer_epoch) == (PRODUCER, EPOCH)
    assert begin(renewed, environment).error is ErrorCode.CONCURRENT_TRANSACTIONS
    last = settle_prepared(renewed, True, environment.inputs()).states[-1]
    assert (last.producer_id, last.producer_epoch, last.is_last(PRODUCER, EPOCH)) == (NEXT_PRODUCER, 0, True)
