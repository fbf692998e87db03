"""Every event in every state, through the functions that a coordinator calls.

The expectations are written out from requirements 2.3, KIP-360 and KIP-890's table of EndTxn retries, not from the
table in the code: error codes where nothing changes, else the status and the epoch that follow, and the markers.
"""

import pytest
from fencepost.broker.transactions.states import machine
from fencepost.broker.transactions.states.init_producer_id import Initialisation, Limits, init_producer_id
from fencepost.broker.transactions.states.table import TABLE, Action, Event, State, answer, state_of
from fencepost.broker.transactions.states.transaction import Prepared, Status
from fencepost.protocol.errors import ErrorCode
from transaction_states import (
    EPOCH,
    NEW,
    PARTITIONS,
    PRODUCER,
    Environment,
    held,
    in_state,
    prepared,
    summary,
    transaction,
)

STATES = [state.name for state in State]


def begun(txn, producer_id=-1, producer_epoch=-1):
    request = Initialisation("id", 60_000, producer_id, producer_epoch)
    return init_producer_id(txn, request, Limits(), Environment().inputs())


def ended(commit, version, epoch=EPOCH):
    return lambda txn: machine.end(txn, commit, PRODUCER, epoch, version, Environment().inputs())


def added(version):
    return lambda txn: machine.add_partitions(txn, PRODUCER, EPOCH, NEW, version, Environment().inputs())


def late(environment):
    environment.passes(10_000_000)
    return environment.inputs()


CALLS = {
    "init": begun,
    "init with its pair": lambda txn: begun(txn, PRODUCER, EPOCH),
    "init with the pair before": lambda txn: begun(txn and txn._replace(last_producer_epoch=4), PRODUCER, 4),
    "init with an old pair": lambda txn: begun(txn, PRODUCER, 2),
    "init with a pair to come": lambda txn: begun(txn, PRODUCER, EPOCH + 1),
    "init with another id": lambda txn: begun(txn, PRODUCER + 1, EPOCH),
    "add, TV1": added(0),
    "add, TV2": added(2),
    "commit, TV1": ended(True, 0),
    "abort, TV1": ended(False, 0),
    "commit, TV1, one behind": ended(True, 0, EPOCH - 1),
    "abort, TV1, one behind": ended(False, 0, EPOCH - 1),
    "commit, TV2": ended(True, 2),
    "abort, TV2": ended(False, 2),
    "commit, TV2, retry": ended(True, 2, EPOCH - 1),
    "abort, TV2, retry": ended(False, 2, EPOCH - 1),
    "commit, TV2, two behind": ended(True, 2, EPOCH - 2),
    "abort, TV2, one ahead": ended(False, 2, EPOCH + 1),
    "prepare": lambda txn: machine.prepare(
        txn, PRODUCER, EPOCH, Prepared("sink", 3, 3_600_000, 0), None, Environment().inputs()
    ),
    "prepare, other number": lambda txn: machine.prepare(
        txn, PRODUCER, EPOCH, Prepared("sink", 4, 3_600_000, 0), None, Environment().inputs()
    ),
    "prepare, held": lambda txn: machine.prepare(
        txn, PRODUCER, EPOCH, Prepared("sink", 3, 3_600_000, 0, True), None, Environment().inputs()
    ),
    "decide commit": lambda txn: machine.settle_prepared(txn, True, Environment().inputs()),
    "decide abort": lambda txn: machine.settle_prepared(txn, False, Environment().inputs()),
    "time is over": lambda txn: machine.expire(txn, late(Environment())) if txn else machine.force_abort(txn, None),
    "forced abort": lambda txn: machine.force_abort(txn, Environment().inputs()),
}

# The columns: UNKNOWN, EMPTY, ONGOING, PREPARED, HELD, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT.
EXPECTED = """
init | Empty@0 of 900 | Empty@6 | Empty@6 abort@6 | Empty@6 abort@6 | 51 | 51 | 51 | Empty@6 | Empty@6
init with its pair | Empty@0 of 900 | Empty@6 | Empty@6 abort@6 | Empty@6 abort@6 | 51 | 51 | 51 | Empty@6 | Empty@6
init with the pair before | Empty@0 of 900 | Empty@5 | 90 | 90 | 51 | 51 | 51 | Empty@5 | Empty@5
init with an old pair | Empty@0 of 900 | 90 | 90 | 90 | 51 | 51 | 51 | 90 | 90
init with a pair to come | Empty@0 of 900 | 90 | 90 | 90 | 51 | 51 | 51 | 90 | 90
init with another id | Empty@0 of 900 | 90 | 90 | 90 | 51 | 51 | 51 | 90 | 90
add, TV1 | 49 | Ongoing@5 | Ongoing@5 | 48 | 48 | 51 | 51 | Ongoing@5 | Ongoing@5
add, TV2 | 49 | Ongoing@5 | Ongoing@5 | 48 | 48 | 51 | 51 | Ongoing@5 | Ongoing@5
commit, TV1 | 49 | 48 | CompleteCommit@5 commit@5 | CompleteCommit@6 commit@6 | CompleteCommit@6 commit@6 | 51 | 48 | 0 | 48
abort, TV1 | 49 | 48 | CompleteAbort@5 abort@5 | CompleteAbort@6 abort@6 | CompleteAbort@6 abort@6 | 48 | 51 | 48 | 0
commit, TV1, one behind | 49 | 90 | 90 | 90 | 90 | 90 | 90 | 90 | 90
abort, TV1, one behind | 49 | 90 | 90 | 90 | 90 | 90 | 90 | 90 | 90
commit, TV2 | 49 | 48 | CompleteCommit@6 commit@6 | CompleteCommit@6 commit@6 | CompleteCommit@6 commit@6 | 90 | 90 | 48 | 48
abort, TV2 | 49 | CompleteAbort@6 | CompleteAbort@6 abort@6 | CompleteAbort@6 abort@6 | CompleteAbort@6 abort@6 | 90 | 90 | CompleteAbort@6 | CompleteAbort@6
commit, TV2, retry | 49 | 90 | 90 | 90 | 90 | 51 | 48 | 0 | 48
abort, TV2, retry | 49 | 90 | 90 | 90 | 90 | 48 | 51 | 48 | 0
commit, TV2, two behind | 49 | 90 | 90 | 90 | 90 | 90 | 90 | 90 | 90
abort, TV2, one ahead | 49 | 90 | 90 | 90 | 90 | 90 | 90 | 90 | 90
prepare | 49 | 48 | Prepared@5 | 0 | 48 | 51 | 51 | 48 | 48
prepare, other number | 49 | 48 | Prepared@5 | 48 | 48 | 51 | 51 | 48 | 48
prepare, held | 49 | 48 | Held@5 | 48 | 0 | 51 | 51 | 48 | 48
decide commit | 49 | 48 | 48 | CompleteCommit@6 commit@6 | CompleteCommit@6 commit@6 | 51 | 51 | 48 | 48
decide abort | 49 | 48 | 48 | CompleteAbort@6 abort@6 | CompleteAbort@6 abort@6 | 51 | 51 | 48 | 48
time is over | 0 | 0 | CompleteAbort@6 abort@6 | CompleteAbort@6 abort@6 | CompleteAbort@6 abort@6 | 0 | 0 | 0 | 0
forced abort | 0 | 0 | CompleteAbort@6 abort@6 | CompleteAbort@6 abort@6 | 48 | 51 | 51 | 0 | 0
"""  # noqa: E501
ROWS = [[cell.strip() for cell in line.split("|")] for line in EXPECTED.strip().splitlines()]


