"""One cycle's transaction on the target: the records, where they went, and the positions after them.

The rule: the entries of the map come from the acknowledgements' offsets. A record whose offset the target did not say
fails the cycle.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ...protocol.errors import ErrorCode, KafkaError
from ..errors import AbortableTransactionError, IllegalStateError, RecordTooLargeError
from ..producer.delivery import Delivery
from ..producer.producer import Producer
from ..values import TopicPartition
from .ahead import Chunk
from .findings import StoppedError
from .names import MAP_TOPIC
from .offset_map import FULL, EntryKey, Run, add_run, encode_entry, encode_key, entries_of

_OF_THE_RECORD = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic on the target",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the topic on the target",
    ErrorCode.INVALID_TIMESTAMP: "raise message.timestamp.before.max.ms and after.max.ms of the topic on the target",
    ErrorCode.INVALID_RECORD: "the target's topic has settings that refuse it: compare both with `topic describe`",
    ErrorCode.POLICY_VIOLATION: "a rule of the target refuses it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the mirror needs the right to write to it on the target",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it was deleted on the target",
}


@dataclass(slots=True)
class Open:
    """The entry of the offset map to which a partition's next records are added. first: the offset
    in the entry's key.
    """

    first: int
    runs: list[Run] = field(default_factory=list[Run])


class Writer:
    """Writes cycles with one producer. Keeps the newest entry of the offset map of each partition, as it was written
    since the last error.
    """

    def __init__(self, mirror: str) -> None:
        self._mirror = mirror
        self._open: dict[TopicPartition, Open] = {}
        self._next: dict[TopicPartition, Open] = {}

    def forget(self) -> None:
        """Forget the newest entries of the offset map, so that others are begun: after an error nobody knows whether
        those were committed.
        """
        self._open.clear()
        self._next = {}

    async def write(self, producer: Producer, chunks: Sequence[Chunk], gone: Iterable[EntryKey]) -> None:
        """Write the chunks and their entries of the offset map into the producer's open transaction, and wait until all
        is acknowledged. gone: entries of the map to remove.

        Raises StoppedError for a record that the target does not take.
        """
        sent: list[list[Delivery]] = []
        try:
            for chunk in chunks:
                sent.append([])
                await self._send(producer, chunk, sent[-1])
            await producer.flush()
        except AbortableTransactionError:
            _find_refused(chunks, sent)
            raise
        self._next = {}
        for chunk, deliveries in zip(chunks, sent, strict=True):
            if chunk.records:
                await self._map(producer, chunk, deliveries)
        await self.remove(producer, gone)

    async def remove(self, producer: Producer, gone: Iterable[EntryKey]) -> None:
        """Send tombstones of these entries of the offset map, in the producer's open transaction."""
        for key in gone:
            await producer.send(MAP_TOPIC, None, encode_key(key), partition=0)

    async def _send(self, producer: Producer, chunk: Chunk, deliveries: list[Delivery]) -> None:
        """Send the records of a chunk, as they are. Appends a delivery for each. Raises StoppedError for a record that
        the target does not take.
        """
        topic, partition = chunk.tp
        send = producer.send
        for record in chunk.records:
            if record.timestamp_ms < 0:
                raise StoppedError(topic, f"the record at offset {record.offset} of {chunk.tp} has no timestamp")
            try:
                delivery = await send(
                    topic, record.value, record.key, partition, record.timestamp_ms, record.headers or None
                )
            except RecordTooLargeError as error:
                raise _refused(chunk, record.offset, error) from error
            deliveries.append(delivery)

    async def _map(self, producer: Producer, chunk: Chunk, deliveries: list[Delivery]) -> None:
        """Send the partition's newest entry of the offset map, to which the chunk's records are added. Raises
        StoppedError for a record that the target does not take.
        """
        open_ = self._open.get(chunk.tp) or Open(chunk.first)
        runs = list(open_.runs)
        try:
            for run in _runs(chunk, deliveries):
                add_run(runs, *run)
        except KafkaError:
            _find_refused([chunk], [deliveries])
            raise
        for first, entry in entries_of(open_.first, chunk.following.offset, runs):
            key = EntryKey(self._mirror, chunk.tp.topic, chunk.following.topic_id, chunk.tp.partition, first)
            await producer.send(MAP_TOPIC, encode_entry(first, entry), encode_key(key), partition=0)
            self._next[chunk.tp] = Open(first, list(entry.runs))

    def committed(self) -> None:
        """Note that the last cycle is committed: its entries of the offset map are extended by the next one, unless
        they are full.
        """
        self._open |= self._next
        self._open = {tp: open_ for tp, open_ in self._open.items() if len(open_.runs) < FULL}
        self._next = {}


def _runs(chunk: Chunk, deliveries: Sequence[Delivery]) -> Iterator[Run]:
    """Yield the runs of a chunk whose records were all sent: one ends where the next record does not follow on both
    sides. Raises the error of a delivery, IllegalStateError.
    """
    source = target = count = 0  # of the run so far
    for record, delivery in zip(chunk.records, deliveries, strict=True):
        offset = delivery.result().offset
        if offset < 0:
            raise IllegalStateError(f"the target did not say where the record at offset {record.offset} went")
        if count and record.offset == source + count and offset == target + count:
            count += 1
            continue
        if count:
            yield Run(source, target, count)
        source, target, count = record.offset, offset, 1
    if count:
        yield Run(source, target, count)


def _find_refused(chunks: Sequence[Chunk], sent: Sequence[Sequence[Delivery]]) -> None:
    """Raise StoppedError for the first record that the target does not take. sent: the deliveries of each chunk, as far
    as it was sent: the refusal of one record fails whatever is sent after it.
    """
    for chunk, deliveries in zip(chunks, sent, strict=False):
        for record, delivery in zip(chunk.records, deliveries, strict=False):
            error = delivery.exception() if delivery.done() else None
            if isinstance(error, KafkaError) and error.code in _OF_THE_RECORD:
                raise _refused(chunk, record.offset, error) from error


def _refused(chunk: Chunk, offset: int, error: KafkaError) -> StoppedError:
    """Return the error for a record that the target does not take. offset: on the source."""
    hint = f"{_OF_THE_RECORD[error.code]}; then start the mirror again" if error.code in _OF_THE_RECORD else ""
    return StoppedError(chunk.tp.topic, f"the target does not take a record at offset {offset}: {error}", hint=hint)
