"""Databases by sessions of SQLAlchemy, blocking ones and AsyncSession."""

from functools import partial
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from ..errors import InvalidConfigurationError
from . import postgresql, sqlite
from .connections import FromPool, OfUser
from .interfaces import Adapter, Connections, Database
from .sqlalchemy_adapter import SqlalchemyAdapter
from .sqlalchemy_blocking import SessionAdapter
from .threads import call_blocking

_DRIVERS = {"postgresql": "psycopg", "sqlite": "pysqlite"}  # of blocking engines


def database_of(session: Any, ask: Connections | None, create: bool | None) -> Database:
    """Return the database of a user's session. ask: the connections by which to ask whether the database has
    committed; None: connections of the session's own engine. create: whether to make our tables if they are missing;
    None: for SQLite only.

    Raises InvalidConfigurationError.
    """
    own: Adapter
    if isinstance(session, AsyncSession):
        engine = _async_engine_of(session)
        own, other = SqlalchemyAdapter(session, engine), FromPool(partial(_connected, engine))
    else:
        blocking = _engine_of(session)
        own, other = SessionAdapter(session, blocking), FromPool(partial(_connected_blocking, blocking))
        if blocking.dialect.name == "sqlite":
            return sqlite.Database(blocking.url.database or "", create=create is not False, given=own)
    return postgresql.Database(OfUser(own, ask or other), "the PostgreSQL database", create=bool(create))


async def _connected(engine: AsyncEngine) -> Adapter:
    return SqlalchemyAdapter(await engine.connect(), engine)


async def _connected_blocking(engine: Engine) -> Adapter:
    return SessionAdapter(await call_blocking(engine.connect), engine)


def _async_engine_of(session: AsyncSession) -> AsyncEngine:
    engine = session.bind
    if not isinstance(engine, AsyncEngine) or engine.dialect.name != "postgresql":
        raise InvalidConfigurationError(
            f"{type(session).__qualname__} is not a session of an asynchronous engine of PostgreSQL",
            hint='AsyncSession(create_async_engine("postgresql+asyncpg://…"))',
        )
    return engine


def _engine_of(session: Any) -> Engine:
    """Return the engine of a blocking session. Raises InvalidConfigurationError if there is none, or if it cannot take
    part.
    """
    engine = None
    if isinstance(session, Session):
        try:
            engine = session.get_bind()
        except UnboundExecutionError:
            pass
    if not isinstance(engine, Engine) or _DRIVERS.get(engine.dialect.name) != engine.dialect.driver:
        raise InvalidConfigurationError(
            f"{type(session).__qualname__} is not a session of an engine of PostgreSQL by psycopg, or of SQLite",
            hint='Session(create_engine("postgresql+psycopg://…")), or sqlite:///PATH',
        )
    if session.twophase:
        raise InvalidConfigurationError("a session with twophase=True commits in two steps of its own")
    return engine
