"""Says who follows a directory (copies it continuously to a store): claims, and how a follower ends the work of its
predecessors.

The rules: each follower has its own epoch, above all others, which it gets by creating its claim. A follower creates
names in one order, without a gap. So another follower ends an epoch by creating the epoch's next name, as a seal: the
earlier follower finds the name taken and stops. Seals of points are never removed. So followers need no clocks that
agree. Before a new follower ends another, it checks whether that one still creates objects, and refuses if so.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ...effects.objects import Exists, Missing, Objects, Unclear
from ..backup.manifest import BackupRefused
from ..checkpoints import Damaged
from . import names
from .creating import NameTaken, Wait, create, list_names, read
from .kinds import Kind, kind_of
from .names import Place
from .point import Claim, Seal, is_seal, pack_claim, pack_seal, unpack_claim, unpack_seal

PROBES = 2


class Fenced(Exception):
    """Raised if another follower has ended this one's epoch. hint: what to do about it."""

    hint = "one follower is enough: stop this one, or the other and start this one again"

    def __init__(self, who: str) -> None:
        super().__init__(f"another follower has taken over: {who}")


class StillFollowed(BackupRefused):
    """Raised if another follower is still creating objects."""


@dataclass
class Claims:
    """The claims in a store, for one follower."""

    objects: Objects
    wait: Wait

    def check_store(self) -> None:
        """Raise BackupRefused for a store that has a journal of brokers, and for one in which a create replaces an
        existing object.

        Raises: BackupRefused, Refused.
        """
        if kind_of(self.objects, self.wait) is Kind.JOURNAL:
            raise BackupRefused(
                f"{self.objects.where} holds the journal of brokers", "a backup needs a prefix of its own"
            )
        content = b"two of this name would be no fence\n"
        made = 0
        for _ in range(PROBES):
            try:
                self.objects.create(names.PROBE, content)
                made += 1
            except (Exists, Unclear):
                pass
        if made == PROBES:
            raise BackupRefused(
                f"{self.objects.where} replaces an object where it should refuse to (If-None-Match is ignored)",
                "use a store with conditional creates: docs/store.md lists some",
            )

    def newest_epoch(self) -> int:
        """Return the newest epoch that a follower has claimed; 0 if there is none."""
        found = list_names(self.objects, names.CLAIMS, self.wait)
        return max((names.claimed_epoch(name) or 0 for name in found), default=0)

    def who(self, epoch: int) -> str:
        """Return a text that names the follower that has claimed an epoch."""
        try:
            claim = unpack_claim(self._read(names.claim(epoch)), names.claim(epoch))
        except (Missing, Damaged):
            return f"epoch {epoch}"
        return f"process {claim.process} on {claim.host}, epoch {epoch}"

    def claim(self, mine: Claim, watch: Callable[[], None], *, take_over: bool) -> int:
        """Claim the next epoch in the store and end all epochs before it. Returns its number.

        watch: waits long enough for a working follower to create an object. take_over: end a follower without a check
        whether it still works. Raises: StillFollowed; Refused.
        """
        newest = self.newest_epoch()
        if newest and not take_over and self._is_at_work(newest, watch):
            raise StillFollowed(
                f"{self.objects.where} has a follower that is at work: {self.who(newest)}",
                "stop it first; --take-over ends it from here",
            )
        epoch = newest + 1
        try:
            create(self.objects, names.claim(epoch), pack_claim(mine), self.wait)
        except NameTaken:
            raise StillFollowed(f"another follower has just begun: {self.who(epoch)}", "one is enough") from None
        for older in range(newest, 0, -1):
            if self._end(older, Seal(epoch, mine.host)):
                break
        return epoch

    def _is_at_work(self, epoch: int, watch: Callable[[], None]) -> bool:
        """Return whether the follower of an epoch is still at work: whether its newest names are others after watch()
        than before. Also True if another follower has claimed a newer epoch meanwhile, so that the caller refuses.
        Returns False without a wait if the follower has ended its epoch itself.
        """
        before = self._newest_names(epoch)
        if before and self._released(before[-1], epoch):
            return False
        watch()
        return self._newest_names(epoch) != before or self.newest_epoch() != epoch

    def _newest_names(self, epoch: int) -> list[str]:
        """Return the newest name of each kind of object in an epoch, and how many rounds there are. If they change, its
        follower is working.
        """
        place = self._newest_point(epoch)
        parts = list_names(self.objects, names.PARTS, self.wait)
        newest_part = max((each for each in parts if _epoch_in(names.PARTS, each) == epoch), default="")
        rounds = self._rounds(place) if place else []
        rounds += list_names(self.objects, names.pieces_of(place), self.wait) if place else []
        return [newest_part, str(len(rounds)), max(rounds, default=""), names.point(place) if place else ""]

    def _released(self, name: str, epoch: int) -> bool:
        """Return whether the follower of an epoch ended it itself, by a seal under this name."""
        if not name:
            return False
        try:
            content = self._read(name)
        except Missing:
            return False
        return is_seal(content) and unpack_seal(content, name).by == epoch

    def _end(self, epoch: int, seal: Seal) -> bool:
        """Seal an epoch, so that its follower can create nothing more. Returns whether the epoch had a point; if so,
        its follower has ended all epochs before it.
        """
        newest = self._newest_point(epoch)
        has_point = newest is not None and (newest.number > 1 or not is_seal(self._read(names.point(newest))))
        last = self.seal_points(epoch, seal)
        if last:
            self.seal_rounds(Place(epoch, last), seal)
        return has_point

    def seal_points(self, epoch: int, seal: Seal) -> int:
        """Create a seal after the newest point, unless there is one. Returns the number of the newest point that is not
        a seal; 0 if there is none.
        """
        while True:
            newest = self._newest_point(epoch)
            number = newest.number if newest else 0
            if newest and is_seal(self._read(names.point(newest))):
                return number - 1
            try:
                create(self.objects, names.point(Place(epoch, number + 1)), pack_seal(seal), self.wait)
                return number
            except NameTaken:  # by a point that came meanwhile, or by another's seal
                continue

    def seal_rounds(self, place: Place, seal: Seal) -> None:
        """Create a seal after the newest rounds of a point, unless there is one."""
        while True:
            found = self._rounds(place)
            newest = max(found, default="")
            parsed = names.place_of_rounds(newest)
            if parsed and is_seal(self._read(newest)):
                return
            try:
                name = names.rounds(place, parsed[1] + 1 if parsed else 1)
                create(self.objects, name, pack_seal(seal), self.wait)
                return
            except NameTaken:
                continue

    def _newest_point(self, epoch: int) -> Place | None:
        """Return the place of an epoch's newest point or seal; None if it has none."""
        places = (names.place_in(names.POINTS, name) for name in list_names(self.objects, names.POINTS, self.wait))
        return max((each for each in places if each and each.epoch == epoch), default=None)

    def _rounds(self, place: Place) -> list[str]:
        """Return the names of all rounds after this point (checkpoint in the store)."""
        return list_names(self.objects, names.rounds_of(place), self.wait)

    def _read(self, name: str) -> bytes:
        """Read an object; wait and try again while the store does not answer."""
        return read(self.objects, name, self.wait)


def _epoch_in(folder: str, name: str) -> int:
    """Return the epoch in the name of a point or part; 0 for any other name."""
    place = names.place_in(folder, name)
    return place.epoch if place else 0
