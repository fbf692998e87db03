"""The straight line for the commonest request: Produce of one batch into one partition of one topic.

The rule: it may only do what handlers/produce.py would have done, and does nothing at all where anything is out of the
ordinary: then it says no, and the request takes the general way. What a client sends before the partition's index is
nearly always what it sent before, so it is read once (a Route) and compared afterwards.
Shape and worth: design rule 7 of the performance notes; the same tests run both ways.
"""

import struct
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from ..protocol.apis import APIS
from ..protocol.batches import TRANSACTIONAL_BIT
from ..protocol.errors import ErrorCode, KafkaError, MalformedFrame
from ..protocol.headers import read_request_header
from ..protocol.primitives import Readable, read_uvarint, uvarint
from .connection import PRODUCE, Connection

if TYPE_CHECKING:
    from .broker import Broker

OLDEST = 7  # before, clients may not send zstd
NEWEST = min(APIS[0].max, 12)  # after, topics have no names
FLEXIBLE = 9
ACKS = (-1, 1)
ORDINARY_FAULTS = (KafkaError, MalformedFrame, LookupError, ValueError, struct.error)
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID  # such a producer's first sequence is for the general way to judge
NO_TIMESTAMP = -1
CORRELATION_ID_ENDS_AT = 8

_acks_and_timeout = Struct(">hi").unpack_from
_count = Struct(">i").unpack_from
_plain_beginning = Struct(">hhiih").unpack_from  # no transactional id, acks, timeout, topics, length of a name
_PLAIN_BEGINNING_BYTES = 14
_NO_TAGS = b"\x00\x00\x00"  # after the partition, the topic and the request


class Route:
    """All of a request but its correlation id and partition: how it begins, and how its answer is written."""

    __slots__ = (
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
        "unpack",
    )

    def __init__(self, frame: Readable, version: int, client_id: str, name: str, start: int) -> None:
        self.begins_with = version  # and the API's key before it, which is 0
        self.goes_on_with = bytes(frame[CORRELATION_ID_ENDS_AT:start])
        self.start = start  # where the partition's index stands
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
    """Read a request up to its partition's index; None if it is not of the ordinary kind.

    Raises what reading past an end raises: IndexError, struct.error, MalformedFrame, UnicodeDecodeError.
    """
    header = read_request_header(frame)
    if not OLDEST <= header.api_version <= NEWEST:
        return None
    read = _read_flexible if header.api_version >= FLEXIBLE else _read_plain
    transactional, acks, topics, name, partitions, position = read(frame, header.position)
    if transactional or acks not in ACKS or topics != 1 or partitions != 1:
        return None
    return Route(frame, header.api_version, header.client_id, str(name, "utf-8"), position)


Beginning = tuple[bool, int, int, Readable, int, int]
"""Transactional id or not, acks, number of topics, the first one's name, number of its partitions, position."""


def _read_flexible(frame: Readable, position: int) -> Beginning:
    transactional = frame[position] != 0
    acks, _ = _acks_and_timeout(frame, position + 1)
    topics, position = read_uvarint(frame, position + 7)
    length, position = read_uvarint(frame, position)
    after = position + length - 1
    partitions, end = read_uvarint(frame, after)
    return transactional, acks, topics - 1, frame[position:after], partitions - 1, end


def _read_plain(frame: Readable, position: int) -> Beginning:
    length, acks, _, topics, name_length = _plain_beginning(frame, position)
    position += _PLAIN_BEGINNING_BYTES
    after = position + name_length
    (partitions,) = _count(frame, after)
    return length != -1, acks, topics, frame[position:after], partitions, after + 4


class StraightProduce:
    """Serves what is ordinary, for one broker; all the rest goes to `otherwise`."""

    def __init__(self, broker: "Broker", otherwise: Callable[[Connection, Readable], None]) -> None:
        self._otherwise = otherwise
        self._topics = broker.topics.by_name
        self._now_ms = broker.clock.now_ms
        self._store = broker.store
        self._journal = broker.store.journal
        self._limit = broker.producer_limit
        self._requests = broker.metrics.requests

    def serve(self, connection: Connection, frame: Readable) -> None:
        """Append and reply, or change nothing and hand the request on, which then finds the same and can say so."""
        route, store = connection.route, self._store
        try:
            if route is None or frame[CORRELATION_ID_ENDS_AT : route.start] != route.goes_on_with:
                route = self._route_of(connection, frame)
                if route is None:
                    self._otherwise(connection, frame)
                    return
            if route.flexible:
                begins_with, correlation_id, index, first, second = route.unpack(frame)
                position = route.start + 6
                length = (first & 127 | second << 7) - 1
                if second > 127 or first < 128:
                    length, position = _other_length(frame, position - 2)
                end = position + length
                whole = length > 0 and frame[end:] == _NO_TAGS
            else:
                begins_with, correlation_id, index, length = route.unpack(frame)
                position = route.start + 8
                end = position + length
                whole = length > 0 and end == len(frame)
            topic = self._topics[route.name]
            if not whole or index < 0 or begins_with != route.begins_with:
                connection.route = None  # another version, perhaps, or another API with the same bytes in it
                raise IndexError
            partition = topic.partitions[index]
            if not partition.plain:
                self._otherwise(connection, frame)
                return
            log = partition.log
            batch = partition.accept_plain(memoryview(frame)[position:end], self._now_ms())
            ordinary = log.offline is None and not batch.attributes & TRANSACTIONAL_BIT
            if batch.producer_id >= 0 and ordinary:
                ordinary = log.producers.judge(batch, UNKNOWN) is None and not self._limit.full
        except ORDINARY_FAULTS:
            self._otherwise(connection, frame)
            return
        if not ordinary or not store.admits(batch.size):
            self._otherwise(connection, frame)
            return
        base_offset = store.append(log, batch)
        partition.appended_bytes += batch.size
        self._requests[0] += 1
        start_offset, suffix = log.start_offset, route.suffix
        reply = route.pack(
            route.size, correlation_id, route.prefix, index, 0, base_offset, NO_TIMESTAMP, start_offset, suffix
        )
        connection.slots.append((self._journal.next_unit - 1, reply))

    @staticmethod
    def _route_of(connection: Connection, frame: Readable) -> Route | None:
        """How this request begins, which is not as the last did."""
        if frame[:2] != PRODUCE:
            return None
        route = connection.route = find_route(frame)
        if route is not None:
            connection.client_id = route.client_id
        return route


def _other_length(frame: Readable, position: int) -> tuple[int, int]:
    length, position = read_uvarint(frame, position)
    return length - 1, position
