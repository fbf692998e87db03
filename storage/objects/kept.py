"""An object store of which each round is read only once: rounds that were read are kept in memory, up to a limit. So
is the store's identity.

The rule: the object under the name of a round or a seal never changes, so bytes that were read stay valid. Whether the
object still exists is not known from them: a take-over relies on the fence (fence.py), which no kept round can bypass.
"""

import threading

from ...effects.objects import Content, Found, Missing, Objects
from ...effects.threads import call_all
from ..journal.format import Malformed
from . import format
from .creating import Pause, until_clear
from .epochs import FEW, MANY, MANY_BYTES
from .errors import ObjectDamaged
from .fence import Place
from .format import NewerObject, RoundHeader, Seal

MAX_BYTES, LARGE_BYTES = 128 << 20, 8 << 20


class KeptRounds(Objects):
    """The objects of another store. Whole rounds that were read, and the identity, are kept in memory while there is
    room for them.
    """

    def __init__(self, objects: Objects, most_bytes: int = MAX_BYTES) -> None:
        """most_bytes: how many bytes the kept rounds may have together."""
        self._objects = objects
        self._room = most_bytes
        self._kept: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        return self._objects.where

    def create(self, name: str, content: Content) -> None:
        """Create an object if none has its name. Raises Exists, Unclear, Refused."""
        self._objects.create(name, content)

    def put(self, name: str, content: bytes) -> None:
        """Create an object, or replace it. Raises Unclear, Refused."""
        self._objects.put(name, content)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of an object from `start` on (None: all). Raises Missing, Unclear, Refused."""
        kept = self._kept.get(name)
        if kept is not None:
            return kept[start : None if length is None else start + length]
        content = self._objects.read(name, start, length)
        if not start and length is None and (name == format.IDENTITY_NAME or format.read_place(name) is not None):
            self._keep(name, content)
        return content

    def list(self, prefix: str, after: str = "") -> list[Found]:
        """Return the objects below a prefix with names after `after`. Raises Unclear, Refused."""
        return self._objects.list(prefix, after)

    def delete(self, name: str) -> None:
        """Remove an object from the store. Raises Unclear, Refused."""
        self._objects.delete(name)

    def has(self, place: Place) -> bool:
        """Return whether the round at this place is kept in memory."""
        return format.place_name(place) in self._kept

    @property
    def is_full(self) -> bool:
        """Whether there is no room for a large round."""
        return self._room < LARGE_BYTES

    def forget_before(self, place: Place) -> None:
        """Drop the kept rounds before this place, because a take-over does not need them."""
        before = format.place_name(place)
        with self._lock:
            for name in [name for name in self._kept if format.JOURNAL < name < before]:
                self._room += len(self._kept.pop(name))

    def keep_nothing(self) -> None:
        """Drop all kept rounds, and keep none from now on."""
        with self._lock:
            self._kept = {}
            self._room = 0

    def _keep(self, name: str, content: bytes) -> None:
        """Keep a round if there is room."""
        with self._lock:
            if len(content) <= self._room and name not in self._kept:
                self._kept[name] = content
                self._room -= len(content)


class ReadingAhead:
    """Reads the rounds of an owner while it is writing, several in parallel. Blocks.

    whole: read whole rounds, so that they are kept in memory; else only their headers.
    """

    def __init__(self, kept: KeptRounds, pause: Pause, *, whole: bool) -> None:
        self._kept = kept
        self._pause = pause
        self._whole = whole

    def newer(self, known: Place) -> tuple[Place, bool]:
        """Return the place of an epoch's newest round, or of the seal that ends the epoch, and whether that seal says
        that the owner has handed over.

        known: the place of an earlier round of the epoch. The names that follow it are read until one does not exist,
        which costs less than a listing: first one name, then several in parallel while there are objects.
        """
        place, at_once = known, 1
        while True:
            places = [Place(place.epoch, place.number + 1 + n) for n in range(at_once)]
            size_bytes = 0
            for following, (there, read_bytes) in zip(places, self._read(places), strict=True):
                if there is None:
                    return place, False
                if isinstance(there, Seal):
                    return following, there.handed_over
                place, size_bytes = following, size_bytes + read_bytes
                self._kept.forget_before(min(there.says.start, place))
            at_once = FEW if size_bytes > MANY_BYTES else min(2 * at_once, MANY)

    def read_before(self, newest: Place) -> None:
        """Read and keep the rounds up to this one that a take-over would read now, as long as there is room.

        Damaged rounds are ignored here: the take-over reports them.
        """
        try:
            self._read_before(newest)
        except ObjectDamaged:
            pass

    def _read_before(self, newest: Place) -> None:
        """Read and keep rounds up to this one. Raises: ObjectDamaged."""
        there, _ = self._read([newest])[0]
        if not isinstance(there, RoundHeader):
            return
        start = there.says.start if there.says.start.epoch == newest.epoch else Place(newest.epoch, 0)
        lacking = [
            place
            for number in range(start.number, newest.number)
            if not self._kept.has(place := Place(newest.epoch, number))
        ]
        for first in range(0, len(lacking), FEW):
            if self._kept.is_full:
                return
            self._read(lacking[first : first + FEW])

    def _read(self, places: list[Place]) -> list[tuple[RoundHeader | Seal | None, int]]:
        """Return, for each of these places, the header of the round or seal there (None if there is no object) and how
        many bytes of the object were read.

        Raises: ObjectDamaged; what the pause raises.
        """
        found: dict[Place, bytes | None] = {}

        def read(place: Place) -> None:
            """Read one object, or its header, and note its bytes; None if it does not exist."""
            name, length = format.place_name(place), None if self._whole else format.HEADER_BYTES
            try:
                found[place] = until_clear(lambda: self._kept.read(name, 0, length), self._pause)
            except Missing:
                found[place] = None

        if len(places) == 1:
            read(places[0])
        else:
            call_all([lambda place=place: read(place) for place in places], "fencepost-reading", len(places))  # type: ignore[misc]
        return [(self._header(place, content), len(content or b"")) for place in places for content in [found[place]]]

    def _header(self, place: Place, content: bytes | None) -> RoundHeader | Seal | None:
        """Decode the header in the bytes that were read at a place; None for None (no object). Raises:
        ObjectDamaged.
        """
        if content is None:
            return None
        try:
            return format.read_header(place, content[: format.HEADER_BYTES])
        except (Malformed, NewerObject) as error:
            raise ObjectDamaged(self._kept.where, format.place_name(place), str(error)) from error
