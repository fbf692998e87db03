"""What a producer's commits need of a database that takes part in them. `client/sql/` has those databases."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from ..errors import KafkaError
from .deciding import Row, Waiting
from .sources import Sources

Wait = Literal["ended", "decided"]
"""When a commit returns: when the broker was told too, or as soon as the database has committed."""


class DatabaseAway(Exception):
    """The database is away, or did not answer: what was asked may be done. Its cause is the driver's error."""


class Block(NamedTuple):
    """The block of a producer's transaction that is open in a database. fail: makes sure that it will be aborted."""

    sources: Sources
    fail: Callable[[KafkaError], None]


class DecidingDatabase(Protocol):
    """What a producer's commits need of a database. block: the producer's transaction that is open in it, else None."""

    block: Block | None

    @property
    def database_id(self) -> str:
        """Return the id of the database. It is stored in the database, so it stays if that moves to another server."""
        ...

    def check_free(self) -> None:
        """Raise IllegalStateError if the connection is not open, or is in a transaction already."""
        ...

    async def begin(self) -> None:
        """Begin a transaction in the database. Raises IllegalStateError, and the driver's error."""
        ...

    async def claim(self, transactional_id: str, again: bool = False) -> Row:
        """Raise the generation in the row of this id by one, in a transaction of its own, and return the row. again: do
        not raise it; wait until no other open transaction has changed the row, and return the row as it is then.
        Raises DatabaseAway, also if that takes too long.
        """
        ...

    async def decide(self, transactional_id: str, generation: int, waiting: Waiting) -> bool:
        """Write into the row of this id, as the last statement of the open transaction, that the decision
        `waiting.number` is to commit. Returns False, and changes nothing, if the row's generation is not `generation`,
        or if the number of its last decision is not below `waiting.number`. Raises the driver's error.
        """
        ...

    async def commit(self) -> None:
        """Commit the open transaction. Raises the driver's error, whether or not it was committed."""
        ...

    async def rollback(self) -> None:
        """Roll back the open transaction, or drop the connection. Never raises."""
        ...

    async def close_number(self, waiting: Waiting) -> Row:
        """Over a connection of its own: write "not committed" for this number unless it or a later one is decided.
        Returns the row as it is then. Raises DatabaseAway.
        """
        ...
