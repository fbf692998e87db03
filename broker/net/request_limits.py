"""Limits on what one request contains. They are checked in its bytes before it is decoded, and by its number of items
after that.

The rule: a frame must not cost much more memory and time than its size suggests. Batches are not looked into and cheap.
Lists are not: a partition takes six bytes in a request, and a thousand as objects. So only Produce, and requests with
blobs for clients, may be large, and a Produce may name only a limited number of partitions. Items that take the loop
long for few bytes (settings of a topic take half a millisecond) are limited in number. Kafka has no such limits.
"""

import struct
from collections.abc import Generator
from struct import Struct
from typing import Any

from ...protocol.apis import Api, decode_request_in_steps
from ...protocol.errors import MalformedFrame
from ...protocol.headers import RequestHeader
from ...protocol.primitives import Readable, read_uvarint, skip_tags
from ...protocol.schema import Array, schema_of

LARGEST_LIST_BYTES = 2 << 20  # some 40,000 partitions of a Fetch, 20,000 topics with settings
MAX_PARTITIONS = 10_000  # of one Produce; as many as Kafka lets one request create
MAX_BLOBS = 20_000  # protocols of one member, members of one group
LOOKED_AT_FROM_BYTES = 48 << 10  # smaller frames cannot name more

MAX_ITEMS = 40_000  # entries of all lists of one request
MAX_SUBJECTS = 5_000  # the most topics, resources or users that one request changes or describes at length
SMALL_BYTES = 4 << 10  # frames up to here hold no such number

PRODUCE = 0
_LISTS: dict[type, list[str]] = {}  # the fields of each class that are lists
LABORIOUS = {15, 19, 20, 32, 33, 37, 42, 44, 49, 50, 51, 65}
"""Topics made, deleted or enlarged; settings and users described or changed; groups described or deleted; quotas
changed; transactions described.
"""
JOIN_GROUP, SYNC_GROUP, SASL_AUTHENTICATE = 11, 14, 36
WITH_BLOBS = {JOIN_GROUP, SYNC_GROUP, SASL_AUTHENTICATE}  # what members tell each other passes through
WRITE_TXN_MARKERS = 27
FLEXIBLE, TOPIC_IDS = 9, 13

_int16 = Struct(">h").unpack_from
_int32 = Struct(">i").unpack_from


def check_extent(frame: Readable, header: RequestHeader) -> None:
    """Raise MalformedFrame if a request, which is not decoded yet, is too large for its API, or has too many partitions
    or blobs.

    A request that is cut short passes, because the decoder refuses it.
    """
    if len(frame) <= LOOKED_AT_FROM_BYTES:
        return
    look = _LOOKED_INTO.get(header.api_key)
    if look is None:
        if len(frame) > LARGEST_LIST_BYTES and header.api_key not in WITH_BLOBS:
            raise MalformedFrame(f"the request has {len(frame)} bytes, {LARGEST_LIST_BYTES} are allowed")
        return
    try:
        look(frame, header.position, header.api_version)
    except (IndexError, struct.error):
        return


def read_in_steps(api: Api, header: RequestHeader, frame: memoryview) -> Generator[int, None, Any]:
    """Decode a request in steps. Yields, after each step, how many items it has decoded; returns the request.

    Raises MalformedFrame if the request has too many items.
    """
    check_extent(frame, header)
    reading = decode_request_in_steps(api, header.api_version, frame, header.position)
    items, most = 0, MAX_PARTITIONS if api.key == WRITE_TXN_MARKERS else MAX_ITEMS  # each marker is a batch
    while True:
        try:
            more = next(reading)
        except StopIteration as end:
            request = end.value
            break
        items += more
        if items > most:
            raise MalformedFrame(f"the request has more than {most} items")
        yield more
    if api.key in LABORIOUS and (subjects := max(map(len, _lists(request)), default=0)) > MAX_SUBJECTS:
        raise MalformedFrame(f"the request names {subjects} topics, resources or users, {MAX_SUBJECTS} are allowed")
    return request


