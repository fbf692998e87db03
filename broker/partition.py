"""One partition as its leader sees it: what lies between a handler and the log.

The rule: a batch reaches the log only through `accept`, which applies the topic's limits in Kafka's order: size,
soundness, keys, timestamps, codec. The producer state is asked last. So a refused batch leaves no trace anywhere.
Source: Kafka's UnifiedLog.append and LogValidator; the order matters, because it decides which error a client sees.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..protocol import batches
from ..protocol.batches import Batch
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import check_keys, recompressed, records

if TYPE_CHECKING:
    from ..storage.log import PartitionLog
    from .topics import Topic

NO_LEADER_EPOCH = -1  # what a client sends that does not know one
NO_TIMESTAMP = -1  # a record without one passes every check of timestamps
FOREVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AppendRules:
    """What a topic demands of the batches produced to it. Replaced whole when its configuration changes."""

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    log_append_time: bool = False  # message.timestamp.type
    timestamp_before_max_ms: int = FOREVER_MS
    timestamp_after_max_ms: int = 3_600_000
    codec: int | None = None  # compression.type; None leaves the producer's
    codec_level: int | None = None
    keys_required: bool = False  # the topic is compacted
    internal: bool = False  # written by coordinators only


class Partition:
    """A partition of a topic, over the log that holds it."""

    __slots__ = ("appended_bytes", "index", "largest_bytes", "leader_epoch", "log", "plain", "rules", "topic")

    def __init__(
        self, log: "PartitionLog", topic: "Topic", index: int, rules: AppendRules, leader_epoch: int = 0
    ) -> None:
        self.log = log
        self.topic = topic
        self.index = index
        self.leader_epoch = leader_epoch
        self.appended_bytes = 0  # since the start: how much a fetch that waits for more may have got at most
        self.obey(rules)

    def obey(self, rules: AppendRules) -> None:
        """From now on these rules."""
        self.rules = rules
        self.largest_bytes = min(rules.max_message_bytes, rules.segment_bytes)
        self.plain = not (  # such a partition looks at size and header only
            rules.log_append_time
            or rules.timestamp_before_max_ms != FOREVER_MS
            or rules.codec is not None
            or rules.keys_required
            or rules.internal
        )

    def check_leader_epoch(self, current: int) -> None:
        """Refuse a client that knows another epoch of this partition (KIP-320)."""
        if current in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        older = current < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(code, f"the leader epoch is {self.leader_epoch}, not {current}")

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` that this partition knows, and the offset after its last record.

        (-1, -1) for an epoch that is still to come. There is one epoch, which goes on: its end is the high watermark.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.high_watermark
        return (epoch, 0) if epoch < NO_LEADER_EPOCH else (-1, -1)

    def check_online(self) -> None:
        """Refuse what needs the log of a partition whose files are damaged or gone."""
        if self.log.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the partition is offline: {self.log.offline}")

    def accept(self, produced: memoryview, wall_ms: int) -> Batch:
        """Check what a producer sent, and make of it the batch to be appended: the same bytes unless a rule says else.

        Raises: KafkaError; nothing was changed.
        """
        rules = self.rules
        if len(produced) > self.largest_bytes:
            self._check_size(len(produced))
        batch = batches.check_produced(produced)
        if batch.buffer is not produced and (rules.log_append_time or batch.max_timestamp == NO_TIMESTAMP):
            raise TimestampsRefused("a producer may not set the timestamp type to LogAppendTime", [])
        if not self.plain:
            return self._accept_by_rules(batch, wall_ms)
        if batch.max_timestamp - wall_ms > rules.timestamp_after_max_ms:
            raise self._out_of_range(batch, wall_ms)
        if batch.size > self.largest_bytes:
            raise _beyond_a_segment(batch.size)
        return batch

    def _accept_by_rules(self, batch: Batch, wall_ms: int) -> Batch:
        rules = self.rules
        if rules.keys_required:
            check_keys(batch)
        if not rules.log_append_time:
            self._check_timestamps(batch, wall_ms)
        if rules.codec is not None and rules.codec != batch.codec:
            batch = batches.read(memoryview(recompressed(batch, rules.codec, rules.codec_level)))
            self._check_size(batch.size)
        if rules.log_append_time:
            batch = batches.with_log_append_time(batch, wall_ms)
        if batch.size > self.largest_bytes:
            raise _beyond_a_segment(batch.size)
        return batch

    def _check_timestamps(self, batch: Batch, wall_ms: int) -> None:
        rules = self.rules
        if batch.max_timestamp - wall_ms > rules.timestamp_after_max_ms:
            raise self._out_of_range(batch, wall_ms)
        if rules.timestamp_before_max_ms != FOREVER_MS:
            oldest = wall_ms - rules.timestamp_before_max_ms
            if any(record.timestamp < oldest and record.timestamp != NO_TIMESTAMP for record in records(batch)):
                raise self._out_of_range(batch, wall_ms)

    def _check_size(self, size: int) -> None:
        limit = self.rules.max_message_bytes
        if size > limit:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes, where {limit} are allowed")

    def _out_of_range(self, batch: Batch, wall_ms: int) -> KafkaError:
        rules = self.rules
        lowest, highest = wall_ms - rules.timestamp_before_max_ms, wall_ms + rules.timestamp_after_max_ms
        stamps = [record.timestamp for record in records(batch)]
        wrong = [
            (index, f"timestamp {stamp} is out of range: it must be in [{lowest}, {highest}]")
            for index, stamp in enumerate(stamps)
            if not lowest <= stamp <= highest and stamp != NO_TIMESTAMP
        ]
        return TimestampsRefused("one or more records have a timestamp that is out of range", wrong)


class TimestampsRefused(KafkaError):
    """A batch with timestamps that the topic does not take; record_errors as in RecordsRefused."""

    def __init__(self, detail: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(ErrorCode.INVALID_TIMESTAMP, detail)
        self.record_errors = record_errors


def _beyond_a_segment(size: int) -> KafkaError:
    return KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes are more than a segment may hold")


def is_one_batch(produced: memoryview) -> bool:
    """Whether these bytes are exactly one batch of the format in use, sound or not."""
    if len(produced) < batches.HEADER_BYTES:
        return False
    _, length, _, magic, *_ = batches.HEADER.unpack_from(produced)
    return bool(magic == batches.MAGIC and length + batches.LENGTH_ENDS_AT == len(produced))


def storage_error(error: BaseException) -> KafkaError:
    """What a client is told of a job on a partition's files that did not end well."""
    return error if isinstance(error, KafkaError) else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
