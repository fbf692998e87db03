"""Errors of a journal in an object store."""

from .fence import Place
from .format import NewerObject

BRING_IT_BACK = "bring that object back, from a copy of the bucket if need be"
UPGRADE = "start a newer fencepost; the object is undamaged, so do not replace it"


class Fenced(OSError):
    """Raised for a round that can never be created, because another broker has ended its epoch. None of its units was
    released. hint: what to do about it.
    """

    hint = "nothing was acknowledged since; start it again: it waits until that broker is gone"


class Overtaken(Exception):
    """Raised while a broker is becoming the owner of an epoch, if another ends that epoch or begins a later one."""


class AdoptionBegun(Exception):
    """Raised for a broker with an empty data directory, if another has begun to put its directory into the store, where
    no epoch has begun yet. If the empty one began, the other's data would not get there any more.
    """


class ObjectDamaged(Exception):
    """Raised for an object that is lost, or is not what was written. Nothing was changed."""

    def __init__(self, where: str, name: str, reason: str) -> None:
        super().__init__(f"{where}: {name}: {reason}")
        self.name = name
        self.reason = reason

    @property
    def hint(self) -> str:
        """What to do about it. An older copy in place of an object of a newer format would destroy what it has."""
        return UPGRADE if isinstance(self.__cause__, NewerObject) else BRING_IT_BACK


def ended_message(place: Place, by: int) -> str:
    """Return the error message for an owner whose round could not be created, because a seal has its name. by: the
    epoch of the broker that made the seal.
    """
    return f"epoch {place.epoch} was ended at round {place.number} by epoch {by}: another broker owns the store now"
