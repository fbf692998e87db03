"""The layout of a group's records in __consumer_offsets: a key of kind, group and name, and a value. Pure.

Consumer groups and share groups have their own kinds of records (consumer/records.py, share/records.py), and this in
common. Sources: Kafka's GroupCoordinatorRecordHelpers; docs/formats.md.
"""

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Any, Generic, Protocol, TypeVar

from ....protocol.record_fields import INT16, NOT_READABLE, VERSION, Reader, UnreadableRecord, read_value, short_text


class Recorded(Protocol):
    """A change of a group: one record of the log. If its value is None, the record is a tombstone."""

    @property
    def kind(self) -> Any:
        """The type of the record, an IntEnum of the group's protocol."""
        ...

    @property
    def name(self) -> str:
        """The member or topic that the record is about; "" if it is about the whole group."""
        ...

    @property
    def value(self) -> Any | None:
        """The decoded value; None for a tombstone."""
        ...


K = TypeVar("K", bound=IntEnum)
Change = TypeVar("Change", bound=Recorded)


class Layout(Generic[K, Change]):
    """Encodes the changes of one type of group (such as share groups) as records, and decodes them."""

    def __init__(
        self,
        group: str,
        kinds: type[K],
        of_the_group: Collection[K],
        change: Callable[[K, str, Any], Change],
        writers: Mapping[K, Callable[[Any], bytes]],
        readers: Mapping[K, Callable[[Reader], Any]],
    ) -> None:
        """group: the type of group, for error texts. kinds: the numbers that keys begin with. change: makes a change.

        of_the_group: the kinds of which there is one record for the whole group, and whose keys have no name. writers,
        readers: by kind, they encode and decode values. The value of a kind without a reader is ignored, as if the
        record were a tombstone.
        """
        self._group = group
        self._kinds = kinds
        self._of_the_group = of_the_group
        self._change = change
        self._writers = writers
        self._readers = readers

    def key(self, group_id: str, kind: K, name: str) -> bytes:
        """Encode the key of a record. name: of the member or topic; ignored for kinds of which there is one record for
        the whole group.
        """
        head = INT16.pack(kind) + short_text(group_id)
        return head if kind in self._of_the_group else head + short_text(name)

    def record(self, group_id: str, change: Change) -> tuple[bytes, bytes | None]:
        """Encode a change of a group. Returns the record's key and value; the value is None for a tombstone."""
        found = change.value
        written = None if found is None else VERSION + self._writers[change.kind](found)
        return self.key(group_id, change.kind, change.name), written

    def read(self, key: bytes, value: bytes | None) -> tuple[str, Change]:
        """Decode a record. Returns the group's id and the change. Raises UnreadableRecord."""
        try:
            reader = Reader(key, 0)
            kind = self._kinds(reader.number(INT16))
            group_id = reader.short_text()
            name = "" if kind in self._of_the_group else reader.short_text()
            read = self._readers.get(kind)
            found = None if value is None or read is None else read_value(value, kind, read)
            return group_id, self._change(kind, name, found)
        except NOT_READABLE as wrong:
            if isinstance(wrong, UnreadableRecord):
                raise
            raise UnreadableRecord(f"a record of a {self._group} cannot be decoded: {wrong}") from wrong
