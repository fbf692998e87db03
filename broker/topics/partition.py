"""One partition: checks what producers send before it is appended to the log, and leader epochs.

The rule: a batch reaches the log only through `accept`, which applies the topic's limits in Kafka's order: size,
validity, keys, timestamps, codec. The producer's state is checked last, so a refused batch changes nothing anywhere.
Source: Kafka's UnifiedLog.append and LogValidator; the order matters, because it decides which error a client sees.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ...protocol import batches
from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record_scan import check_keys, outside
from ...protocol.records import recompress
from .decompression_budget import DecompressionBudget

if TYPE_CHECKING:
    from ...storage.log.partition_log import PartitionLog

NO_LEADER_EPOCH = -1  # what a client sends that does not know one
NO_TIMESTAMP = -1
FOREVER_MS = 2**63 - 1
ATTRIBUTES_AT = 22  # the low byte

# Up to here the loop itself looks into the batches of a request; into more, or into compressed ones, a worker does.
FEW_RECORDS = 2_000
BYTES_LIKE_A_RECORD = 32  # compressing this number of bytes takes as long as looking at one record
UNKNOWN_WORK = FEW_RECORDS + 1  # 1.5 KB that are compressed may hold millions of records


class NamedTopic(Protocol):
    """The attributes of a topic that its partitions use."""

    name: str
    id: bytes


@dataclass(frozen=True, slots=True)
class AppendRules:
    """A topic's rules for produced batches. Replaced by another object when the topic's configuration changes."""

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    log_append_time: bool = False  # message.timestamp.type
    timestamp_before_max_ms: int = FOREVER_MS
    timestamp_after_max_ms: int = 3_600_000
    codec: int | None = None  # compression.type; None leaves the producer's
    codec_level: int | None = None
    keys_required: bool = False  # the topic is compacted
    internal: bool = False  # written by coordinators only
    writes_refused: bool = False  # fencepost.writes.refused


class Partition:
    """A partition of a topic, with its log and the rules for what may be appended."""

    __slots__ = ("committed_only", "index", "largest_bytes", "leader_epoch", "log", "plain", "rules", "topic")

    def __init__(
        self, log: "PartitionLog", topic: NamedTopic, index: int, rules: AppendRules, leader_epoch: int = 0
    ) -> None:
        self.log = log
        self.topic = topic
        self.index = index
        self.leader_epoch = leader_epoch
        self.committed_only = False  # fencepost.isolation.level.min of its topic
        self.obey(rules)

    @property
    def appended_bytes(self) -> int:
        """The bytes appended to the log since the broker's start. A waiting fetch compares two values of it: what has
        become readable meanwhile is at most their difference.
        """
        return self.log.snapshots.taken_bytes

    def obey(self, rules: AppendRules) -> None:
        """Check appended batches by these rules from now on."""
        self.rules = rules
        self.largest_bytes = min(rules.max_message_bytes, rules.segment_bytes)
        self.plain = not (  # such a partition looks at size and header only
            rules.log_append_time
            or rules.timestamp_before_max_ms != FOREVER_MS
            or rules.codec is not None
            or rules.keys_required
            or rules.internal
            or rules.writes_refused
        )

    def check_leader_epoch(self, current: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if the client names another leader epoch (KIP-320). -1
        means none.
        """
        if current in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        older = current < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(code, f"the leader epoch is {self.leader_epoch}, not {current}")

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the largest known epoch not above `epoch`, the end offset of that epoch).

        Returns (-1, -1) for -1 or an epoch above the present one, and (epoch, 0) for one below -1. The end is the high
        watermark even for earlier epochs, because the logs of later epochs contain all that readers were shown.
        """
        if 0 <= epoch <= self.leader_epoch:
            return epoch, self.log.high_watermark
        return (epoch, 0) if epoch < NO_LEADER_EPOCH else (-1, -1)

    def check_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the partition's log is offline, because its files are damaged or missing."""
        if self.log.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the partition is offline: {self.log.offline}")

    def check_writes(self) -> None:
        """Raise POLICY_VIOLATION if the topic refuses batches.

        Called after the check for duplicates, so that a retry of a batch that is in the log is answered as one.
        """
        if self.rules.writes_refused:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"topic {self.topic.name} takes no records: fencepost.writes.refused is set"
            )

    def accept(self, produced: memoryview, wall_ms: int, budget: DecompressionBudget | None = None) -> Batch:
        """Check what a producer sent, and return the batch to append: the same bytes, unless the topic's settings
        require others.

        budget: what its request may still decompress; None: a new budget for this batch. Raises KafkaError; then
        nothing was changed.
        """
        batch = self._sound(produced)
        if not self.plain or self._is_too_far_ahead(batch, wall_ms):
            return self._accept_by_rules(batch, wall_ms, budget or DecompressionBudget(batch.size))
        return self._fitting(batch)

    def work_inside(self, produced: memoryview, wall_ms: int) -> int:
        """Return how much work accept() would have inside the batch, as a number of records: those that it would look
        at, plus as many as would take as long as compressing the batch, if it does that. 0 if it looks at the header
        only.

        More than FEW_RECORDS if that is not known before the batch is decompressed.
        """
        if not batches.HEADER_BYTES <= len(produced) <= self.largest_bytes:  # refused unread
            return 0
        rules, codec = self.rules, produced[ATTRIBUTES_AT] & batches.CODEC_BITS
        *_, base_timestamp, max_timestamp, _, _, _, count = batches.unpack_header(produced)
        recompresses = rules.codec is not None and rules.codec != codec
        looks_inside = rules.keys_required or (
            not rules.log_append_time
            and (
                rules.timestamp_before_max_ms != FOREVER_MS
                or max(base_timestamp, max_timestamp) > wall_ms + rules.timestamp_after_max_ms
            )
        )
        if not looks_inside and not recompresses:
            return 0
        if codec:
            return UNKNOWN_WORK
        return int(looks_inside) * max(int(count), 0) + int(recompresses) * (len(produced) // BYTES_LIKE_A_RECORD)

    def _sound(self, produced: memoryview) -> Batch:
        """Return the batch, after a check of its size and header. Raises KafkaError."""
        if len(produced) > self.largest_bytes:
            self._check_size(len(produced))
        batch = batches.check_produced(produced)
        if batch.buffer is not produced and (self.rules.log_append_time or batch.max_timestamp == NO_TIMESTAMP):
            raise TimestampsRefused("a producer may not set the timestamp type to LogAppendTime", [])
        return batch

    def _fitting(self, batch: Batch) -> Batch:
        """Return the batch unchanged. Raises RECORD_LIST_TOO_LARGE if it does not fit into a segment."""
        if batch.size > self.largest_bytes:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{batch.size} bytes are more than a segment may hold")
        return batch

    def _accept_by_rules(self, batch: Batch, wall_ms: int, budget: DecompressionBudget) -> Batch:
        """Check keys and timestamps, and recompress the batch or set its timestamps, as the topic's settings require.
        Returns the batch to append.
        """
        rules = self.rules
        too_far_ahead = not rules.log_append_time and self._is_too_far_ahead(batch, wall_ms)
        checks_each = not rules.log_append_time and rules.timestamp_before_max_ms != FOREVER_MS
        recompresses = rules.codec is not None and rules.codec != batch.codec
        if rules.keys_required or too_far_ahead or checks_each or recompresses:
            payload = budget.payload_of(batch)  # once, whatever it is needed for
            if rules.keys_required:
                check_keys(batch, payload)
            if too_far_ahead or checks_each:
                self._check_timestamps(batch, payload, wall_ms, too_far_ahead)
            if rules.codec is not None and recompresses:
                batch = batches.read(memoryview(recompress(batch, payload, rules.codec, rules.codec_level)))
                self._check_size(batch.size)
        if rules.log_append_time:
            batch = batches.with_log_append_time(batch, wall_ms)
        return self._fitting(batch)

    def _is_too_far_ahead(self, batch: Batch, wall_ms: int) -> bool:
        """Return whether a timestamp in the header is too far in the future.

        The base timestamp counts too, as in Kafka, because some clients leave the maximum at -1.
        """
        limit = wall_ms + self.rules.timestamp_after_max_ms
        return batch.max_timestamp > limit or batch.base_timestamp > limit

    def _check_size(self, size: int) -> None:
        """Raise KafkaError MESSAGE_TOO_LARGE for a batch of more than max.message.bytes bytes."""
        limit = self.rules.max_message_bytes
        if size > limit:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, {limit} are allowed")

    def _check_timestamps(self, batch: Batch, payload: bytes, wall_ms: int, too_far_ahead: bool) -> None:
        """Raise TimestampsRefused for records with a timestamp out of range, naming the first of them.

        too_far_ahead: the header has a time too far in the future, so the batch is refused whatever its records have.
        """
        rules = self.rules
        lowest, highest = wall_ms - rules.timestamp_before_max_ms, wall_ms + rules.timestamp_after_max_ms
        wrong, count = outside(batch, payload, lowest, highest)
        if not wrong and not too_far_ahead:
            return
        named = [
            (index, f"timestamp {stamp} is out of range: it must be in [{lowest}, {highest}]") for index, stamp in wrong
        ]
        more = f": {count} of them, of which the first {len(named)} are named" if count > len(named) else ""
        raise TimestampsRefused(f"one or more records have a timestamp that is out of range{more}", named)


class TimestampsRefused(KafkaError):
    """Raised for a batch with timestamps out of range. record_errors: (index of the record, message) of each, as in
    RecordsRefused.
    """

    def __init__(self, detail: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(ErrorCode.INVALID_TIMESTAMP, detail)
        self.record_errors = record_errors


def is_one_batch(produced: memoryview) -> bool:
    """Return whether these bytes are exactly one batch of the current format, valid or not."""
    if len(produced) < batches.HEADER_BYTES:
        return False
    _, length, _, magic, *_ = batches.HEADER.unpack_from(produced)
    return bool(magic == batches.MAGIC and length + batches.LENGTH_ENDS_AT == len(produced))


def storage_error(error: BaseException) -> KafkaError:
    """Return the error for a client whose request failed because a job on a partition's files raised this exception."""
    return error if isinstance(error, KafkaError) else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
