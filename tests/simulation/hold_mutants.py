"""The bank of bugs in held transactions: one is ended by something else than its decision, or the decision goes wrong.

A held transaction is prepared (PrepareTxn with `hold`). Its producer's EndTxn, the EndTxns request that decides about
it, and its prepared timeout end it, and nothing else. EndTxns names a ledger key and a number and lists transactions
that are prepared under them. It aborts those that it does not list, but is refused if one of these is held.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any
from unittest import mock

from fencepost.broker.transactions import deciding, records
from fencepost.broker.transactions import ledger as ledger_module
from fencepost.broker.transactions.deciding import Deciding
from fencepost.broker.transactions.ledger import Item, PreparedIds
from fencepost.broker.transactions.ledger_log import Ledger
from fencepost.broker.transactions.states import machine
from fencepost.broker.transactions.states.table import TABLE, Action, Event, State
from fencepost.protocol.errors import ErrorCode
from simulation.planting import around, breaks, killed_by, replaced

HELD = "tests/broker/handlers/test_ledger_holds.py"
CUTS = "tests/crash/test_transaction_crash_points.py"
NOBODY = "apis.md: so nobody else ends it: InitProducerId of its id, in any version, with any pair and by anybody"
MARKER = "apis.md: an admin's marker (WriteTxnMarkers) is answered INVALID_TXN_STATE"
EXACT = "apis.md: an EndTxns that lists it with them, its key and its number"
PLACE = "apis.md: the key has a place in the ledger from then on, so its decision does not meet"
LEFT = "apis.md: the rest is committed; the answer names the partition"
PAIRS = "apis.md: EndTxns' answer gives for each listed id the producer id and epoch that its producer goes on with"
RESTART = "apis.md: A restart, a restored backup and a new owner of the journal leave it as it is"


def _cell(stack: ExitStack, event: Event, cell: Any) -> None:
    """Give another answer to an event of a held transaction."""
    row = list(TABLE[event])
    row[State.HELD] = cell
    stack.enter_context(mock.patch.dict(TABLE, {event: tuple(row)}))


@killed_by(HELD)
@breaks(NOBODY)
def a_newcomer_aborts_what_is_held(stack: ExitStack) -> None:
    _cell(stack, Event.INIT, Action.ABORT_AND_BEGIN)


@killed_by(HELD)
@breaks(NOBODY)
def a_zombie_of_a_held_transaction_is_fenced_at_once(stack: ExitStack) -> None:
    _cell(stack, Event.INIT_STALE, ErrorCode.PRODUCER_FENCED)


@killed_by(HELD)
@breaks(MARKER)
def an_admin_aborts_what_is_held(stack: ExitStack) -> None:
    _cell(stack, Event.FORCE_ABORT, Action.ABORT_AND_BUMP)


@killed_by(HELD)
@breaks(NOBODY)
def a_held_transaction_without_a_limit_times_out(stack: ExitStack) -> None:
    def wrapper(deadline: Any) -> Any:
        return lambda txn: txn.started_age_ms + txn.timeout_ms if txn.prepared else deadline(txn)

    around(stack, machine.deadline_age_ms, wrapper)


@killed_by(HELD)
@breaks(EXACT)
def a_decision_aborts_the_held_ones_it_does_not_list(stack: ExitStack) -> None:
    """An EndTxns request that does not list a held transaction aborts it, instead of being refused: held_up_to() finds
    the held ones that it has to list.
    """
    replaced(stack, PreparedIds.held_up_to, lambda self, key, number: [])


@killed_by(HELD)
@breaks(EXACT)
def a_decision_takes_a_held_one_of_any_epoch(stack: ExitStack) -> None:
    def wrapper(waits_for: Any) -> Any:
        def waits(txn: Any, item: Any, key: str, number: int) -> Any:
            return waits_for(txn, item._replace(producer_epoch=txn.producer_epoch) if txn else item, key, number)

        return waits

    around(stack, ledger_module.waits_for, wrapper)


@killed_by(HELD)
@breaks(PLACE)
def a_held_transaction_has_no_place_for_its_ledger_key(stack: ExitStack) -> None:
    replaced(stack, PreparedIds.held_keys, lambda self: ())


@killed_by(HELD)
@breaks(PLACE)
def the_place_of_a_ledger_key_is_looked_for_at_the_decision_alone(stack: ExitStack) -> None:
    def wrapper(prepare: Any) -> Any:
        def prepared(self: Any, request: Any, check: Any = None) -> Any:
            kept, self._check_place = self._check_place, lambda key: None
            try:
                return prepare(self, request, check)
            finally:
                self._check_place = kept

        return prepared

    around(stack, Ledger.prepare, wrapper)


@killed_by(HELD)
@breaks(LEFT)
def a_deleted_topic_stops_the_decision_about_a_held_transaction(stack: ExitStack) -> None:
    wrong_with = deciding.wrong_with

    def wrong(item: Any, txn: Any, proposal: Any, is_there: Any) -> Any:
        gone = txn is not None and not all(map(is_there, txn.partitions.values()))
        error = wrong_with(item, txn, proposal, is_there)
        return error or (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if proposal.commit and gone else ErrorCode.NONE)

    stack.enter_context(mock.patch.object(deciding, "wrong_with", wrong))


@killed_by(HELD)
@breaks(LEFT)
def nobody_is_told_what_a_deleted_topic_took(stack: ExitStack) -> None:
    replaced(stack, Deciding._find_deleted, lambda self: ())


@killed_by(HELD)
@breaks(PAIRS)
def a_repeated_decision_gives_the_pair_of_whoever_has_the_id(stack: ExitStack) -> None:
    def found(self: Any) -> Any:
        known = self._coordinator.transactions
        return tuple(Item(name, known[name].producer_id, known[name].producer_epoch) for name in self._listed)

    replaced(stack, Deciding._find_next_pairs, found)


@killed_by(CUTS)
@breaks(RESTART)
def the_hold_is_not_in_the_log(stack: ExitStack) -> None:
    around(
        stack,
        records.value,
        lambda value: lambda txn: value(txn._replace(prepared=txn.prepared and txn.prepared._replace(hold=False))),
    )
