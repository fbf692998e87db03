"""The state of all named producers, and whether a batch of one is new or a duplicate. Pure.

A named producer numbers its records itself, by increasing 64-bit sequences for each name and partition, which may have
gaps. For each name and partition the highest sequence in the log is stored; a record at or below it is a duplicate.
Nothing expires while the name exists.

The rules: the highest sequence is logged in the unit of its batch, so it always agrees with the log. An epoch is given
out only once, even for a name that was removed or restored, so that no old client passes as the new one. The number of
partitions that a topic had when the name first wrote to it is stored, because with another number a key would go to
another partition, where its sequences are not known.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ..topics.names import TopicIdPartition

RECORD_VERSION = 0
LONGEST_NAME_BYTES = 249
LONGEST_OWNER_LETTERS = 250
NOTHING = -1  # the highest of a partition to which nothing was written

EPOCH, NAME, TOPIC, HIGHEST = range(4)

_KIND, _TOPIC_KEY, _PLACE_KEY = Struct(">h"), Struct(">h16s"), Struct(">h16si")
_VERSION, _COUNT, _NUMBER = Struct(">h"), Struct(">hi"), Struct(">hq")

Key = TypeVar("Key")
Row = tuple[bytes, bytes | None]
"""Key and value of a record; without a value: what the key names is gone."""


class NamedProducer:
    """The state of one name.

    counts: by topic id, how many partitions the topic had when the name first wrote to it. highest: by partition, the
    highest sequence that the name has written.
    """

    __slots__ = ("counts", "epoch", "highest", "owner")

    def __init__(self, epoch: int, owner: str) -> None:
        self.epoch = epoch
        self.owner = owner
        self.counts: dict[bytes, int] = {}
        self.highest: dict[TopicIdPartition, int] = {}


class Numbered(NamedTuple):
    """A batch of a named producer: its first and last sequence, and how many partitions the topic has now."""

    name: str
    epoch: int
    place: TopicIdPartition
    partition_count: int
    first: int
    last: int
    records: int


class Straddles(KafkaError):
    """Raised for a batch of which only the part up to the sequence `highest` was already written. The client may then
    send the rest.
    """

    def __init__(self, batch: Numbered, highest: int) -> None:
        detail = f"sequences {batch.first} to {batch.last}, of which those up to {highest} are written already"
        super().__init__(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, detail)
        self.highest = highest


class Names:
    """The state of all named producers. Only apply() changes it. newest_epoch: the last epoch given to any name."""

    def __init__(self) -> None:
        self.by_name: dict[str, NamedProducer] = {}
        self.newest_epoch = 0
        self.entries = 0  # how many topics and partitions all names have together

    # ---- questions -------------------------------------------------------------------------------------------

    def check_epoch(self, name: str, epoch: int) -> NamedProducer:
        """Return the named producer. Raises PRODUCER_FENCED if the name was removed, or opened again and so has a newer
        epoch.
        """
        found = self.by_name.get(name)
        if found is None:
            raise KafkaError(ErrorCode.PRODUCER_FENCED, f"there is no named producer {name!r}: it was removed")
        if epoch != found.epoch:
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED,
                f"the named producer {name!r} was opened again, by {found.owner or 'another'}",
            )
        return found

    def check_count(self, producer: NamedProducer, topic_id: bytes, partition_count: int) -> None:
        """Raise INVALID_PARTITIONS if the topic's number of partitions has changed since the name first wrote to it."""
        then = producer.counts.get(topic_id, partition_count)
        if then != partition_count:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"the topic has {partition_count} partitions, and had {then} when this name first wrote to it: "
                "what was written of a key is not known in another partition",
            )

    def judge(self, batch: Numbered) -> int | None:
        """Return None if the batch is to be appended. If all of it was already written, return the highest sequence in
        the partition.

        Raises PRODUCER_FENCED, INVALID_PARTITIONS, INVALID_REQUEST; Straddles if only a part was already written.
        """
        found = self.check_epoch(batch.name, batch.epoch)
        topic_id, _ = batch.place
        if topic_id not in found.counts:
            text = "the topic was not opened by this named producer, or was deleted and created again since"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        self.check_count(found, topic_id, batch.partition_count)
        if batch.first < 0 or batch.last - batch.first + 1 < batch.records:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{batch.records} records do not have different sequences from {batch.first} to {batch.last}",
            )
        highest = found.highest.get(batch.place, NOTHING)
        if batch.first > highest:
            return None
        if batch.last <= highest:
            return highest
        raise Straddles(batch, highest)

    def highest(self, name: str, place: TopicIdPartition) -> int:
        """Return the highest sequence that the name has written to the partition; NOTHING if it has written none."""
        found = self.by_name.get(name)
        return NOTHING if found is None else found.highest.get(place, NOTHING)

    # ---- records ---------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield the records from which apply() restores the state. The state may change while this runs."""
        if self.newest_epoch:
            yield epoch_row(self.newest_epoch)
        for name in list(self.by_name):
            found = self.by_name.get(name)
            if found is not None:
                yield name_row(name, found.epoch, found.owner)
                yield from [topic_row(name, topic_id, count) for topic_id, count in found.counts.items()]
                yield from [highest_row(name, place, highest) for place, highest in found.highest.items()]

    def rows_without(self, name: str, topic_id: bytes | None = None) -> list[Row]:
        """Return the tombstones that remove a name, or only its entries of one topic."""
        found = self.by_name[name]
        gone = [_place_key(name, place) for place in found.highest if topic_id in (None, place[0])]
        gone += [_topic_key(name, each) for each in found.counts if topic_id in (None, each)]
        if topic_id is None:
            gone.append(_name_key(name))
        return [(key, None) for key in gone]

    def apply(self, row: Row) -> None:
        """Apply a record to the state. Raises DamagedNameRecord, NewerNameRecord; then nothing was changed."""
        key, value = row
        try:
            kind = _KIND.unpack_from(key)[0]
            if not EPOCH <= kind <= HIGHEST or (value is not None and _VERSION.unpack_from(value)[0] != RECORD_VERSION):
                raise NewerNameRecord(f"a record of named producers of a newer version: {key[:80]!r}")
            (self._apply_epoch, self._apply_name, self._apply_topic, self._apply_highest)[kind](key, value)
        except (StructError, ValueError) as error:
            raise DamagedNameRecord(f"{key[:80]!r}: {error}") from error

    def _apply_epoch(self, key: bytes, value: bytes | None) -> None:
        """Apply the record of the newest epoch of all names."""
        if value is not None:
            self.newest_epoch = max(self.newest_epoch, _NUMBER.unpack(value)[1])

    def _apply_name(self, key: bytes, value: bytes | None) -> None:
        """Apply the record of a name: its epoch and owner. A tombstone removes all entries of the name."""
        name = key[_KIND.size :].decode()
        if value is None:
            gone = self.by_name.pop(name, None)
            if gone is not None:
                self.entries -= len(gone.counts) + len(gone.highest)
            return
        epoch, owner = _NUMBER.unpack_from(value)[1], value[_NUMBER.size :].decode()
        found = self.by_name.get(name)
        if found is None:
            self.by_name[name] = NamedProducer(epoch, owner)
        else:
            found.epoch, found.owner = epoch, owner
        self.newest_epoch = max(self.newest_epoch, epoch)

    def _apply_topic(self, key: bytes, value: bytes | None) -> None:
        """Apply the record of how many partitions a topic had when the name first wrote to it, or its tombstone."""
        topic_id, name = _TOPIC_KEY.unpack_from(key)[1], key[_TOPIC_KEY.size :].decode()
        count = None if value is None else _COUNT.unpack(value)[1]
        found = self.by_name.get(name)
        if found is not None:
            self._set(found.counts, topic_id, count)

    def _apply_highest(self, key: bytes, value: bytes | None) -> None:
        """Apply the record of the highest sequence in a partition, or its tombstone."""
        _, topic_id, partition = _PLACE_KEY.unpack_from(key)
        name = key[_PLACE_KEY.size :].decode()
        highest = None if value is None else _NUMBER.unpack(value)[1]
        found = self.by_name.get(name)
        if found is not None:
            self._set(found.highest, (topic_id, partition), highest)

    def _set(self, entries: "dict[Key, int]", key: "Key", value: int | None) -> None:
        """Set an entry of a name, or remove it if value is None, and count the entries of all names."""
        before = len(entries)
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
        self.entries += len(entries) - before


