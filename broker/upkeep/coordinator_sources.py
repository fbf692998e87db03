"""The coordinators whose states make up a snapshot, and how each is converted to rows of plain values and back."""

from collections.abc import Iterator

from ..groups.offset_log import GroupOffsets
from ..groups.records import Committed, Place
from ..producers.names_log import FIELDS as NAME_FIELDS
from ..producers.names_log import NamedProducers
from ..share.state_log import FIELDS as SHARE_FIELDS
from ..share.state_log import ShareStateLog
from ..transactions import ledger
from ..transactions.coordinator import TransactionCoordinator
from ..transactions.ledger_log import Ledger
from ..transactions.states.transaction import Prepared, Status, Transaction
from .coordinator_snapshots import Row, Source

_STATUS_AT = Transaction._fields.index("status")
_STATUSES = {int(status): status for status in Status}
_PREPARED_AT = Transaction._fields.index("prepared")


def sources_of(
    offsets: GroupOffsets,
    transactions: TransactionCoordinator,
    entries: Ledger,
    shares: ShareStateLog,
    producers: NamedProducers,
) -> list[Source]:
    """Return what snapshots contain: group offsets, transactions, the ledger, share partitions, named producers."""
    return [
        Source(offsets.topic, (*Place._fields, *Committed._fields), offsets.rows, offsets.read_row, offsets.put_row),
        Source(
            transactions.topic,
            (*Transaction._fields, *Prepared._fields),
            lambda: _transactions(transactions),
            _transaction,
            lambda state: transactions.apply(state.transactional_id, state),
        ),
        Source(
            entries.topic,
            ("key", "value"),
            lambda: _ledger(entries),
            lambda row: ledger.read_record(row[0], row[1]),
            lambda read: entries.apply(*read),
        ),
        Source(shares.topic, SHARE_FIELDS, shares.rows, shares.read_row, shares.put_row),
        Source(producers.topic, NAME_FIELDS, producers.names.rows, _row, producers.names.apply),
    ]


def _transactions(coordinator: TransactionCoordinator) -> Iterator[Row]:
    """Yield the state of each transactional id."""
    found = coordinator.transactions
    for transactional_id in list(found):
        state = found.get(transactional_id)
        if state is not None:
            yield state


def _transaction(row: Row) -> Transaction:
    """Restore a transaction from the plain values of a snapshot's row."""
    values = list(row)
    values[_STATUS_AT] = _STATUSES[values[_STATUS_AT]]
    if (prepared := values[_PREPARED_AT]) is not None:
        values[_PREPARED_AT] = Prepared._make(prepared)
    return Transaction._make(values)


def _row(row: Row) -> tuple[bytes, bytes | None]:
    """Return a row of a snapshot as a pair: the key and the value of a record."""
    key, value = row
    return key, value


def _ledger(entries: Ledger) -> Iterator[Row]:
    """Yield each ledger entry as the key and value of its record."""
    found = entries.entries
    for key in list(found):
        entry = found.get(key)
        if entry is not None:
            yield ledger.record_key(key), ledger.record_value(entry)
