"""The fetched batches of one partition, decoded as the application reads.

The rule: the position comes from the last offset of a batch, not of its last record, so gaps left by compaction,
markers and aborted transactions are passed and never fetched again. A damaged batch raises its error when it is
reached: after all records before it, and nothing is skipped. Records are created on demand, a few at a time.
Source: Kafka's CompletedFetch.
"""

import contextlib
from collections import deque
from collections.abc import Generator, Iterable

from ...protocol.batches import HEADER_BYTES, Batch, CorruptBatch, verify
from ...protocol.errors import ErrorCode, KafkaError
from ..errors import ClientError, CorruptRecordError, RecordDeserializationError, RecordTooLargeError
from ..serialization import Deserializer
from ..settings import LEAST_DECOMPRESSED_LIMIT
from ..values import Record, TopicPartition
from .decoding import Records
from .isolation import AbortedFilter
from .whole_batches import WholeBatches

_PIECE = 64
"""Records created at once, unless more are requested: records that are freed soon cost no garbage collection."""


class Fetched:
    """The batches from `offset` on. position: the next offset to read; next_offset: after the last batch.

    check_crcs, limit (bytes of a batch, decompressed), key and value (deserializers): settings of the consumer.
    A null key or value stays None and is not deserialized.
    """

    __slots__ = (
        "_aborted",
        "_batch",
        "_check_crcs",
        "_failure",
        "_index",
        "_key",
        "_limit",
        "_records",
        "_rest",
        "_value",
        "_waiting",
        "leader_epoch",
        "next_epoch",
        "next_offset",
        "position",
        "size",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        offset: int,
        leader_epoch: int,
        buffers: Iterable[memoryview | bytes | bytearray],
        aborted: Iterable[tuple[int, int]] = (),
        *,
        check_crcs: bool = True,
        limit: int = LEAST_DECOMPRESSED_LIMIT,
        key: Deserializer | None = None,
        value: Deserializer | None = None,
    ) -> None:
        self.tp = tp
        whole = WholeBatches(offset, buffers, leader_epoch)
        self.position, self.next_offset, self.size = offset, whole.next_offset, whole.size
        # Epochs of the records before `position` and before `next_offset`.
        self.leader_epoch, self.next_epoch = leader_epoch, whole.next_epoch
        self._aborted = AbortedFilter(aborted)
        self._check_crcs, self._limit, self._key, self._value = check_crcs, limit, key, value
        self._waiting = deque(whole.batches)
        self._batch: Batch | None = None
        self._records: list[Record] = []  # decoded ones of the open batch
        self._rest: Records | None = None  # those of the same batch that are not decoded yet
        self._index = 0  # how many of _records were returned
        self._failure = self._failure_of(whole)

    def _failure_of(self, whole: WholeBatches) -> KafkaError | None:
        """Return the error to raise after the whole batches: for damage after them, or for a first batch that is too
        large; None without either.
        """
        if whole.damage is not None:
            return self._corrupt(whole.next_offset, whole.damage.reason)
        if not whole.batches and whole.size >= HEADER_BYTES:
            return RecordTooLargeError(
                f"{self.tp}: the batch at offset {self.position} is larger than a fetch returns",
                hint="raise max_partition_fetch_bytes and fetch_max_bytes",
            )
        return None

    def _corrupt(self, offset: int, reason: str) -> CorruptRecordError:
        """Return the error for damage at this offset. reason: what is wrong."""
        return CorruptRecordError(
            f"{self.tp}: at offset {offset}: {reason}",
            hint="seek past it to skip it",
            partition=self.tp,
            offset=offset,
        )

    @property
    def is_empty(self) -> bool:
        """Return whether there are no batches and no error."""
        return not self._waiting and self._batch is None and self._failure is None

    @property
    def is_failed(self) -> bool:
        """Return whether the batches are followed by an error."""
        return self._failure is not None

    @property
    def is_done(self) -> bool:
        """Return whether all records were returned and there is no error to raise."""
        return not self._has_left and not self._waiting and self._failure is None

    @property
    def _has_left(self) -> bool:
        """Return whether the batch that is being read has more records."""
        return self._index < len(self._records) or (self._rest is not None and self._rest.left > 0)

    @property
    def at_most(self) -> int:
        """Return an upper limit of the number of records left; how many they are is known when all are decoded."""
        here = len(self._records) - self._index + (0 if self._rest is None else self._rest.left)
        return here + sum(batch.record_count for batch in self._waiting)

    def run(self, most: int) -> list[Record]:
        """Return the next records, all of one batch; none at the end. Raises CorruptRecordError and other errors of a
        batch.
        """
        while self._index == len(self._records):
            if not (self._decode_more(max(most, _PIECE)) if self._has_left else self._open_next()):
                return []
        batch = self._batch
        assert batch is not None
        first = self._index
        found = self._records if not first and most >= len(self._records) else self._records[first : first + most]
        if self._key is not None or self._value is not None:
            found = self._deserialize(found)
        self._index = first + len(found)
        self._set_position(batch)
        return found

    def give_back(self, count: int) -> None:
        """Move the position back over the last `count` records of the latest `run`: the application does not get them
        yet.
        """
        if count and self._batch is not None:
            self._index -= count
            self._set_position(self._batch)

    def skip_hidden(self) -> None:
        """Move the position over batches without visible records, up to the next record."""
        while not self._has_left and self._waiting:
            try:
                self._open_next()
            except KafkaError:
                return  # `run` raises it again

    def _set_position(self, batch: Batch) -> None:
        """Set the position: after the last returned record, or after the batch if that was its last."""
        if not self._has_left:
            self.position, self.leader_epoch = max(self.position, batch.next_offset), batch.leader_epoch
        elif self._index:
            self.position, self.leader_epoch = self._records[self._index - 1].offset + 1, batch.leader_epoch
        elif self._records:
            self.position = self._records[0].offset

    def _open_next(self) -> bool:
        """Open the next batch, which may have no visible records. Returns False if there is none."""
        if not self._waiting:
            self._raise_failure()
            return False
        batch = self._waiting[0]
        rest = None
        with self._blaming(batch):
            if self._check_crcs:
                verify(batch)
            if not self._aborted.hides(batch):
                rest = Records(batch, *self.tp, limit=self._limit)
        self._waiting.popleft()
        self._batch, self._rest, self._records, self._index = batch, rest, [], 0
        if not self._has_left:
            self._set_position(batch)
        return True

    def _decode_more(self, most: int) -> bool:
        """Decode more records of the open batch; drops those below the position. Returns True."""
        batch, rest = self._batch, self._rest
        assert batch is not None
        assert rest is not None
        self._records, self._index = [], 0  # frees the returned records before new ones are created
        with self._blaming(batch):
            found = rest.take(most)
        if found[0].offset < self.position:
            found = [record for record in found if record.offset >= self.position]
        self._records = found
        if not self._has_left:
            self._set_position(batch)
        return True

    @contextlib.contextmanager
    def _blaming(self, batch: Batch) -> Generator[None]:
        """Turn an error in a batch into the consumer's error, with partition and offset, within the block."""
        try:
            yield
        except ClientError:
            raise
        except (KafkaError, CorruptBatch) as damage:
            if isinstance(damage, KafkaError) and damage.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise too_large(self.tp, batch, damage) from damage
            text = damage.reason if isinstance(damage, CorruptBatch) else str(damage)
            raise self._corrupt(batch.base_offset, text) from damage

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _deserialize(self, found: list[Record]) -> list[Record]:
        """Deserialize up to the first failure. Raises RecordDeserializationError if that is the first record."""
        key, value, topic = self._key, self._value, self.tp.topic
        made: list[Record] = []
        for record in found:
            what = "key"
            try:
                new_key = record.key if key is None or record.key is None else key(record.key, topic, record.headers)
                what = "value"
                if value is None or record.value is None:
                    new_value = record.value
                else:
                    new_value = value(record.value, topic, record.headers)
            except Exception as error:
                if made:
                    return made
                raise RecordDeserializationError(record, what, error) from error
            made.append(record._replace(key=new_key, value=new_value))
        return made


def too_large(tp: TopicPartition, batch: Batch, refusal: KafkaError) -> RecordTooLargeError:
    """Return the error for a batch whose records are larger than max_decompressed_bytes."""
    return RecordTooLargeError(
        f"{tp}: at offset {batch.base_offset}: {refusal}",
        hint="raise max_decompressed_bytes, or seek past it to skip it",
    )
