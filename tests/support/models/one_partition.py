"""A partition reduced to what producers see of it: batches are judged, given offsets, and applied."""

from fencepost.protocol.batches import Batch, read
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Marker, control_marker
from fencepost.storage.producers import encoding as producer_snapshots
from fencepost.storage.producers.producers import ProducerStates
from raw_batches import batch

TRANSACTIONAL = 0x10
LAST, LAST_EPOCH = 2**31 - 1, 2**15 - 1
GAP, STALE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
P, Q = 7, 8  # two producers


def make(
    producer_id: int, epoch: int, sequence: int, count: int = 1, *, attributes: int = 0, timestamp: int = 7
) -> Batch:
    """Return a batch whose header says that it has `count` records; it contains none."""
    raw = batch(
        b"",
        records=count,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        max_timestamp=timestamp,
    )
    return read(memoryview(raw))


class OnePartition:
    """`answers` are base offsets for what is appended or a duplicate, error codes for what is refused."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end_offset = 0
        self.age_ms = 0
        self.log: list[Batch] = []

    def send(self, producer_id: int, epoch: int, sequence: int, count: int = 1, **more) -> int | ErrorCode:
        """Send one Produce request."""
        refuse_with = more.pop("refuse_unknown_with", None)
        sent = make(producer_id, epoch, sequence, count, **more)
        try:
            duplicate = self.states.judge(sent, refuse_with)
        except KafkaError as error:
            return error.code
        if duplicate is not None:
            assert duplicate.last_offset == duplicate.base_offset + count - 1
            return duplicate.base_offset
        return self.append(sent)

    def append(self, sent: Batch) -> int:
        sent.base_offset = self.end_offset
        self.log.append(sent)
        self.aborted = self.states.apply(sent, self.age_ms)
        self.end_offset = sent.next_offset
        return sent.base_offset

    def send_in_transaction(self, producer_id: int, epoch: int, sequence: int, count: int = 1, **more):
        return self.send(producer_id, epoch, sequence, count, attributes=TRANSACTIONAL, **more)

    def end(self, producer_id: int, epoch: int, kind: Marker = Marker.COMMIT, *, coordinator_epoch: int = 0):
        """Append a marker if it is accepted. Returns the transaction that it aborts, or the error code."""
        marker = read(memoryview(control_marker(kind, producer_id, epoch, coordinator_epoch, 9)))
        try:
            assert self.states.judge(marker) is None
        except KafkaError as error:
            return error.code
        self.append(marker)
        return self.aborted

    def restart(self) -> None:
        """Replace the states of producers by what a snapshot of them restores."""
        payload = self.states.snapshot()
        self.states = ProducerStates()
        self.states.restore(payload, self.age_ms)


def aged(partition: OnePartition, *producer_ids: int, every_ms: int = 100) -> OnePartition:
    """Let producers send one batch each, every_ms apart, and return the partition."""
    for producer_id in producer_ids:
        partition.age_ms += every_ms
        partition.send(producer_id, 0, 0)
    return partition


def known(partition: OnePartition) -> list[int]:
    """Return the ids of the producers that are remembered, the one silent longest first."""
    return [each.producer_id for each in partition.states.describe()]


def contents(payload: bytes) -> dict[int, dict[str, object]]:
    """Return a snapshot's producers by id, with all fields, so that two snapshots compare whatever their order."""
    producers = producer_snapshots.unpack(payload)
    fields = [name for name in producer_snapshots.Producer.__slots__ if name != "snapshot"]
    return {who: {name: getattr(producer, name) for name in fields} for who, producer in producers.items()}
