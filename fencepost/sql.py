"""Databases that take part in a producer's transactions: `from fencepost import sql`. docs/how-to/database.md."""

from .client.sql.connecting import connect
from .client.sql.forgetting import forget
from .client.sql.inbox import Inbox, inbox
from .client.sql.interfaces import Database
from .client.sql.keeping import keep_places
from .client.sql.outbox.relay import Outbox, outbox
from .client.sql.outbox.statements import outbox_schema
from .client.sql.resolving import Resolved, resolve
from .client.sql.statements import schema

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
