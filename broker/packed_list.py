"""Keys and values of the security log's records: each is a msgpack list. Pure. docs/formats.md, "Security log"."""

from typing import Any

import msgpack


def unpack_list(packed: bytes, error: type[Exception]) -> list[Any]:
    """Return the elements of a packed list. Raises `error` if the bytes are not a list, or an empty one; its text shows
    none of the bytes.
    """
    try:
        found = msgpack.unpackb(packed, raw=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        found = None
    if not isinstance(found, list) or not found:
        raise error("a record that does not parse")
    return found
