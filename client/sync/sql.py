"""Blocking databases that take part in commits: `from fencepost.sync import sql`. `taking_part.py` is one of them."""

from typing import Any

from ..sql import connecting
from ..sql.forgetting import forget as async_forget
from ..sql.outbox.statements import outbox_schema
from ..sql.resolving import Resolved
from ..sql.resolving import resolve as async_resolve
from ..sql.statements import schema
from .blocking import inner_of
from .inbox import Inbox, inbox, keep_places
from .loop_thread import loop_thread
from .outbox import Outbox, outbox
from .taking_part import Database

__all__ = [
    "Database",
    "Inbox",
    "Outbox",
    "Resolved",
    "connect",
    "forget",
    "inbox",
    "keep_places",
    "outbox",
    "outbox_schema",
    "resolve",
    "schema",
]


def connect(given: Any, *, create: bool | None = None, ask: Any = None) -> Database:
    """Return a database that can take part in transactions. Like fencepost.sql.connect; given: also a connection or a
    pool of a blocking driver: sqlite3, psycopg; a Session of SQLAlchemy; or the calling thread's connection of Django.
    """
    own = connecting.of_this_thread(given)
    if connecting.is_django(own):
        from .django import DjangoDatabase

        return DjangoDatabase(own, connecting.asked(ask), create)
    return Database(lambda: connecting.connect(own, create=create, ask=ask))


def resolve(bootstrap_servers: Any, db: Database, **options: Any) -> list[Resolved]:
    """End the prepared transactions that producers left waiting for a decision of this database. Like
    fencepost.sql.resolve.
    """
    return loop_thread().run(lambda: async_resolve(bootstrap_servers, inner_of(db), **options))


def forget(bootstrap_servers: Any, db: Database, transactional_id: str, **options: Any) -> bool:
    """Remove what database and broker know of an id that will not write again. Like fencepost.sql.forget."""
    return loop_thread().run(lambda: async_forget(bootstrap_servers, inner_of(db), transactional_id, **options))