class DamagedNameRecord(Exception):
    """Raised for bytes that are not a record of named producers."""


class NewerNameRecord(Exception):
    """Raised for a record that a later version of fencepost wrote."""


def _name_key(name: str) -> bytes:
    """Return the key of the record of a name."""
    return _KIND.pack(NAME) + name.encode()


def _topic_key(name: str, topic_id: bytes) -> bytes:
    """Return the key of the record of a topic's partition count, for this name."""
    return _TOPIC_KEY.pack(TOPIC, topic_id) + name.encode()


def _place_key(name: str, place: TopicIdPartition) -> bytes:
    """Return the key of the record of a partition's highest sequence, for this name."""
    return _PLACE_KEY.pack(HIGHEST, *place) + name.encode()


def epoch_row(epoch: int) -> Row:
    """Return the record of the newest epoch of all names."""
    return _KIND.pack(EPOCH), _NUMBER.pack(RECORD_VERSION, epoch)


def name_row(name: str, epoch: int, owner: str) -> Row:
    """Return the record of a name's epoch and owner: a text that describes the client that opened it."""
    return _name_key(name), _NUMBER.pack(RECORD_VERSION, epoch) + owner.encode()


def topic_row(name: str, topic_id: bytes, count: int) -> Row:
    """Return the record of how many partitions a topic had when the name first wrote to it."""
    return _topic_key(name, topic_id), _COUNT.pack(RECORD_VERSION, count)


def highest_row(name: str, place: TopicIdPartition, highest: int) -> Row:
    """Return the record of the highest sequence that the name has written to a partition."""
    return _place_key(name, place), _NUMBER.pack(RECORD_VERSION, highest)
