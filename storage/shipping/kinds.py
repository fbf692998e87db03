"""What an object store is used for: the backup of a data directory, or the journal of brokers. Never both.

The rule: before anything is written to a store, its use is checked, so that a backup never mixes with a journal.
"""

from enum import Enum

from ...effects.objects import Missing, Objects
from . import names
from .creating import Wait, ask


class Kind(Enum):
    """What is found in a store."""

    NOTHING = 0
    BACKUP = 1
    JOURNAL = 2


def kind_of(objects: Objects, wait: Wait) -> Kind:
    """Return what a store is used for, judged by the names in it. Raises: Refused; what `wait` raises."""
    try:
        ask(lambda: objects.read(names.JOURNAL_IDENTITY, 0, 1), wait)
        return Kind.JOURNAL
    except Missing:
        pass
    for folder, kind in (
        (names.JOURNAL_OWNERS, Kind.JOURNAL),
        (names.CLAIMS, Kind.BACKUP),
        (names.POINTS, Kind.BACKUP),
    ):
        if ask(lambda folder=folder: objects.list(folder), wait):  # type: ignore[misc]
            return kind
    return Kind.NOTHING
