"""The sequences of a named producer: which records are sent, and which are in the log already.

The application numbers its records, upwards in each partition; the broker keeps the highest number of each name and
partition for good. It is read when a topic is first used, so what is at or below it never becomes part of a batch, and
no batch is written in part. One request is in flight, so that a batch which is sent again cannot come after a later
one. A batch that fails ends the producer: what follows it would raise the highest above records that were not written.
A topic that was deleted and created again ends it as well: what is known of the former one is not in the present one.
Source: docs/apis.md.
"""

import asyncio
from functools import partial

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.named_producers import ANEW, OpenNamedProducerRequest, OpenNamedProducerResponse
from ...protocol.messages.produce import ProducerName
from ...protocol.primitives import ZERO_UUID
from ..errors import IllegalStateError, UnknownTopicError, error_of
from ..net.cluster import Cluster
from ..partitioner import Placing, partition_of
from ..settings import ProducerSettings
from ..values import Headers, RecordMetadata, TopicPartition, WrittenBefore
from .batching import Batch, Partition, Topic
from .send_permission import PlainPermission
from .sender import Sender

NOTHING = -1
Taken = tuple[bytes | None, bytes | None, Headers | None, int]
"""Key, value, headers and time of a record."""


def checked_sequence(sequence: object) -> int:
    """Return the sequence if it is an int from 0 to 2**63 - 1. Raises TypeError or ValueError for anything else."""
    if not isinstance(sequence, int) or isinstance(sequence, bool):
        raise TypeError(f"a record of a named producer has a sequence, an int, not {type(sequence).__name__}")
    if not 0 <= sequence < 1 << 63:
        raise ValueError(f"sequence={sequence} is out of range: 0 to 2**63 - 1")
    return sequence


class Repeated(Batch):
    """Stands for one record that is not sent, because a record with its sequence was sent before."""

    __slots__ = ()

    def metadata(self, index: int) -> RecordMetadata:
        """Return the metadata of the record at this index, whose offset is not known: -1. Raises the error with which
        the repetition failed.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        topic, partition = self.partition.topic_partition
        return WrittenBefore(topic, partition, -1, self.timestamps[0])


class Progress:
    """How far one partition of a named producer has come.

    last: the sequence of the newest record that `send` took. highest: the highest sequence in the partition's log.
    newest: the batch with the newest record.
    """

    __slots__ = ("highest", "last", "newest", "partition")

    def __init__(self, partition: Partition, highest: int) -> None:
        self.partition = partition
        self.highest = self.last = highest
        self.newest: Batch | None = None  # with the newest record

    def took(self, batch: Batch, sequence: int) -> None:
        """Note that a record with this sequence was appended to the batch."""
        if not batch.numbers:
            batch.on_done.append(partial(self._written, batch))
        batch.numbers.append(sequence)
        self.last, self.newest = sequence, batch

    def _written(self, batch: Batch) -> None:
        """Raise `highest` to the last sequence of this batch, if it was written."""
        if batch.error is None:
            self.highest = max(self.highest, batch.numbers[-1])

    def written_before(self, timestamp_ms: int) -> Repeated:
        """Return the placeholder batch for a record whose sequence is at or below `last`. It is done when the batch
        with the newest record is, and fails with that batch's error.
        """
        repeated = Repeated(self.partition, 0, 0)
        repeated.timestamps.append(timestamp_ms)
        newest = self.newest
        if newest is None or newest.done:
            repeated.finish(None if newest is None else newest.error)
        else:
            newest.is_awaited = True
            newest.on_done.append(lambda: repeated.finish(newest.error))
        return repeated


def numbering_of(numbering: "Numbering | None") -> "Numbering":
    """Return the producer's numbering. Raises IllegalStateError for a producer without a name."""
    if numbering is None:
        raise IllegalStateError("only a named producer has sequences", hint="Producer(…, name=…)")
    return numbering


