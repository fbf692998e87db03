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
        self._metrics = broker.metrics

    def serve(self, connection: Connection, frame: Readable) -> None:
        """Append and reply, or change nothing and hand the request on."""
        route = connection.route
        try:
            if route is None or frame[CORRELATION_ID_ENDS_AT : route.start] != route.goes_on_with:
                route = self._route_of(connection, frame)
            if route is None or not self._append(connection, frame, route):
                self._otherwise(connection, frame)
        except (KafkaError, IndexError, ValueError, struct.error, MalformedFrame):
            self._otherwise(connection, frame)  # which finds the same, and can say so

    @staticmethod
    def _route_of(connection: Connection, frame: Readable) -> Route | None:
        """How this request begins, which is not as the last did."""
        if frame[:2] != PRODUCE:
            return None
        route = connection.route = find_route(frame)
        if route is not None:
            connection.client_id = route.client_id
        return route

    def _append(self, connection: Connection, frame: Readable, route: Route) -> bool:
        """Raises what find_route does, and KafkaError if the batch is refused. Then, or if False, nothing was done."""
        if route.flexible:
            begins_with, correlation_id, index, first, second = route.unpack(frame)
            position = route.start + 6
            if second < 128 <= first:
                length = (first & 127 | second << 7) - 1
            else:
                length, position = read_uvarint(frame, position - 2)
                length -= 1
            end = position + length
            if frame[end:] != _NO_TAGS:
                return False
        else:
            begins_with, correlation_id, index, length = route.unpack(frame)
            position = route.start + 8
            end = position + length
            if end != len(frame):
                return False
        topic = self._topics.get(route.name)
        if begins_with != route.begins_with:
            connection.route = None  # another version, or another API with the same bytes in it
            return False
        if topic is None or length < 0 or not 0 <= index < len(topic.partitions):
            return False
        partition = topic.partitions[index]
        log = partition.log
        if not partition.plain or log.offline is not None:
            return False
        batch = partition.accept(memoryview(frame)[position:end], self._now_ms())
        store = self._store
        if batch.attributes & TRANSACTIONAL_BIT or not store.admits(batch.size):
            return False
        if batch.producer_id >= 0 and (log.producers.judge(batch, UNKNOWN) is not None or self._limit.full):
            return False
        base_offset = store.append(log, batch)
        partition.appended_bytes += batch.size
        metrics = self._metrics
        metrics.requests[0] += 1
        metrics.records += batch.record_count
        start_offset, suffix = log.start_offset, route.suffix
        reply = route.pack(
            route.size, correlation_id, route.prefix, index, 0, base_offset, NO_TIMESTAMP, start_offset, suffix
        )
        connection.reply(reply, self._journal.next_unit - 1)
        return True