def _lists(message: Any) -> list[list[Any]]:
    """Return the message's fields that are non-empty arrays."""
    cls = type(message)
    names = _LISTS.get(cls)
    if names is None:
        names = _LISTS[cls] = [field.name for field in schema_of(cls).fields if isinstance(field.kind, Array)]
    return [entries for name in names if (entries := getattr(message, name))]


def _check_produce(frame: Readable, position: int, version: int) -> None:
    """Raise MalformedFrame if a Produce names too many partitions. Counts them, and tagged fields like partitions,
    without reading the batches.
    """
    flexible = version >= FLEXIBLE
    position = _after_text(frame, position, flexible) + 6  # acks and timeout
    topics, position = _count(frame, position, flexible)
    left = MAX_PARTITIONS
    for _ in range(topics):
        position = position + 16 if version >= TOPIC_IDS else _after_text(frame, position, flexible)
        partitions, position = _count(frame, position, flexible)
        left = _less(left, max(partitions, 1))
        for _ in range(partitions):
            size, position = _count(frame, position + 4, flexible)
            position += max(size, 0)
            if flexible and frame[position]:
                left = _less(left, frame[position])
                position = _after_tags(frame, position)
            else:
                position += flexible
        if flexible:
            left = _less(left, frame[position])
            position = _after_tags(frame, position)


def _less(left: int, count: int) -> int:
    """Return left - count, the number of partitions still allowed. Raises MalformedFrame if that is below 0.

    Tagged fields are subtracted too, because it takes as long to skip one as to read a partition.
    """
    if left < count:
        raise MalformedFrame(f"the request names more than {MAX_PARTITIONS} partitions")
    return left - count


def _check_join_group(frame: Readable, position: int, version: int) -> None:
    """Raise MalformedFrame if a JoinGroup has too many protocols. position: where its body begins."""
    flexible = version >= 6
    position = _after_text(frame, position, flexible) + (8 if version >= 1 else 4)  # group and timeouts
    for _ in range(3 if version >= 5 else 2):  # member, instance, type
        position = _after_text(frame, position, flexible)
    _check_blobs(frame, position, flexible)


def _check_sync_group(frame: Readable, position: int, version: int) -> None:
    """Raise MalformedFrame if a SyncGroup has too many assignments. position: where its body begins."""
    flexible = version >= 4
    position = _after_text(frame, position, flexible) + 4  # group and generation
    for _ in range(4 if version >= 5 else 2 if version >= 3 else 1):  # member, instance, type, protocol
        position = _after_text(frame, position, flexible)
    _check_blobs(frame, position, flexible)


def _check_blobs(frame: Readable, position: int, flexible: bool) -> None:
    """Raise MalformedFrame if the array at this position has more than MAX_BLOBS items."""
    count, _ = _count(frame, position, flexible)
    if count > MAX_BLOBS:
        raise MalformedFrame(f"the request has {count} members or protocols, {MAX_BLOBS} are allowed")


_LOOKED_INTO = {PRODUCE: _check_produce, JOIN_GROUP: _check_join_group, SYNC_GROUP: _check_sync_group}


def _count(frame: Readable, position: int, flexible: bool) -> tuple[int, int]:
    """Read the number of items of the array at this position. Returns (number, position after it)."""
    if flexible:
        count, position = read_uvarint(frame, position)
        return count - 1, position
    return _int32(frame, position)[0], position + 4


def _after_text(frame: Readable, position: int, flexible: bool) -> int:
    """Return the position after the string at this position."""
    if flexible:
        length, position = read_uvarint(frame, position)
        return position + max(length - 1, 0)
    (length,) = _int16(frame, position)
    return position + 2 + (length if length > 0 else 0)


def _after_tags(frame: Readable, position: int) -> int:
    """Return the position after the tagged fields at this position."""
    count = frame[position]
    return skip_tags(frame, position + 1, count) if count else position + 1
