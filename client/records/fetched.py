"""What one fetch brought of one partition, opened batch by batch as the application reads on.

The rule: the position comes from the last offset of a batch, not of its last record, so what cleaning, markers and
aborted transactions left out is passed over and never fetched again. A damaged batch gives its error when it is
reached: what stands before it is given first, and nothing is skipped. Records are made as they are asked for, a piece
of a batch at a time. Source: Kafka's CompletedFetch.
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
"""Records made at once, or as many as are asked for: of what is soon let go, garbage collection sees nothing."""


class Fetched:
    """The batches from `offset` on. position: the next offset to read; next_offset: after all of it.

    check_crcs, limit (bytes of a batch, decompressed), key and value: as the consumer is set.
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
        self.leader_epoch, self.next_epoch = leader_epoch, whole.next_epoch  # of the record before the position
        self._aborted = AbortedFilter(aborted)
        self._check_crcs, self._limit, self._key, self._value = check_crcs, limit, key, value
        self._waiting = deque(whole.batches)
        self._batch: Batch | None = None
        self._records: list[Record] = []  # made, of which the first _index are given
        self._rest: Records | None = None  # of the same batch
        self._index = 0
        self._failure = self._failure_of(whole)

    def _failure_of(self, whole: WholeBatches) -> KafkaError | None:
        """What stands behind the whole batches, if it is an error."""
        if whole.damage is not None:
            return self._corrupt(whole.next_offset, whole.damage.reason)
        if not whole.batches and whole.size >= HEADER_BYTES:
            return RecordTooLargeError(
                f"{self.tp}: the batch at offset {self.position} is larger than a fetch returns",
                hint="raise max_partition_fetch_bytes and fetch_max_bytes",
            )
        return None

    def _corrupt(self, offset: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"{self.tp}: at offset {offset}: {reason}",
            hint="seek past it to skip it",
            partition=self.tp,
            offset=offset,
        )

    @property
    def is_empty(self) -> bool:
        """Whether it brought nothing at all."""
        return not self._waiting and self._batch is None and self._failure is None

    @property
    def is_failed(self) -> bool:
        """Whether it ends with an error."""
        return self._failure is not None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to give, not even an error."""
        return not self._has_left and not self._waiting and self._failure is None

    @property
    def _has_left(self) -> bool:
        """Whether the batch that is open has more to give."""
        return self._index < len(self._records) or (self._rest is not None and self._rest.left > 0)

    @property
    def at_most(self) -> int:
        """How many records may still come."""
        here = len(self._records) - self._index + (0 if self._rest is None else self._rest.left)
        return here + sum(batch.record_count for batch in self._waiting)

    def run(self, most: int) -> list[Record]:
        """The next records, all of one batch; none at the end. Raises: CorruptRecordError and the like."""
        while self._index == len(self._records):
            if not (self._make_more(max(most, _PIECE)) if self._has_left else self._open_next()):
                return []
        batch = self._batch
        assert batch is not None
        first = self._index
        found = self._records if not first and most >= len(self._records) else self._records[first : first + most]
        if self._key is not None or self._value is not None:
            found = self._deserialize(found)
        self._index = first + len(found)
        self._stand(batch)
        return found

    def give_back(self, count: int) -> None:
        """The last `count` records of the latest run were not given to the application after all."""
        if count and self._batch is not None:
            self._index -= count
            self._stand(self._batch)

    def skip_hidden(self) -> None:
        """Pass over what nobody is to see, up to the next record."""
        while not self._has_left and self._waiting:
            try:
                self._open_next()
            except KafkaError:
                return  # it comes again when it is read

    def _stand(self, batch: Batch) -> None:
        """Move the position behind the last record given, or behind the batch when that was its last."""
        if not self._has_left:
            self.position, self.leader_epoch = max(self.position, batch.next_offset), batch.leader_epoch
        elif self._index:
            self.position, self.leader_epoch = self._records[self._index - 1].offset + 1, batch.leader_epoch
        elif self._records:
            self.position = self._records[0].offset

    def _open_next(self) -> bool:
        """Open the next batch, whose records may be none. Returns whether there was one."""
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
            self._stand(batch)
        return True

    def _make_more(self, most: int) -> bool:
        """More records of the batch that is open, if they are not below the position. Returns True."""
        batch, rest = self._batch, self._rest
        assert batch is not None
        assert rest is not None
        self._records, self._index = [], 0  # what was given may go before there are more
        with self._blaming(batch):
            found = rest.take(most)
        if found[0].offset < self.position:
            found = [record for record in found if record.offset >= self.position]
        self._records = found
        if not self._has_left:
            self._stand(batch)
        return True

    @contextlib.contextmanager
    def _blaming(self, batch: Batch) -> Generator[None]:
        """What is wrong with a batch, as the consumer's error."""
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
        """As far as it works. Raises: RecordDeserializationError at the first record, if that one does not."""
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
    """A batch whose records are larger than what this client decompresses."""
    return RecordTooLargeError(
        f"{tp}: at offset {batch.base_offset}: {refusal}",
        hint="raise max_decompressed_bytes, or seek past it to skip it",
    )