class Numbering(PlainPermission):
    """The name of one producer, and its progress in each partition. turn: a lock, held by one `send` at a time."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, sender: Sender) -> None:
        super().__init__(cluster, settings, go_on=sender.go_on, on_fatal=sender.drop_unsent)
        assert settings.name is not None
        self.turn = asyncio.Lock()
        self._name = settings.name
        self._epoch = ANEW
        self._counts: dict[str, int] = {}  # of each topic that was opened, how many partitions it has
        self._ids: dict[str, set[bytes]] = {}  # of each topic that was opened, its id, and that in the metadata then
        self._opened: dict[TopicPartition, int] = {}  # the highest sequence when its topic was opened
        self._progress: dict[TopicPartition, Progress] = {}
        self._error: KafkaError | None = None

    @property
    def producer(self) -> ProducerName | None:
        return ProducerName(name=self._name, epoch=self._epoch)

    def failed(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """Stop the producer with this error: a batch was not written, so no later record may be sent."""
        if self._error is None:
            self._error = error.with_traceback(None)
            self._on_fatal(self._error)

    def check(self) -> None:
        """Raise the error that has ended the producer."""
        if self._error is not None:
            raise self._error.with_traceback(None)

    async def open(self) -> None:
        """Register the producer's name with the broker and take its new epoch; that fences an earlier producer of the
        name. Raises UnsupportedVersionError if the broker is not fencepost.
        """
        self._epoch = (await self._ask(OpenNamedProducerRequest(name=self._name))).epoch

    async def open_topic(self, topic: str, count: int) -> None:
        """Fetch the name's highest sequence in each partition of the topic from the broker, at the first call and
        whenever `count` has changed. count: how many partitions the topic has.

        Raises UnknownTopicError, and ends the producer, if the topic was deleted and created again since.
        """
        listed = self._cluster.metadata.topic_id(topic)
        self._check_same(topic, listed)
        if self._counts.get(topic) == count:
            return
        asked = OpenNamedProducerRequest.Topic(name=topic, partition_count=count)
        (found,) = (
            await self._ask(OpenNamedProducerRequest(name=self._name, epoch=self._epoch, topics=[asked]))
        ).topics
        if found.error_code:
            raise error_of(found.error_code, f"topic {topic!r}: {found.error_message or ''}")
        self._check_same(topic, found.topic_id)
        self._ids.setdefault(topic, {listed, found.topic_id})
        self._opened |= {TopicPartition(topic, each.index): each.highest for each in found.partitions}
        self._counts[topic] = count

    def _check_same(self, topic: str, topic_id: bytes) -> None:
        """Raise UnknownTopicError, and end the producer, if the topic was opened with another id than this."""
        opened = self._ids.get(topic)
        if opened is not None and topic_id not in opened and topic_id != ZERO_UUID:
            text = f"topic {topic!r} was deleted and created again since this producer opened it"
            hint = "create another producer with the same name, and send what last_sequences() of it does not have"
            self.failed(TopicPartition(topic, 0), UnknownTopicError(text, code=ErrorCode.UNKNOWN_TOPIC_ID, hint=hint))
            self.check()

    async def _ask(self, request: OpenNamedProducerRequest) -> OpenNamedProducerResponse:
        """Send OpenNamedProducer until it succeeds, within default_api_timeout_ms. Returns the response."""
        timeout_ms = self._settings.default_api_timeout_ms
        response: OpenNamedProducerResponse = await self._cluster.ask_until(
            "any", request, verdict=_code_of_answer, timeout_ms=timeout_ms
        )
        return response

    def partition_of(self, topic: Topic, record: Taken, placing: Placing | None) -> int | None:
        """Return the partition for the record's key; placing: the producer's own partitioner, None for the default.
        Raises ValueError for a record without a key: sent again, it could go to another partition.
        """
        key = record[0]
        if key is None:
            raise ValueError("a record of a named producer needs a key or a partition: sent again, it must go there")
        index = None if placing is None else placing(key, topic.count, topic.available)
        return partition_of(key, topic.count) if index is None else index

    def repeated(self, partition: Partition, sequence: object, record: Taken) -> Repeated | None:
        """Return the placeholder for a record whose sequence was sent or written before; None for a new record. Raises
        TypeError or ValueError for a wrong sequence.
        """
        number, progress = checked_sequence(sequence), self._progress_of(partition)
        return progress.written_before(record[-1]) if number <= progress.last else None

    def took(self, batch: Batch, sequence: int) -> None:
        """Note that the batch has one more record, with this sequence."""
        self._progress_of(batch.partition).took(batch, sequence)

    async def last_sequences(self, topic: str, count: int) -> dict[int, int]:
        """Return the highest written sequence of each partition of the topic that has one, by partition number. count:
        how many partitions the topic has.
        """
        await self.open_topic(topic, count)
        known = {place: highest for place, highest in self._opened.items() if place.topic == topic}
        known |= {place: each.highest for place, each in self._progress.items() if place.topic == topic}
        return {place.partition: highest for place, highest in sorted(known.items()) if highest != NOTHING}

    def _progress_of(self, partition: Partition) -> Progress:
        """Return the progress of this partition; if there is none yet, begin it with what the broker answered when the
        name was opened.
        """
        place = partition.topic_partition
        found = self._progress.get(place)
        if found is None:
            found = self._progress[place] = Progress(partition, self._opened.get(place, NOTHING))
        return found


def _code_of_answer(answer: OpenNamedProducerResponse) -> int:
    return answer.error_code
