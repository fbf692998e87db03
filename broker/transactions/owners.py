"""The owner of each transactional id: the client whose InitProducerId was answered last.

The rule: owners are kept in memory only, to be shown to admins; no decision depends on them. After a start an id has no
owner until its producer sends a request. Only the beginning of the names that clients choose is kept, because there may
be a million ids, and a client id may have 32 KB.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..net.connection import Connection

LONGEST_NAME = 250  # characters of a client id or software that are kept and shown


class Owner(NamedTuple):
    """The client that owns an id. Long names are cut to LONGEST_NAME characters. number: of its connection, counted as
    connections are accepted.
    """

    client_id: str | None
    software: str
    host: str
    listener: str
    principal: str
    number: int


def owner_of(connection: Connection) -> Owner:
    """Return who is at the other end of a connection now: client, host, listener and principal."""
    listener = connection.listener
    return Owner(
        None if connection.client_id is None else connection.client_id[:LONGEST_NAME],
        connection.client_software[:LONGEST_NAME],
        connection.session.host or connection.client_host,
        listener.name if listener is not None else "",
        str(connection.session.principal),
        connection.number,
    )


class Owners:
    """The clients that own the transactional ids of one coordinator."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        """is_known: returns whether a transactional id exists."""
        self._is_known = is_known
        self._owners: dict[str, Owner] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def took(self, transactional_id: str, connection: Connection) -> None:
        """Make the client of this connection the owner of the id. Call it after a successful InitProducerId. An unknown
        id is ignored.
        """
        if self._is_known(transactional_id):
            self._owners[transactional_id] = owner_of(connection)

    def heard(self, transactional_id: str, connection: Connection) -> None:
        """Note a request of the id's current producer. If no owner is known, as after a restart, the client of the
        connection becomes the owner.
        """
        if transactional_id not in self._owners:
            self.took(transactional_id, connection)

    def forget(self, transactional_id: str) -> None:
        """Remove the owner of a transactional id that does not exist any more."""
        self._owners.pop(transactional_id, None)

    def get(self, transactional_id: str) -> Owner | None:
        """Return the id's owner; None if it is not known."""
        return self._owners.get(transactional_id)

    def of(self, transactional_ids: Iterable[str]) -> list[tuple[str, Owner]]:
        """Return pairs (id, owner) for those ids whose owner is known."""
        return [(each, self._owners[each]) for each in transactional_ids if each in self._owners]
