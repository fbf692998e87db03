"""Record batches of format v2, whose bytes stay the same from the producer to the disk and to the consumer.

A batch is opaque bytes except its 61-byte header. Placing one in a log rewrites only the first 16 bytes (base offset,
length, leader epoch), which the CRC does not cover; everything from byte 16 on is written as the client sent it. `read`
trusts nothing but checks no CRC; `verify` checks that; `check_produced` is all a broker demands of a client. Source:
Kafka's DefaultRecordBatch, LogValidator and ProduceRequest.validateRecords; KIP-98.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError

from crc32c import crc32c

from .errors import ErrorCode, KafkaError

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_ENDS_AT = 12  # batch_length counts the bytes from here on
MAGIC_AT = 16
KEPT_TIMES = 4  # its size, that a batch may keep in memory, as parts of a chunk do (framing)
KEPT_BESIDE_BYTES = 4096  # and this: smaller requests are never worth a copy
CRC_COVERS_FROM = 21
MAGIC = 2
LEAST_BYTES_OF_ANY_MAGIC = LENGTH_ENDS_AT + 14  # what a message of magic 0 has before its key
HIGHEST_CODEC = 4
SMALLEST_RECORD_BYTES = 7  # one byte each: length, attributes, two deltas, key and value length, header count

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
_WATCHED_BITS = CONTROL_BIT | DELETE_HORIZON_BIT | 0x04  # bit 2 is set by zstd (4) and by every number that is no codec

SEQUENCE_MASK = 0x7FFF_FFFF  # after 2**31 - 1 comes 0

_HEAD = Struct(">qii")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_CRC_MISMATCH = "the CRC of the batch does not match"
unpack_header = HEADER.unpack_from
pack_head = _HEAD.pack  # base offset, size without LENGTH_ENDS_AT, leader epoch: the bytes that a log rewrites
_new_object = object.__new__


class CorruptBatch(Exception):
    """Raised for bytes that are not a valid batch. position: where the batch begins in the bytes that were read."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason}, in the batch at byte {position}")
        self.position = position
        self.reason = reason


class Batch:
    """The header of one batch, with the bytes of all of it in `buffer`.

    The log sets its base offset and leader epoch; `buffer` keeps the original bytes, and stamp_header() returns the 16
    bytes that replace the first ones.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )
    buffer: memoryview
    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record, which wraps around after 2**31 - 1; -1 for a
        batch without sequences.
        """
        if self.base_sequence < 0:
            return -1
        return self.base_sequence + self.last_offset_delta & SEQUENCE_MASK

    @property
    def codec(self) -> int:
        """Return the number of the compression codec; 0 for none."""
        return self.attributes & CODEC_BITS

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Return whether it is a control batch, such as a transaction marker."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return from which time on compaction may drop this batch's tombstones and markers; None if that is not set
        (KIP-534).

        It is stored in the base timestamp.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__ if name != "buffer")
        return f"Batch({fields})"


def _parse(buffer: memoryview, position: int) -> Batch:
    """Parse the header at `position` without any check. Raises struct.error if fewer than 61 bytes are left."""
    batch: Batch = _new_object(Batch)
    (
        batch.base_offset,
        batch.size,
        batch.leader_epoch,
        batch.magic,
        batch.crc,
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    ) = unpack_header(buffer, position)
    batch.size += LENGTH_ENDS_AT
    return batch


def read(buffer: memoryview, position: int = 0) -> Batch:
    """Parse the batch that begins at `position`. More bytes may follow it. Raises CorruptBatch if it is invalid or cut
    short.

    The CRC is not checked; see verify().
    """
    try:
        batch = _parse(buffer, position)
    except StructError:
        raise CorruptBatch(position, f"{max(0, len(buffer) - position)} bytes are too few for a header") from None
    size = batch.size
    if batch.magic != MAGIC:
        raise CorruptBatch(position, f"magic is {batch.magic}, not {MAGIC}")
    if size < HEADER_BYTES:
        raise CorruptBatch(position, f"its size of {size} bytes is less than its header's {HEADER_BYTES}")
    end = position + size
    if end > len(buffer):
        raise CorruptBatch(position, f"its length says {size} bytes, {len(buffer) - position} are there")
    if batch.base_offset < 0 or not 0 <= batch.record_count <= batch.last_offset_delta + 1:
        raise CorruptBatch(
            position,
            f"offset {batch.base_offset}, {batch.record_count} records and last offset delta {batch.last_offset_delta}"
            " do not go together",
        )
    batch.buffer = buffer if position == 0 and end == len(buffer) else buffer[position:end]
    return batch


def batch_of(buffer: memoryview) -> Batch:
    """Parse a buffer that contains exactly one batch, without checks: for code that has just encoded it."""
    batch = _parse(buffer, 0)
    batch.buffer = buffer
    return batch


def walk(buffer: memoryview, position: int = 0) -> Iterator[Batch]:
    """Yield the batches from `position` to the end of `buffer`. Raises CorruptBatch at the first invalid one."""
    end = len(buffer)
    while position < end:
        batch = read(buffer, position)
        yield batch
        position += batch.size


def verify(batch: Batch) -> None:
    """Check the batch's CRC. Raises CorruptBatch, with position 0: relative to the batch."""
    if crc32c(batch.buffer[CRC_COVERS_FROM:]) != batch.crc:
        raise CorruptBatch(0, _CRC_MISMATCH)


