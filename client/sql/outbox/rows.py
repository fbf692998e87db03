"""The outbox table as a user has it: its name, its columns, and what a row means as a record. Pure.

The rule: names are quoted, whatever is in them. What cannot become a record stops the relay and is never skipped.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from ...errors import InvalidConfigurationError, OutboxRowError
from .relaying import Row

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Columns:
    """The column for each part of a row; empty: the table has none for it. seq: the relay's number of the row. sent_at:
    when it was sent, for rows that are kept.
    """

    position: str = "position"
    topic: str = "topic"
    key: str = "key"
    value: str = "value"
    headers: str = "headers"
    seq: str = "seq"
    sent_at: str = "sent_at"

    def found_in(self, table: str, existing: Sequence[str]) -> "Columns":
        """Return these columns for a table; a column that the table lacks and the user has not named becomes "" (none).

        existing: the names of the table's columns. Raises InvalidConfigurationError if a named column, or that of
        position or value, is missing.
        """
        missing = {part: name for part, name in self.parts().items() if name and name not in existing}
        for part, name in missing.items():
            if part in ("position", "value") or name != part:
                raise InvalidConfigurationError(
                    f"table {table} has no column {name!r} for {part}",
                    hint="--columns position=ID,value=PAYLOAD names the columns of a table of your own",
                )
        return replace(self, **dict.fromkeys(missing, ""))

    def parts(self) -> dict[str, str]:
        """Return the name of the column for each field of this class, such as {"position": "id", …}; "" for none."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def columns_of(given: Mapping[str, str] | str | None) -> Columns:
    """Return the columns that a user has named: {"position": "id"} or "position=id,key=". Raises
    InvalidConfigurationError.
    """
    if given is None:
        return Columns()
    if isinstance(given, str):
        pairs = [each.partition("=") for each in given.split(",")]
        if any(not equals for _, equals, _ in pairs):
            raise InvalidConfigurationError(f"columns {given!r} are not PART=COLUMN,PART=COLUMN")
        given = {part.strip(): name.strip() for part, _, name in pairs}
    known = [each.name for each in fields(Columns)]
    for part in given:
        if part not in known:
            raise InvalidConfigurationError(f"a row has no part {part!r}", hint=f"its parts are {', '.join(known)}")
    if "" in (given.get("position"), given.get("value")):
        raise InvalidConfigurationError("an outbox needs a column for position, and one for value")
    return Columns(**given)


def quoted(name: str) -> str:
    """Return a name in double quotes, as SQL needs it. Raises InvalidConfigurationError if it is empty or has a null
    character.
    """
    if not name or "\0" in name:
        raise InvalidConfigurationError(f"{name!r} is not the name of a table or column")
    return '"' + name.replace('"', '""') + '"'


def quoted_table(name: str) -> str:
    """Return the name of a table as SQL needs it. SCHEMA.TABLE is taken for two names, unless it is all in double
    quotes.
    """
    if len(name) > 2 and name[0] == name[-1] == '"':
        return quoted(name[1:-1].replace('""', '"'))
    return ".".join(map(quoted, name.split(".")))


def row_of(found: Sequence[Any]) -> Row:
    """Return a row as the database gave it: position, seq, topic, key, value, headers. Raises OutboxRowError."""
    position, seq, topic, key, value, headers = found
    try:
        if topic is not None and not isinstance(topic, str):
            raise ValueError(f"its topic is {type(topic).__name__}, not text")
        return Row(position, seq or 0, topic or None, _bytes_of(key), _bytes_of(value), headers_of(headers))
    except ValueError as error:
        raise bad_row(position, str(error)) from None


def check_distinct(table: str, column: str, values: Sequence[Any]) -> None:
    """Raise InvalidConfigurationError if two of these values of a column are equal: rows with one position have no
    order, and with one number those after the first would be lost.
    """
    if len(set(values)) < len(values):
        raise InvalidConfigurationError(
            f"two rows of {table} have the same {column!r}",
            hint="name a column that is unique and grows: --columns position=ID",
        )


def bad_row(position: Any, why: str) -> OutboxRowError:
    """Return the error for a row that cannot be sent."""
    return OutboxRowError(f"the row at position {position} cannot be sent: {why}", position=position)


def _bytes_of(value: Any) -> bytes | None:
    """Return a key or value as bytes: text as UTF-8, an object or list (which a driver decoded from JSON) as JSON,
    anything else as its text; None for None.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(cast(bytes, value))
    if isinstance(value, dict | list):
        value = cast(object, value)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return str(value).encode()


def headers_of(given: Any) -> list[Header] | None:
    """Return the headers from JSON: an object, or an array of [name, value]. A value is text or null. None for an empty
    text or null. Raises ValueError.
    """
    if isinstance(given, bytes | bytearray | memoryview):
        given = bytes(cast(bytes, given)).decode()
    if isinstance(given, str):
        if not given.strip():
            return None
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise ValueError("its headers are not JSON") from None
    if given is None:
        return None
    if isinstance(given, dict):
        given = list(cast(Mapping[str, object], given).items())
    if not isinstance(given, list):
        raise ValueError("its headers are neither a JSON object nor an array of [name, value]")
    return [_header(pair) for pair in cast(Sequence[object], given)]


def _header(pair: Any) -> Header:
    if not isinstance(pair, list | tuple) or len(cast(list[Any], pair)) != 2:
        raise ValueError("a header is not [name, value]")
    name, value = cast(list[Any], pair)
    if not isinstance(name, str) or not (value is None or isinstance(value, str)):
        raise ValueError("a header has a name that is text, and a value that is text or null")
    try:
        name.encode()
        return name, None if value is None else value.encode()
    except UnicodeEncodeError:  # a lone surrogate, from \\ud800
        raise ValueError("a header is not valid Unicode") from None
