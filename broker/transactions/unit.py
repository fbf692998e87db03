"""One unit (atomic commit) of transactions: the states to log, and the markers in all their partitions.

The rules: all of it is committed at once, or nothing. A partition is identified by the id of its log, so a topic that
was created again under the same name gets no marker. A log that is deleted is skipped. A log that is offline does not
delay the others: the unit logs that it is owed a marker (a debt), and the marker is the first thing that is appended
when it is back. The words unit and debt are in docs/glossary.md.
"""

from collections.abc import Iterable, Sequence

from ...protocol.batches import Batch, batch_of
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import MARKER_BYTES, Marker, control_marker
from ...storage.journal.journal import UnitRefused
from ...storage.log.partition_log import PartitionLog
from ...storage.store import Store
from ..topics.catalogue import Change, MarkerDebt, marker_owed
from ..topics.participants import Append, Participants, Settlement
from ..topics.topics import Topics
from .states.transaction import MarkerOrder

COORDINATOR_EPOCH = 0  # there is one coordinator, for ever
PART_BYTES = 32  # framing of a part in the journal, at most


class TransactionUnit:
    """Collects batches, and commits them atomically."""

    __slots__ = ("_debts", "_ends", "_participants", "_settled", "_size", "_store", "_topics", "appends")

    def __init__(self, store: Store, topics: Topics, participants: Participants) -> None:
        """participants: by topic, the objects that also log something when a transaction with a partition of that topic
        ends.
        """
        self.appends: list[Append] = []
        self._store = store
        self._topics = topics
        self._participants = participants
        self._size = 0
        self._debts: dict[tuple[int, int], MarkerDebt] = {}
        self._settled: list[tuple[Settlement, int]] = []  # with the offset of the marker
        self._ends: dict[int, int] = {}  # by log id, of participants' logs: the end offset once the unit is committed

    def add(self, append: Append) -> None:
        """Add a batch that is not a marker."""
        self.appends.append(append)
        self._size += PART_BYTES + append[1].size

    def mark(
        self,
        order: MarkerOrder,
        wall_ms: int,
        coordinator_epoch: int = COORDINATOR_EPOCH,
        made: Batch | None = None,
    ) -> None:
        """Add a marker for every partition of a transaction. A deleted partition gets none; for an offline one, the
        unit logs that it is owed one.

        wall_ms: the markers' timestamp. made: the marker, if the caller has made it with marker_of() before.
        """
        marker = made or marker_of(order, wall_ms, coordinator_epoch)
        logs = self._store.logs
        for (topic, partition), log_id in order.partitions.items():
            log = logs.get(log_id)
            if log is None:
                continue
            if log.offline is not None:
                self._note_debt(log_id, order)
                continue
            self.appends.append((log, marker))
            self._size += PART_BYTES + MARKER_BYTES
            settle = self._participants.get(topic)
            if settle is not None:
                self._settle(log, settle(partition, order.producer_id, order.commit))

    def add_marks(self, marks: Sequence[Append]) -> None:
        """Add markers that were made before the unit, for logs that are online and belong to no participant."""
        self.appends += marks
        self._size += (PART_BYTES + MARKER_BYTES) * len(marks)

    def _note_debt(self, log_id: int, order: MarkerOrder) -> None:
        """Note that an offline log is owed a marker, which settling.py writes when the log is back.

        If it is already owed one for this producer, the outcome (commit or abort) of that marker stays, with the higher
        of the two epochs.
        """
        key = log_id, order.producer_id
        earlier = self._topics.catalogue.marker_debts.get(key)
        commit = order.commit if earlier is None else earlier.commit
        epoch = order.producer_epoch if earlier is None else max(earlier.producer_epoch, order.producer_epoch)
        self._debts[key] = MarkerDebt(epoch, COORDINATOR_EPOCH, commit)

    def _settle(self, log: PartitionLog, settlement: Settlement) -> None:
        """Add the batches that a participant logs after its marker, and note the marker's future offset for its
        apply().
        """
        offset = self._ends.get(log.log_id, log.end_offset)
        self._settled.append((settlement, offset))
        self._ends[log.log_id] = offset + 1
        for append in settlement.appends:
            self.add(append)
            self._ends[log.log_id] += append[1].last_offset_delta + 1

    def commit(self) -> None:
        """Commit the unit, all or nothing, then let the participants apply their part.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE if it cannot be written, BrokerHalted.
        """
        if not self._store.admits(self._size, internal=True):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._store.refuse(self._size))
        try:
            if self._debts:
                self._commit_with([marker_owed(*key, debt) for key, debt in self._debts.items()])
            elif self.appends:
                self._store.append_together(self.appends)
        except UnitRefused as refused:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(refused)) from refused
        for settlement, offset in self._settled:
            settlement.apply(offset)

    def _commit_with(self, debts: Iterable[Change]) -> None:
        """Commit the unit together with these changes of the catalogue, which note markers that are owed to offline
        logs. Raises COORDINATOR_NOT_AVAILABLE.
        """
        parts = [self._store.append_part(log.log_id, batch) for log, batch in self.appends]
        try:
            self._topics.commit(list(debts), parts)
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.text) from error


def marker_of(order: MarkerOrder, wall_ms: int, coordinator_epoch: int = COORDINATOR_EPOCH) -> Batch:
    """Return the control batch (commit or abort marker) for this order; the same one goes to all partitions."""
    kind = Marker.COMMIT if order.commit else Marker.ABORT
    return batch_of(
        memoryview(control_marker(kind, order.producer_id, order.producer_epoch, coordinator_epoch, wall_ms))
    )