def check_produced(records: memoryview) -> Batch:
    """Check that a partition's bytes in a Produce request are exactly one v2 batch, and return it.

    The header is checked; the records inside are not. The order of the checks is Kafka's, so that a batch with two
    faults gets the same error. A batch with the bit for log append time counts as CreateTime, as in Kafka. Raises
    KafkaError INVALID_RECORD, CORRUPT_MESSAGE or INVALID_PRODUCER_EPOCH.
    """
    try:
        batch = _parse(records, 0)
    except StructError:
        raise _unacceptable_frame(records) from None
    if batch.magic != MAGIC or batch.size != len(records):
        raise _unacceptable_frame(records)
    if batch.base_offset != 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the base offset must be 0, not {batch.base_offset}")
    if crc32c(records[CRC_COVERS_FROM:]) != batch.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, _CRC_MISMATCH)
    attributes = batch.attributes
    count = batch.record_count
    if count <= 0 or batch.last_offset_delta != count - 1 or attributes & _WATCHED_BITS:
        _check_records(batch)
    if attributes & CODEC_BITS == 0 and count * SMALLEST_RECORD_BYTES > batch.size - HEADER_BYTES:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{count} records cannot fit into {batch.size} bytes")
    if batch.producer_id >= 0:
        if batch.base_sequence < 0 or batch.producer_epoch < 0:
            raise _unacceptable_producer(batch)
    elif attributes & TRANSACTIONAL_BIT:
        raise _unacceptable_producer(batch)
    batch.buffer = records
    return _with_timestamp_type(batch, False, batch.max_timestamp) if attributes & LOG_APPEND_TIME_BIT else batch


def _unacceptable_frame(records: memoryview) -> KafkaError:
    """Return the error for bytes that are not exactly one v2 batch: the one that Kafka would choose."""
    present = len(records)
    size = _LENGTH.unpack_from(records, 8)[0] + LENGTH_ENDS_AT if present >= LENGTH_ENDS_AT else None
    if size is not None and size < LEAST_BYTES_OF_ANY_MAGIC:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes would be less than a header")
    if size is None or present <= MAGIC_AT:
        return KafkaError(ErrorCode.INVALID_RECORD, "a partition must carry one whole record batch")
    magic = records[MAGIC_AT]
    if magic > MAGIC:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{magic} is no magic number of a batch")
    if magic < MAGIC:
        return KafkaError(ErrorCode.INVALID_RECORD, f"only batches of magic {MAGIC} are accepted, not {magic}")
    if size < HEADER_BYTES:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes would be less than a header")
    if size > present:
        return KafkaError(ErrorCode.INVALID_RECORD, f"the batch announces {size} bytes, {present} came")
    if crc32c(records[CRC_COVERS_FROM:size]) != _CRC.unpack_from(records, 17)[0]:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, _CRC_MISMATCH)
    return KafkaError(ErrorCode.INVALID_RECORD, "a partition must carry exactly one record batch")


def _check_records(batch: Batch) -> None:
    """Raise INVALID_RECORD if a produced batch's record count or attributes are not allowed."""
    if batch.record_count <= 0 or batch.last_offset_delta != batch.record_count - 1:
        reason = f"{batch.record_count} records do not go with a last offset delta of {batch.last_offset_delta}"
    elif batch.is_control:
        reason = "clients may not write control records"
    elif batch.attributes & DELETE_HORIZON_BIT:
        reason = "the delete horizon is the cleaner's to set"
    elif batch.codec > HIGHEST_CODEC:
        reason = f"{batch.codec} is no codec"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_RECORD, reason)


def _unacceptable_producer(batch: Batch) -> KafkaError:
    """Return the error for a batch whose producer id, epoch or sequence is invalid."""
    if not batch.has_producer:
        return KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch must have a producer id")
    if batch.base_sequence < 0:
        return KafkaError(
            ErrorCode.INVALID_RECORD, f"sequence {batch.base_sequence} of producer id {batch.producer_id} is negative"
        )
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {batch.producer_epoch} of producer id {batch.producer_id} is negative"
    )


def stamp_header(batch: Batch, base_offset: int, leader_epoch: int = 0) -> bytes:
    """Return bytes 0 to 15 of the batch as in the log: base offset, length, leader epoch. after_header() has the
    rest.
    """
    return pack_head(base_offset, batch.size - LENGTH_ENDS_AT, leader_epoch)


def after_header(batch: Batch) -> bytes | memoryview:
    """Return the batch from byte 16 on: a view, or a copy if a view would keep too much memory in use.

    A view keeps all of the request that it is a part of: 40 MB for a batch of 1 KB, if all else in it was refused.
    """
    rest = batch.buffer[16:]
    whole = rest.obj
    if isinstance(whole, bytes) and len(whole) > KEPT_TIMES * len(rest) + KEPT_BESIDE_BYTES:
        return bytes(rest)
    return rest


def with_log_append_time(batch: Batch, now_ms: int) -> Batch:
    """Return a copy of the batch with log append time: every record then has the timestamp now_ms."""
    return _with_timestamp_type(batch, True, now_ms)


def _with_timestamp_type(batch: Batch, log_append_time: bool, max_timestamp: int) -> Batch:
    """Return a copy with this timestamp type (attribute bit 3) and max timestamp, and a new CRC."""
    attributes = batch.attributes | LOG_APPEND_TIME_BIT if log_append_time else batch.attributes & ~LOG_APPEND_TIME_BIT
    changed = bytearray(batch.buffer)
    _ATTRIBUTES.pack_into(changed, 21, attributes)
    _MAX_TIMESTAMP.pack_into(changed, 35, max_timestamp)
    _CRC.pack_into(changed, 17, crc32c(memoryview(changed)[CRC_COVERS_FROM:]))
    result = read(memoryview(bytes(changed)))
    result.base_offset, result.leader_epoch = batch.base_offset, batch.leader_epoch
    return result
