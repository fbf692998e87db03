"""Which states make up a snapshot of the coordinators, and how each becomes records and is read from them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .coordinator_snapshots import CoordinatorSnapshots, Row, Source
from .transactions import ledger, records

if TYPE_CHECKING:
    from .broker import Broker


def snapshots_of(broker: "Broker") -> CoordinatorSnapshots:
    """The snapshots of groups and their offsets, of transactions, and of the ledger."""
    offsets, transactions, entries = broker.group_offsets, broker.transactions, broker.ledger
    return CoordinatorSnapshots(
        broker,
        [
            Source(offsets.topic, offsets.rows, offsets.read_row, offsets.put_row),
            Source(
                transactions.topic,
                lambda: _transactions(broker),
                lambda row: records.read(row[0], row[1]),
                lambda read: transactions.apply(*read),
            ),
            Source(
                entries.topic,
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
            yield records.key(transactional_id), records.value(state)


def _ledger(broker: "Broker") -> Iterator[Row]:
    found = broker.ledger.entries
    for key in list(found):
        entry = found.get(key)
        if entry is not None:
            yield ledger.record_key(key), ledger.record_value(entry)