@pytest.mark.requirement("S-61", "S-62", "S-63", "S-64", "S-71", "S-88")
@pytest.mark.parametrize(("call", "expected"), [(call, expected) for call, *expected in ROWS])
def test_every_event_in_every_transaction_state_has_the_documented_answer(call, expected):
    answers = {state: summary(CALLS[call](in_state(state))) for state in STATES}
    assert answers == dict(zip(STATES, expected, strict=True))


def test_the_tests_cover_every_row_of_the_transaction_state_table():
    assert set(CALLS) == {name for name, *_ in ROWS}
    assert {len(row) for row in TABLE.values()} == {len(State)}
    assert set(TABLE) == set(Event)


@pytest.mark.parametrize("state", STATES)
def test_only_partitions_added_to_the_open_transaction_may_be_written(state):
    txn = in_state(state)
    unknown, ending = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.CONCURRENT_TRANSACTIONS
    verdicts = {"UNKNOWN": unknown, "PREPARE_COMMIT": ending, "PREPARE_ABORT": ending}
    refused = verdicts.get(state, ErrorCode.INVALID_TXN_STATE)
    assert machine.verify(txn, PRODUCER, EPOCH, ("payments", 0), 21) is refused
    known = machine.verify(txn, PRODUCER, EPOCH, ("orders", 0), PARTITIONS["orders", 0])
    assert known is (ErrorCode.NONE if state == "ONGOING" else refused)
    if txn is not None:
        assert machine.verify(txn, PRODUCER, EPOCH - 1, ("orders", 0), 11) is ErrorCode.PRODUCER_FENCED
        assert machine.verify(txn, PRODUCER + 1, EPOCH, ("orders", 0), 11) is unknown


def test_kafkas_status_dead_counts_as_no_state_and_epoch_fence_as_prepare_abort():
    assert state_of(transaction(Status.DEAD)) is State.UNKNOWN
    assert state_of(transaction(Status.PREPARE_EPOCH_FENCE)) is State.PREPARE_ABORT
    assert summary(begun(transaction(Status.DEAD))) == "Empty@0 of 900"  # at epoch 0 of the new producer id 900
    assert (
        machine.end(transaction(Status.DEAD), True, PRODUCER, EPOCH, 2, Environment().inputs()).error
        is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    assert answer(Event.INIT, None) is Action.CREATE
    assert answer(Event.TIMEOUT, prepared()) is Action.ABORT_AND_BUMP


def test_a_held_transaction_is_ended_only_by_its_decision_or_its_own_timeout():
    """Checked in the state table: no other event leaves the state HELD."""
    ways_out = {event for event in Event if isinstance(TABLE[event][State.HELD], Action)} - {Event.PREPARE}
    decisions = {Event.COMMIT_V1, Event.ABORT_V1, Event.COMMIT_V2, Event.ABORT_V2}
    assert ways_out == decisions | {Event.DECIDE_COMMIT, Event.DECIDE_ABORT, Event.TIMEOUT}
    without_limit = held(timeout_ms=-1)
    assert machine.expire(without_limit, late(Environment())).states == ()


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 1])
def test_an_admins_marker_for_a_partition_of_a_held_transaction_is_refused(epoch):
    for partition, log_id in PARTITIONS.items():
        decision = machine.part_aborted(held(), PRODUCER, epoch, partition, log_id, Environment().inputs())
        assert (decision.error, decision.states, decision.marker) == (ErrorCode.INVALID_TXN_STATE, (), None)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_with_the_previous_epoch_is_fenced_after_a_tv1_end(state, version, commit):
    """Kafka takes any epoch one behind for a retry. Here the last end did not increment the epoch, so the request is
    of a zombie.
    """
    txn = in_state(state, version=0)
    decision = machine.end(txn, commit, PRODUCER, EPOCH - 1, version, Environment().inputs())
    assert decision.error is (ErrorCode.PRODUCER_FENCED if txn else ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert not decision.states
