"""`sql.connect(url)`: which database a URL names. The module of a database is imported when its URL is used."""

from urllib.parse import unquote, urlsplit

from ..errors import InvalidConfigurationError
from .sqlite import Database


def connect(url: str, *, create: bool | None = None) -> Database:
    """Return a database that can take part in transactions: `async with sql.connect("sqlite:///orders.db") as db`.

    url: sqlite:///RELATIVE/PATH or sqlite:////ABSOLUTE/PATH. create: whether to make the tables of `sql.schema` if they
    are missing; None: yes for SQLite. Raises InvalidConfigurationError.
    """
    scheme, host, path, query, fragment = urlsplit(url)
    if scheme != "sqlite":
        raise InvalidConfigurationError(f"{scheme!r} is not a database that can take part", hint="sqlite:///PATH")
    name = unquote(path[1:])
    if host or query or fragment or not name or name.startswith(":memory:"):
        raise InvalidConfigurationError(
            f"{url!r} does not name a file: what is committed has to outlive this process",
            hint="sqlite:///RELATIVE/PATH or sqlite:////ABSOLUTE/PATH",
        )
    return Database(name, create=create is not False)
