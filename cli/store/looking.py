"""An object store that a command reads: what it is used for, and how long calls to it are repeated."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...effects.objects import Objects, ObjectsError, Refused
from ...storage.objects.errors import ObjectDamaged, Overtaken
from ...storage.shipping.kinds import Kind, kind_of
from ..backup.following import ONCE_S, explain
from ..backup.patience import Patience
from ..backup.places import objects_of
from ..output.failures import CONFLICT, FAILED, Failure
from ..output.interruption import Interruption
from ..output.writing import show


@dataclass(frozen=True)
class Asked:
    """The store of a command, with what is needed for calls to it."""

    objects: Objects
    kind: Kind
    patience: Patience
    interruption: Interruption

    @property
    def is_journal(self) -> bool:
        return self.kind is Kind.JOURNAL

    def pause(self, error: ObjectsError, attempts: int) -> None:
        """Wait before a failed call is repeated. Raises Refused at once, and any other error when the store has not
        answered for too long.
        """
        if isinstance(error, Refused):
            raise error
        self.patience(error)


@contextmanager
def looking_into(url: str, directory: str = "DIR") -> Iterator[Asked]:
    """Open the store of a URL, and find out what it is used for. Yields an Asked: the store, and what it is used for.
    An error of the store in the block is raised as a Failure. directory: what its text calls the data directory.
    """
    objects = objects_of(url)
    with Interruption() as interruption:
        patience = Patience(interruption.check, lambda line: show(line, err=True), ONCE_S)
        try:
            yield Asked(objects, kind_of(objects, patience), patience, interruption)
        except BrokenPipeError:  # of the standard output
            raise
        except Exception as error:
            raise failure_of_store(error, directory) from None


def failure_of_store(error: Exception, directory: str) -> Failure:
    """Return the failure for an error of a store, or of a data directory made from it."""
    if isinstance(error, ObjectDamaged):
        return Failure(str(error), error.hint, FAILED)
    if isinstance(error, Overtaken):
        return Failure(str(error), "fencepost store status URL shows who owns the store now", CONFLICT)
    return explain(error, directory)
