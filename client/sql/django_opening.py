"""Databases by connections of Django."""

from typing import Any

from ..errors import IllegalStateError, InvalidConfigurationError
from . import postgresql, sqlite
from .connections import FromPool, OfUser
from .django_adapter import DjangoAdapter
from .django_lending import CONNECTIONS
from .interfaces import Connections, Database


def database_of(adapter: DjangoAdapter, wrapper: Any, ask: Connections | None, create: bool | None) -> Database:
    """Return the database of Django's connection. ask: the connections by which to ask whether the database has
    committed; None: new ones with the same settings. create: whether to make our tables if they are missing; None: for
    SQLite only.

    Raises InvalidConfigurationError.
    """
    if not wrapper.settings_dict["AUTOCOMMIT"]:
        raise InvalidConfigurationError(
            f"the connection {wrapper.alias!r} of Django has AUTOCOMMIT=False",
            hint="a block begins a transaction itself",
        )
    if wrapper.vendor == "sqlite":
        path = str(wrapper.settings_dict["NAME"])
        return sqlite.Database(path, create=create is not False, given=adapter)
    if wrapper.vendor != "postgresql" or wrapper.Database.__name__ != "psycopg":
        raise InvalidConfigurationError(
            f"the connection {wrapper.alias!r} of Django is one of {wrapper.vendor} by {wrapper.Database.__name__}",
            hint="SQLite and PostgreSQL by psycopg 3 can take part: pip install psycopg",
        )

    async def another() -> DjangoAdapter:
        return DjangoAdapter(wrapper.copy())

    name = f"the connection {wrapper.alias!r} of Django"
    return postgresql.Database(OfUser(adapter, ask or FromPool(another)), name, create=bool(create))


def check_thread(wrapper: Any) -> None:
    """Raise IllegalStateError if Django uses another connection under this alias in the calling thread."""
    if CONNECTIONS[wrapper.alias] is not wrapper:
        raise IllegalStateError(
            f"the connection {wrapper.alias!r} is another thread's: what this one writes would be committed by itself",
            hint="sync.sql.connect(connection) in each thread",
        )
