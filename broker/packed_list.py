"""Keys and values of the security log's records: each one msgpack list. Pure. docs/formats.md, "Security log"."""

from typing import Any

import msgpack


def unpack_list(packed: bytes, error: type[Exception]) -> list[Any]:
    """Return the elements, at least one. Raises `error` without any of the bytes, if they are not such a list."""
    try:
        found = msgpack.unpackb(packed, raw=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        found = None
    if not isinstance(found, list) or not found:
        raise error("a record that does not parse")
    return found
