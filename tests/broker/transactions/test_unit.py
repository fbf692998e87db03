"""One unit for all that a decision writes: what it asks room for, and where its markers will stand."""

from types import SimpleNamespace

import pytest
from fencepost.broker.topics.catalogue import MarkerDebt, marker_owed
from fencepost.broker.topics.participants import Settlement
from fencepost.broker.transactions.states.transaction import MarkerOrder
from fencepost.broker.transactions.unit import PART_BYTES, TransactionUnit, marker_of
from fencepost.protocol.batches import batch_of
from fencepost.protocol.errors import ErrorCode, KafkaError
from raw_batches import batch

DATA = {("t", 0): 0}
OFFSETS = ("__consumer_offsets", 5)


class Partitions:
    """A broker with what TransactionUnit uses of one: logs that have only an end offset, and room for a number of
    bytes.

    It has no append(): even the first record of a transaction is written as a unit, on which others build.
    """

    def __init__(self, *ends):
        self.logs = {
            number: SimpleNamespace(log_id=number, offline=None, end_offset=end) for number, end in enumerate(ends)
        }
        self.room_bytes = 1 << 40
        self.written, self.decisions = [], []
        self.logged = []
        self.behind = []
        self.catalogue = SimpleNamespace(marker_debts={})

    def admits(self, size_bytes, *, internal):
        assert internal, "it may use the last of the space"
        return size_bytes <= self.room_bytes

    def refuse(self, size_bytes):
        return f"no room for {size_bytes:,} bytes"

    def append_together(self, appends):
        self.written.append([(log.log_id, written) for log, written in appends])

    def append_part(self, log_id, written):
        return log_id

    def commit(self, changes, parts):
        self.logged += changes
        self.written.append(parts)

    @property
    def participants(self):
        return {OFFSETS[0]: self.settle}

    def settle(self, partition, producer_id, commit):
        def apply(offset):
            assert self.written, "not before it is logged"
            self.decisions.append((partition, producer_id, commit, offset))

        return Settlement(self.behind, apply)


def order(producer_id, partitions, *, commit=True):
    return MarkerOrder(commit, producer_id, 3, partitions)


def filled(broker, kinds):
    """Return a unit with parts of these kinds, and the size of its bytes with the framing of each part."""
    unit, log = TransactionUnit(broker, broker, broker.participants), broker.logs[0]
    size = 0
    for kind in kinds:
        if kind == "batch":
            part = batch_of(memoryview(batch(records=4)))
            unit.add((log, part))
        else:
            part = marker_of(order(7, DATA), 1_000)
            if kind == "marker":
                unit.mark(order(7, DATA), 1_000)
            else:
                unit.add_marks([(log, part)])
        size += PART_BYTES + part.size
    return unit, size


@pytest.mark.parametrize(
    "kinds", [["batch"], ["marker"], ["ahead"], ["batch", "marker", "ahead"], ["ahead", "batch", "marker", "batch"]]
)
def test_a_transaction_unit_without_journal_room_for_all_parts_writes_none(kinds):
    broker = Partitions(0)
    unit, size = filled(broker, kinds)
    broker.room_bytes = size - 1
    with pytest.raises(KafkaError) as refused:
        unit.commit()
    assert (refused.value.code, broker.written) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    broker.room_bytes = size
    unit.commit()
    assert [len(parts) for parts in broker.written] == [len(kinds)]


def test_markers_of_one_unit_in_one_offsets_partition_get_consecutive_offsets():
    broker = Partitions(40, 90)
    unit = TransactionUnit(broker, broker, broker.participants)
    unit.mark(order(7, {OFFSETS: 0}), 1_000)
    unit.mark(order(8, {OFFSETS: 1, **DATA}, commit=False), 1_000)
    unit.mark(order(9, {OFFSETS: 0}, commit=False), 1_000)
    unit.mark(order(10, {OFFSETS: 0}), 1_000)
    unit.commit()
    # Each decision: partition, producer id, whether it is a commit, offset of the marker.
    assert broker.decisions == [(5, 7, True, 40), (5, 8, False, 90), (5, 9, False, 41), (5, 10, True, 42)]


def test_partitions_with_a_deleted_log_are_skipped_in_a_transaction_unit():
    broker = Partitions(0)
    unit = TransactionUnit(broker, broker, broker.participants)
    unit.mark(order(7, {("t", 0): 9, OFFSETS: 8}), 1_000)  # there is no log with the id 8 or 9
    unit.commit()
    assert (broker.written, broker.decisions) == ([], [])


@pytest.mark.parametrize("earlier", [None, MarkerDebt(2, 0, False), MarkerDebt(9, 0, True)])
def test_a_marker_owed_to_an_offline_log_keeps_the_outcome_of_an_earlier_one(earlier):
    broker = Partitions(0, 0)
    broker.logs[1].offline = "damaged"
    if earlier is not None:
        broker.catalogue.marker_debts[1, 7] = earlier
    unit = TransactionUnit(broker, broker, broker.participants)
    unit.mark(order(7, {("t", 0): 0, ("u", 0): 1}, commit=True), 1_000)
    unit.commit()
    epoch, commit = (3, True) if earlier is None else (max(earlier.producer_epoch, 3), earlier.commit)
    assert broker.written == [[0]]
    assert broker.logged == [marker_owed(1, 7, MarkerDebt(epoch, 0, commit))]


def test_records_added_at_a_transactions_end_follow_its_marker_and_count_in_the_size():
    """A participant is a coordinator (of groups, of share groups) with records in the transaction."""
    broker = Partitions(40, 90)
    unit = TransactionUnit(broker, broker, broker.participants)
    added = batch_of(memoryview(batch(records=3)))
    broker.behind = [(broker.logs[0], added)]
    unit.mark(order(7, {OFFSETS: 0}), 1_000)
    broker.behind = []
    unit.mark(order(8, {OFFSETS: 0}), 1_000)
    marker_bytes = marker_of(order(7, DATA), 1_000).size
    broker.room_bytes = 3 * PART_BYTES + 2 * marker_bytes + added.size - 1
    with pytest.raises(KafkaError) as refused:
        unit.commit()
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.room_bytes += 1
    unit.commit()
    assert [written for _, written in broker.written[0]][1] is added
    # The second marker comes after the first one, at 40, and the three added records.
    assert broker.decisions == [(5, 7, True, 40), (5, 8, True, 44)]
