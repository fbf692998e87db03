"""The fast path of Produce, for the most frequent request: one batch for one partition of one topic.

The rule: it may only do what handlers/produce.py would have done. If anything is out of the ordinary, it does nothing
and returns False, and the request takes the general path. Each condition below names the rule of the general path that
it replaces. The bytes before the partition's index are nearly always the same as in the client's previous request, so
they are parsed once (a Route) and then only compared. The same tests run for both paths (tests/broker/requests).
"""

import struct
from struct import Struct

from crc32c import crc32c

from ...protocol.apis import APIS
from ...protocol.batches import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    HIGHEST_CODEC,
    LENGTH_ENDS_AT,
    MAGIC,
    SMALLEST_RECORD_BYTES,
    TRANSACTIONAL_BIT,
    unpack_header,
)
from ...protocol.errors import MalformedFrame
from ...protocol.headers import read_request_header
from ...protocol.primitives import Readable, read_uvarint, uvarint
from ...storage.journal.journal import UnitRefused
from ..net.connection import PRODUCE, Connection
from ..security.principals import Session
from ..topics.partition import Partition
from .services import Services

OLDEST = 7  # before, clients may not send zstd
NEWEST = min(APIS[0].max, 12)  # after, topics have no names
FLEXIBLE = 9
ACKS = (-1, 1)
ORDINARY_FAULTS = (MalformedFrame, LookupError, ValueError, struct.error)
CORRELATION_ID_ENDS_AT = 8

_acks_and_timeout = Struct(">hi").unpack_from
_count = Struct(">i").unpack_from
_short = Struct(">h").unpack_from
_plain_beginning = Struct(">hiih").unpack_from  # acks, timeout, topics, length of a name
_PLAIN_BEGINNING_BYTES = 12
_NO_TAGS = b"\x00\x00\x00"  # after the partition, the topic and the request


class Route:
    """What equal Produce requests of a connection have in common: all bytes except the correlation id, the partition
    and the batch; and how the answer is encoded.
    """

    __slots__ = (
        "allowed_to",
        "begins_with",
        "client_id",
        "flexible",
        "goes_on_with",
        "name",
        "pack",
        "prefix",
        "size",
        "start",
        "suffix",
        "transaction_bit",
        "transactional_id",
        "unpack",
        "version",
    )

    def __init__(
        self, frame: Readable, version: int, client_id: str, transactional_id: str | None, name: str, start: int
    ) -> None:
        self.allowed_to: tuple[Session, int] | None = None  # by which version of the rules of access
        self.version = version
        self.transactional_id = transactional_id
        self.transaction_bit = 0 if transactional_id is None else TRANSACTIONAL_BIT
        self.begins_with = version  # and the API's key before it, which is 0
        self.goes_on_with = bytes(frame[CORRELATION_ID_ENDS_AT:start])
        self.start = start  # the position of the partition's index
        self.client_id = client_id
        self.name = name
        self.flexible = version >= FLEXIBLE
        text = name.encode()
        if self.flexible:
            self.prefix = b"\x00\x02" + uvarint(len(text) + 1) + text + b"\x02"
            self.suffix = b"\x01\x00\x00\x00\x00\x00\x00\x00\x00"  # no record errors, no message, tags, throttle, tags
        else:
            self.prefix = b"\x00\x00\x00\x01" + struct.pack(">h", len(text)) + text + b"\x00\x00\x00\x01"
            self.suffix = b"\x00\x00\x00\x00\xff\xff\x00\x00\x00\x00" if version >= 8 else b"\x00\x00\x00\x00"
        varies = "iBB" if self.flexible else "ii"  # index, and the first bytes of the records' length or all of it
        self.unpack = Struct(f">Ii{start - CORRELATION_ID_ENDS_AT}x{varies}").unpack_from
        layout = Struct(f">ii{len(self.prefix)}sihqqq{len(self.suffix)}s")
        self.pack = layout.pack
        self.size = layout.size - 4


def find_route(frame: Readable) -> Route | None:
    """Parse a Produce request up to the index of its partition.

    Returns None if it does not have the ordinary form. Raises IndexError, struct.error, MalformedFrame or
    UnicodeDecodeError if it ends too early or is malformed.
    """
    header = read_request_header(frame)
    if not OLDEST <= header.api_version <= NEWEST:
        return None
    read = _read_flexible if header.api_version >= FLEXIBLE else _read_plain
    transactional, acks, topics, name, partitions, position = read(frame, header.position)
    if acks not in ACKS or topics != 1 or partitions != 1:
        return None
    transactional_id = None if transactional is None else str(transactional, "utf-8")
    return Route(frame, header.api_version, header.client_id, transactional_id, str(name, "utf-8"), position)


Beginning = tuple[Readable | None, int, int, Readable, int, int]
"""Transactional id, acks, number of topics, the first one's name, number of its partitions, position."""


def _read_flexible(frame: Readable, position: int) -> Beginning:
    """Parse the beginning of a flexible version.

    Returns transactional id (None or bytes), acks, number of topics, topic name, number of partitions, and the position
    after these.
    """
    length, position = read_uvarint(frame, position)
    transactional = frame[position : position + length - 1] if length else None
    position += max(0, length - 1)
    acks, _ = _acks_and_timeout(frame, position)
    topics, position = read_uvarint(frame, position + 6)
    length, position = read_uvarint(frame, position)
    after = position + length - 1
    partitions, end = read_uvarint(frame, after)
    return transactional, acks, topics - 1, frame[position:after], partitions - 1, end


