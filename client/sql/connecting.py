"""`sql.connect(…)`: which database is meant. The module of a database is imported when it is used."""

import importlib
import importlib.util
import os
import sqlite3
from functools import partial
from types import ModuleType
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from ..errors import IllegalStateError, InvalidConfigurationError
from . import postgresql, sqlite
from .connections import FromPool, OfUser, OneConnection
from .interfaces import Connections, Database
from .sqlite_adapter import SqliteAdapter
from .sqlite_statements import run

DRIVERS = {"asyncpg": "asyncpg_adapter", "psycopg": "psycopg_opening"}
"""The drivers of PostgreSQL and the modules here that use them, the preferred one first."""
_KNOWN = "sqlite:///PATH, postgresql://USER@HOST/DATABASE"


def connect(given: Any, *, create: bool | None = None, ask: Any = None) -> Database:
    """Return a database that can take part in transactions: `async with sql.connect("sqlite:///orders.db") as db`.

    given: sqlite:///RELATIVE/PATH or sqlite:////ABSOLUTE/PATH; postgresql://…, as its driver reads it, or
    postgresql+psycopg://…, which chooses one; a pool or a connection of asyncpg or psycopg; an AsyncSession or a
    Session of SQLAlchemy; or a connection of sqlite3. create: whether to make the tables of `sql.schema` if they are
    missing; None: yes for SQLite. ask: for a connection to PostgreSQL, the URL or pool by which the database is asked
    if COMMIT has no answer.
    Raises InvalidConfigurationError.
    """
    given = of_this_thread(given)
    if isinstance(given, sqlite3.Connection):
        return _sqlite_of_user(given, create is not False)
    if not isinstance(given, str):
        if is_django(given):
            raise InvalidConfigurationError("Django's connection blocks", hint="from fencepost.sync import sql")
        if _driver_of(given) == "sqlalchemy":
            opening = importlib.import_module(".sqlalchemy_opening", __package__)
            return cast(Database, opening.database_of(given, asked(ask), create))
        connections = _given(given, ask)
        return postgresql.Database(connections, "the PostgreSQL database", create=bool(create))
    scheme = given.partition(":")[0]
    if scheme == "sqlite":
        return _sqlite(given, create is not False)
    if scheme.partition("+")[0] in ("postgresql", "postgres"):
        return postgresql.Database(_by_url(given), _shown(given), create=bool(create))
    raise InvalidConfigurationError(f"{scheme!r} is not a database that can take part", hint=_KNOWN)


def _sqlite(url: str, create: bool) -> sqlite.Database:
    """Return the database that a sqlite URL names. create: make missing tables. Raises InvalidConfigurationError for a
    URL without a file.
    """
    _, host, path, query, fragment = urlsplit(url)
    name = unquote(path[1:])
    if host or query or fragment or not name or name.startswith(":memory:"):
        raise InvalidConfigurationError(
            f"{url!r} does not name a file: what is committed has to outlive this process",
            hint="sqlite:///RELATIVE/PATH or sqlite:////ABSOLUTE/PATH",
        )
    return sqlite.Database(name, create=create)


def _sqlite_of_user(connection: sqlite3.Connection, create: bool) -> sqlite.Database:
    """Return the database of the file that this connection has open. Raises InvalidConfigurationError for a connection
    that cannot be used, IllegalStateError if it is in a transaction.
    """
    try:
        path = os.fsdecode(run(connection, "pragma database_list").fetchone()[2])
        if not isinstance(run(connection, "select 'text'").fetchone()[0], str):
            raise InvalidConfigurationError("the connection's text_factory is not str, so its text is not text")
    except sqlite3.ProgrammingError as error:
        raise InvalidConfigurationError(str(error), hint="sqlite3.connect(…, check_same_thread=False)") from None
    if not path:
        raise InvalidConfigurationError("a database in memory does not outlive this process", hint=_KNOWN)
    if connection.in_transaction:
        raise IllegalStateError("the connection is in a transaction already: a block begins its own")
    return sqlite.Database(path, create=create, given=SqliteAdapter(connection, is_own=False))


def _by_url(url: str) -> OneConnection:
    """Return the object that makes connections to the server of this URL. postgresql+DRIVER:// chooses a driver."""
    scheme, _, rest = url.partition(":")
    adapter = _adapter_of(scheme.partition("+")[2])
    return OneConnection(partial(adapter.connected, f"postgresql:{rest}", postgresql.CONNECT_TIMEOUT_S))


def _adapter_of(driver: str) -> ModuleType:
    """Return our module for this driver of PostgreSQL. driver: its name; empty for the first that is installed. Raises
    InvalidConfigurationError if it is unknown or not installed.
    """
    if driver and driver not in DRIVERS:
        raise InvalidConfigurationError(f"there is no driver {driver!r}", hint=f"one of {', '.join(DRIVERS)}")
    named = [driver] if driver else list(DRIVERS)
    found = next((name for name in named if importlib.util.find_spec(name) is not None), None)
    if found is None:
        raise InvalidConfigurationError(
            f"PostgreSQL needs {' or '.join(named)}, which is not installed",
            hint=f'pip install "fencepost[sql-{named[0]}]"',
        )
    return importlib.import_module(f".{DRIVERS[found]}", __package__)


def _given(given: Any, ask: Any) -> Connections:
    """Return the object that gives connections, for a pool or a connection of the user. ask: for a connection, the
    URL or pool by which to ask whether the database has committed. Raises InvalidConfigurationError.
    """
    driver = _driver_of(given)
    if driver not in DRIVERS:
        kind: type[object] = given.__class__
        raise InvalidConfigurationError(
            f"{kind.__module__}.{kind.__qualname__} is not a database that can take part",
            hint=f"{_KNOWN}, or a pool or a connection of {' or '.join(DRIVERS)}",
        )
    adapter = _adapter_of(driver)
    if adapter.is_pool(given):
        return FromPool(partial(adapter.acquired, given, postgresql.CONNECT_TIMEOUT_S))
    own = asked(ask)
    if own is None:
        raise InvalidConfigurationError(
            "a connection alone cannot be asked what its COMMIT did after it was lost",
            hint='sql.connect(connection, ask="postgresql://…"), or ask=POOL',
        )
    return OfUser(adapter.of_user(given), own)


def of_this_thread(given: Any) -> Any:
    """Return what a proxy of SQLAlchemy or Django stands for in the calling thread; anything else as it is."""
    kind = type(given).__module__
    if kind == "sqlalchemy.orm.scoping":
        return given()
    if kind == "django.utils.connection":
        return importlib.import_module("django.db").connections[given.alias]
    return given


def is_django(given: Any) -> bool:
    """Return whether this is a connection of Django, or of a class that somebody has made of it."""
    return any(each.__module__.startswith("django.db.") for each in type(given).__mro__)


def _driver_of(given: Any) -> str:
    """Return the package of the object's class, or of one that it is made from; psycopg for psycopg_pool. Empty for
    one that is not known here.
    """
    packages = (each.__module__.partition(".")[0].removesuffix("_pool") for each in type(given).__mro__)
    return next((name for name in packages if name in DRIVERS or name == "sqlalchemy"), "")


def asked(ask: Any) -> Connections | None:
    """Return the object that makes the connections by which the database is asked whether it has committed. ask: a URL
    or a pool. Returns None if `ask` is None.
    """
    if ask is None:
        return None
    return _by_url(ask) if isinstance(ask, str) else _given(ask, None)


def _shown(url: str) -> str:
    """Return the URL without its password and options."""
    scheme, host, path, _, _ = urlsplit(url)
    return f"{scheme}://{host.rpartition('@')[2]}{path}"
