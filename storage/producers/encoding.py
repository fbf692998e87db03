"""The states of producers as bytes: every producer with all its remembered batches, so that none is lost in a restart.

The rule: a snapshot is the state as of one moment, even if it is encoded in slices. A producer that is about to change
in between is encoded just before.

Format: msgpack objects one after the other, first [count of producers], then for each a flat array of integers: id,
epoch, coordinator epoch, next sequence, first offset of the open transaction, age ms, last timestamp, and for each
remembered batch, oldest first, base sequence, base offset, timestamp. Kafka's own snapshots keep the last batch only.
"""

from collections.abc import Mapping

import msgpack

NONE_OPEN = -1  # first_open: no transaction is open here
ANY_SEQUENCE = -2  # next_sequence: nothing is known, the next batch may come with any

_FIXED = 7
_PER_BATCH = 3
_MAX_BATCHES = 5


class Producer:
    """One producer in one partition.

    window: (base sequence, base offset, timestamp) of its last batches. Sequences have no gap between batches, so a
    batch ends where the next begins, and the last one just before `next_sequence`.
    """

    __slots__ = (
        "age_ms",
        "coordinator_epoch",
        "epoch",
        "first_open",
        "last_timestamp",
        "next_sequence",
        "snapshot",
        "window",
    )

    def __init__(self, epoch: int, snapshot: int = 0) -> None:
        """snapshot: the number of the newest snapshot that has this producer encoded already, or need not have it."""
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.next_sequence = ANY_SEQUENCE
        self.first_open = NONE_OPEN
        self.age_ms = 0
        self.last_timestamp = -1
        self.window: list[tuple[int, int, int]] = []
        self.snapshot = snapshot  # the newest snapshot in slices that needs no more of it


def pack(producers: Mapping[int, Producer]) -> bytes:
    """Encode all producers as one snapshot."""
    pieces = [_packed_count(len(producers))]
    pieces += [_pack(producer_id, producer) for producer_id, producer in producers.items()]
    return b"".join(pieces)


def _packed_count(count: int) -> bytes:
    """Return msgpack of a list with this one number."""
    return bytes(msgpack.packb([count]))


def _pack(producer_id: int, producer: Producer) -> bytes:
    """Encode one producer's state."""
    fields = [
        producer_id,
        producer.epoch,
        producer.coordinator_epoch,
        producer.next_sequence,
        producer.first_open,
        producer.age_ms,
        producer.last_timestamp,
    ]
    for batch in producer.window:
        fields += batch
    return bytes(msgpack.packb(fields))


def unpack(payload: bytes) -> dict[int, Producer]:
    """Decode what pack() encoded. Raises: ValueError for anything else."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(payload)), use_list=False)
    unpacker.feed(payload)
    try:
        (count,) = unpacker.unpack()
        found = dict(_unpack(fields) for fields in unpacker)
    except (msgpack.exceptions.UnpackException, TypeError, ValueError) as error:
        raise ValueError(f"a producer snapshot does not parse: {error!r}") from None
    if len(found) != count or unpacker.tell() != len(payload):
        raise ValueError(f"the producer snapshot says {count} producers and holds {len(found)}, or bytes follow them")
    return found


def _unpack(fields: tuple[int, ...]) -> tuple[int, Producer]:
    """Decode one producer's state. Raises ValueError."""
    batches, rest = divmod(len(fields) - _FIXED, _PER_BATCH)
    if rest or not 0 <= batches <= _MAX_BATCHES or set(map(type, fields)) != {int}:
        raise ValueError(f"a producer has {len(fields)} fields, or some are not whole numbers")
    producer = Producer(fields[1])
    (
        producer_id,
        _,
        producer.coordinator_epoch,
        producer.next_sequence,
        producer.first_open,
        producer.age_ms,
        producer.last_timestamp,
    ) = fields[:_FIXED]
    window = iter(fields[_FIXED:])
    producer.window = list(zip(window, window, window, strict=True))
    return producer_id, producer


class SnapshotInSlices:
    """A snapshot that is encoded in slices, between which the state may change.

    number: of this snapshot, higher than those before. A producer with this number is encoded already, or is newer than
    the snapshot.
    """

    def __init__(self, producers: Mapping[int, Producer], number: int) -> None:
        """producers: all of them; they may change meanwhile. number: of this snapshot, higher than those before."""
        self.number = number
        self._producers = producers
        self._waiting = list(producers)
        self._position = 0
        self._slice = [_packed_count(len(producers))]
        self._slices: list[bytes] = []

    def keep(self, producer_id: int, producer: Producer) -> None:
        """Encode a producer as it is now, because it is about to change or to be removed."""
        if producer.snapshot != self.number:
            producer.snapshot = self.number
            self._slice.append(_pack(producer_id, producer))

    def advance(self, at_most: int) -> list[bytes] | None:
        """Encode up to `at_most` more producers. Returns all pieces of the snapshot once it is complete; else None."""
        end = self._position + at_most
        for producer_id in self._waiting[self._position : end]:
            producer = self._producers.get(producer_id)
            if producer is not None:
                self.keep(producer_id, producer)
        self._position = end
        self._slices.append(b"".join(self._slice))
        self._slice.clear()
        return self._slices if end >= len(self._waiting) else None