def _read_plain(frame: Readable, position: int) -> Beginning:
    """Parse the beginning of a version that is not flexible. Returns the same as _read_flexible()."""
    (length,) = _short(frame, position)
    position += 2
    transactional = frame[position : position + length] if length >= 0 else None
    position += max(0, length)
    acks, _, topics, name_length = _plain_beginning(frame, position)
    position += _PLAIN_BEGINNING_BYTES
    after = position + name_length
    (partitions,) = _count(frame, after)
    return transactional, acks, topics, frame[position:after], partitions, after + 4


class FastProduce:
    """Serves Produce requests of the ordinary form, for one broker."""

    def __init__(self, broker: Services) -> None:
        self._topics = broker.topics.by_name
        self._admission = broker.admission
        self._now_ms = broker.clock.now_ms
        self._store = broker.store
        self._requests = broker.metrics.fast_requests
        self._throttling = broker.throttling
        self._measures = broker.throttling.measures
        self._turn = -1
        self._wall_ms = 0  # as of this turn's first request

    def serve(self, connection: Connection, frame: Readable) -> bool:
        """Append the batch and reply. Returns False, and changes nothing, if the request is not an ordinary success.

        The caller then takes the general path, which serves the request or finds the error.
        """
        route, store = connection.route, self._store
        try:
            if route is None or frame[CORRELATION_ID_ENDS_AT : route.start] != route.goes_on_with:
                route = self._route_of(connection, frame)
            if route.flexible:
                begins_with, correlation_id, index, first, second = route.unpack(frame)
                position = route.start + 6
                length = (first & 127 | second << 7) - 1
                if second > 127 or first < 128:
                    length, position = _other_length(frame, position - 2)
                end = position + length
                whole = frame[end:] == _NO_TAGS
            else:
                begins_with, correlation_id, index, length = route.unpack(frame)
                position = route.start + 8
                end = position + length
                whole = end == len(frame)
            if index < 0 or begins_with != route.begins_with:
                connection.route = None  # another version, perhaps, or another API with the same bytes in it
                raise IndexError
            partition = self._topics[route.name].partitions[index]
            log, bit = partition.log, route.transaction_bit
            header = unpack_header(frame, position)
            zero, size, _, magic, crc, flags, delta, base_ms, newest_ms, producer_id, epoch, sequence, count = header
            if self._turn != store.turn:
                self._turn, self._wall_ms = store.turn, self._now_ms()
            ordinary = (
                whole  # nothing follows the batch: decode_request
                and (partition.plain and log.offline is None)  # Partition.accept, check_online
                and (zero == 0 and size + LENGTH_ENDS_AT == length and magic == MAGIC)  # batches.check_produced
                and 0 <= flags ^ bit <= HIGHEST_CODEC  # the same: no bit but the codec's and the transaction's
                and 0 < count == delta + 1  # the same
                and (flags ^ bit or count * SMALLEST_RECORD_BYTES <= length - HEADER_BYTES)  # the same
                and length <= partition.largest_bytes  # Partition.accept
                and base_ms <= self._wall_ms + partition.rules.timestamp_after_max_ms >= newest_ms  # _is_too_far_ahead
                and (producer_id < 0 or log.producers.is_next(producer_id, epoch, sequence, bit != 0))  # judge
                and (not self._measures.is_active or self._throttling.is_free(connection.session, route.client_id))
                and (store.tail_bytes + length <= store.spare_bytes and not store.space_low)  # Store.admits
                and crc32c(frame[position + CRC_COVERS_FROM : end]) == crc  # check_produced: late, as it costs most
                and (not bit or self._goes_on(route, producer_id, epoch, partition, connection))  # admit_batch
            )
        except ORDINARY_FAULTS:
            return False
        if not ordinary:
            return False
        base = log.end_offset
        try:
            unit = store.append_next(log, frame[position + 16 : end], delta, newest_ms, producer_id, sequence, bit != 0)
        except UnitRefused:
            return False
        self._requests[0] += 1
        reply = route.pack(route.size, correlation_id, route.prefix, index, 0, base, -1, log.start_offset, route.suffix)
        connection.newest_unit = unit
        connection.slots.append((unit, reply))
        return True

    def _goes_on(self, route: Route, producer_id: int, epoch: int, partition: Partition, on: Connection) -> bool:
        """Return whether the batch continues an open transaction that already has the partition, so that nothing must
        be logged for the transaction. on: the connection that the batch came over.
        """
        transactional_id = route.transactional_id
        assert transactional_id is not None
        goes_on = self._admission.goes_on
        return producer_id >= 0 and goes_on(transactional_id, producer_id, epoch, partition, route.version, on)

    def _route_of(self, connection: Connection, frame: Readable) -> Route:
        """Parse a request that begins differently from the connection's last one, and remember its route.

        Raises LookupError if it does not have the ordinary form.
        """
        route = find_route(frame) if frame[:2] == PRODUCE else None
        if route is None:
            raise LookupError
        connection.route = route
        connection.client_id = route.client_id
        return route


def _other_length(frame: Readable, position: int) -> tuple[int, int]:
    """Read a compact length (unsigned varint, one more than the bytes). Returns the number of bytes and the position
    after it.
    """
    length, position = read_uvarint(frame, position)
    return length - 1, position
