"""What may be wrong with a journal in a store of objects."""

from .fence import Place


class Fenced(OSError):
    """Raised for a round that can never be created: another broker has ended its epoch. Nothing of it was released."""


class Overtaken(Exception):
    """Raised on the way to own an epoch: another broker has begun a later one, or has ended this one."""


class ObjectDamaged(Exception):
    """Raised for an object that is lost, or is not what was written. Nothing was changed."""

    def __init__(self, where: str, name: str, reason: str) -> None:
        super().__init__(f"{where}: {name}: {reason}")
        self.name = name
        self.reason = reason


def told_of_seal(place: Place, by: int) -> str:
    """Return the message for an owner whose round could not be created, because a seal has its name. by: the sealing
    epoch.
    """
    return f"epoch {place.epoch} was ended at round {place.number} by epoch {by}: another broker owns the store now"
