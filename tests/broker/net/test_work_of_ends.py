"""The end of a transaction is one step, however many partitions it has (decision 31): how much work is that step?"""

import pytest
from fencepost.broker.transactions.states.transaction import Status
from fencepost.protocol.messages.ledger import EndTxnsRequest, PrepareTxnRequest
from fencepost.protocol.messages.transactions import EndTxnRequest
from produce_requests import create
from simulated_broker import SimulatedBroker
from txn_client import begun
from work_of_requests import frame_of, work_of

pytestmark = pytest.mark.slow

FEW, MANY = 200, 1_200  # partitions
MARKER_LINES = 80  # of Python, for each of them


def most_lines_of_an_end(partitions: int, *, decided: bool) -> int:
    """Return the most lines of Python that one turn of the loop runs when a transaction with this many partitions ends.

    decided: whether the ledger ends it, with EndTxns, whose other work is done in slices.
    """
    broker = SimulatedBroker()
    broker.ask(create("wide", partitions))
    txn = begun(broker, timeout_ms=600_000)
    assert not any(txn.add("wide", *range(partitions)))
    pair = {"transactional_id": txn.name, "producer_id": txn.producer_id, "producer_epoch": txn.epoch}
    asked: object = EndTxnRequest(committed=True, **pair)
    if decided:
        assert broker.ask(PrepareTxnRequest(ledger_key="k", number=1, **pair)).error_code == 0
        named = [EndTxnsRequest.Transaction(**pair)]
        asked = EndTxnsRequest(ledger_key="k", number=1, owner="o", digest=b"", committed=True, transactions=named)
    lines = work_of(broker, [frame_of(asked)]).most_lines
    assert broker.broker.transactions.transactions[txn.name].status is Status.COMPLETE_COMMIT
    broker.stop()
    return lines


@pytest.mark.parametrize("decided", [False, True])
def test_ending_a_transaction_executes_a_limited_number_of_code_lines_per_partition(decided):
    few, many = (most_lines_of_an_end(count, decided=decided) for count in (FEW, MANY))
    # At least one line for each partition, so the turn that was counted is the one that writes the markers.
    assert MANY - FEW < many - few <= MARKER_LINES * (MANY - FEW)
