"""The header of a request: its API and version, the correlation id, and the client id.

The rule: the client id is in the old encoding even where tagged fields follow it, and none is the same as an empty one.
The correlation id is echoed and means nothing. Source: Kafka's RequestHeader.json.
"""

import struct

from .apis import APIS, NEVER
from .errors import MalformedFrame
from .primitives import Readable, refuse_length, skip_tags

_FIXED = struct.Struct(">hhih").unpack_from
_FIXED_BYTES = 10

_FLEXIBLE_FROM = {key: api.flexible_from for key, api in APIS.items()}


class RequestHeader:
    """A request's header. `position` is where the body begins in the frame."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "position")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str, position: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.position = position

    def __repr__(self) -> str:
        return f"RequestHeader(api {self.api_key} v{self.api_version}, #{self.correlation_id}, {self.client_id!r})"


def read_request_header(frame: Readable) -> RequestHeader:
    """Decode the header of a frame, of any API and version. Raises MalformedFrame."""
    try:
        api_key, api_version, correlation_id, size = _FIXED(frame)
        position, client_id = _FIXED_BYTES, ""
        if size > 0:
            position += size
            client_id = str(frame[_FIXED_BYTES:position], "utf-8")
        elif size < -1:
            refuse_length(size)
        if api_version >= _FLEXIBLE_FROM.get(api_key, NEVER):
            tags = frame[position]
            position += 1
            if tags:
                position = skip_tags(frame, position, tags)
    except (IndexError, UnicodeDecodeError, struct.error) as error:
        raise MalformedFrame(f"request header: {error}") from error
    if position > len(frame):
        refuse_length(position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)
