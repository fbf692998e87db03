"""Which states make up a snapshot of the coordinators, and how each becomes rows of plain values and is read again."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..groups.records import Committed, Place
from ..transactions import ledger
from ..transactions.transaction import Prepared, Status, Transaction
from .coordinator_snapshots import CoordinatorSnapshots, Row, Source

if TYPE_CHECKING:
    from ..broker import Broker

_STATUS_AT = Transaction._fields.index("status")
_STATUSES = {int(status): status for status in Status}
assert Transaction._fields[-1] == "prepared"


def snapshots_of(broker: "Broker") -> CoordinatorSnapshots:
    """The snapshots of groups and their offsets, of transactions, and of the ledger."""
    offsets, transactions, entries = broker.group_offsets, broker.transactions, broker.ledger
    return CoordinatorSnapshots(
        broker,
        [
            Source(
                offsets.topic, (*Place._fields, *Committed._fields), offsets.rows, offsets.read_row, offsets.put_row
            ),
            Source(
                transactions.topic,
                (*Transaction._fields, *Prepared._fields),
                lambda: _transactions(broker),
                _transaction,
                lambda state: transactions.apply(state.transactional_id, state),
            ),
            Source(
                entries.topic,
                ("key", "value"),
                lambda: _ledger(broker),
                lambda row: ledger.read_record(row[0], row[1]),
                lambda read: entries.apply(*read),
            ),
        ],
    )


def _transactions(broker: "Broker") -> Iterator[Row]:
    found = broker.transactions.transactions
    for transactional_id in list(found):
        state = found.get(transactional_id)
        if state is not None:
            yield state


def _transaction(row: Row) -> Transaction:
    """What _transactions gave: all but the status and what it waits for are plain values."""
    *values, prepared = row
    values[_STATUS_AT] = _STATUSES[values[_STATUS_AT]]
    return Transaction._make((*values, None if prepared is None else Prepared._make(prepared)))


def _ledger(broker: "Broker") -> Iterator[Row]:
    found = broker.ledger.entries
    for key in list(found):
        entry = found.get(key)
        if entry is not None:
            yield ledger.record_key(key), ledger.record_value(entry)
