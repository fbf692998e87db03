"""The APIs: their keys, messages and versions, and whole frames to messages and back.

The rule: what an API is stands in its message classes and nowhere else; this is their index. A request that does not
fill its frame exactly is malformed. The header of an ApiVersions response is always of version 0, so that a client can
read it before the two have agreed on anything (KIP-511).
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from .compile import decoder, encoder
from .decoding import Decoder
from .encoding import Encoder
from .errors import MalformedFrame
from .messages import cluster, configs, fetch, groups, offsets, produce, topics, transactions
from .primitives import Buffer, Readable, skip_tags
from .schema import Versions, schema_of

API_VERSIONS = 18

_MODULES = (produce, fetch, offsets, cluster, topics, configs, groups, transactions)

_INT32 = Struct(">i").unpack_from
_RESPONSE_HEAD = Struct(">ii").pack  # length, correlation id
_FLEXIBLE_RESPONSE_HEAD = Struct(">iix").pack  # and no tagged fields
_REQUEST_HEAD = Struct(">hhih").pack  # api key, version, correlation id, length of the client id


class _ByVersion(dict[int, Any]):
    """What is made for a version when it is first asked for."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, version: int) -> Any:
        made = self[version] = self._make(version)
        return made


class Api:
    """One API: its key and name, its two messages, and its versions.

    `min` to `max` are answered; `advertised_min` is where the list of versions says that they begin; `declared` are
    those that can be read and written. From `flexible_from` on, headers and bodies carry tagged fields.
    """

    __slots__ = (
        "advertised_min",
        "answers",
        "declared",
        "flexible_from",
        "key",
        "max",
        "min",
        "name",
        "request",
        "request_decoders",
        "request_encoders",
        "response",
        "response_decoders",
    )

    def __init__(self, request: type, response: type) -> None:
        schema = schema_of(request)
        if schema.api is None:
            raise TypeError(f"{request.__name__} has no api key")
        self.key: int = schema.api
        self.name: str = request.__name__.removesuffix("Request")
        self.request = request
        self.response = response
        self.declared: Versions = schema.versions
        self.min: int = schema.serves.low
        self.max: int = schema.serves.high
        self.advertised_min: int = schema.listed_from
        self.flexible_from: int = schema.flexible.low
        self.request_decoders: dict[int, Decoder] = _ByVersion(lambda version: decoder(request, version))
        self.request_encoders: dict[int, Encoder] = _ByVersion(lambda version: encoder(request, version))
        self.response_decoders: dict[int, Decoder] = _ByVersion(lambda version: decoder(response, version))
        self.answers: dict[int, tuple[Encoder, Callable[[int, int], bytes], int]] = _ByVersion(self._answer)

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, {self.min}-{self.max})"

    def serves(self, version: int) -> bool:
        """Whether a request of this version is answered."""
        return self.min <= version <= self.max

    def has_flexible_response_header(self, version: int) -> bool:
        return version >= self.flexible_from and self.key != API_VERSIONS

    def _answer(self, version: int) -> tuple[Encoder, Callable[[int, int], bytes], int]:
        """What it takes to write a response: the body's encoder, the head, and its size without the length."""
        encode = encoder(self.response, version)
        return (
            (encode, _FLEXIBLE_RESPONSE_HEAD, 5)
            if self.has_flexible_response_header(version)
            else (
                encode,
                _RESPONSE_HEAD,
                4,
            )
        )


def _index() -> dict[int, Api]:
    messages = [found for module in _MODULES for found in vars(module).values() if hasattr(found, "__schema__")]
    answers = {schema_of(cls).answers: cls for cls in messages if schema_of(cls).answers}
    apis = [Api(cls, answers[cls]) for cls in messages if cls in answers]
    return {api.key: api for api in sorted(apis, key=lambda api: api.key)}


APIS: dict[int, Api] = _index()
"""Every API that has messages here, by key."""


def decode_request(api: Api, version: int, frame: Readable, position: int) -> Any:
    """The request whose body begins at `position` of a frame, which it must fill. Its records are views of the frame.

    Raises MalformedFrame; KafkaError for a version that is not declared.
    """
    request, end = api.request_decoders[version](frame, position)
    if end != len(frame):
        raise MalformedFrame(f"{api.name} v{version}: {len(frame) - end} bytes after the request")
    return request


def encode_response(api: Api, version: int, correlation_id: int, response: Any) -> list[Buffer]:
    """The whole frame, length prefix included, as buffers to be sent one after another; records are not copied."""
    encode, head, head_bytes = api.answers[version]
    buffers = encode(response)
    size = head_bytes + (len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers)))
    buffers[0] = head(size, correlation_id) + buffers[0]
    return buffers


def encode_request(api: Api, version: int, correlation_id: int, client_id: str, request: Any) -> list[Buffer]:
    """The whole frame, length prefix included, as buffers to be sent one after another; records are not copied."""
    buffers = api.request_encoders[version](request)
    client = client_id.encode()  # in the old encoding whatever the version: a broker must always find it
    tags = b"\x00" if version >= api.flexible_from else b""
    head = _REQUEST_HEAD(api.key, version, correlation_id, len(client)) + client + tags
    size = len(head) + sum(map(len, buffers))
    buffers[0] = size.to_bytes(4, "big") + head + buffers[0]
    return buffers


def decode_response(api: Api, version: int, frame: Readable) -> tuple[int, Any]:
    """The correlation id and the response that a frame carries. Its records are views of the frame.

    Raises MalformedFrame; KafkaError for a version that is not declared.
    """
    flexible = api.has_flexible_response_header(version)
    if len(frame) < (5 if flexible else 4):
        raise MalformedFrame(f"a response of {len(frame)} bytes")
    (correlation_id,) = _INT32(frame)
    response, end = api.response_decoders[version](frame, _body_position(frame) if flexible else 4)
    if end != len(frame):
        raise MalformedFrame(f"{api.name} v{version}: {len(frame) - end} bytes after the response")
    return correlation_id, response


def _body_position(frame: Readable) -> int:
    try:
        return skip_tags(frame, 5, frame[4])
    except IndexError:
        raise MalformedFrame("a response header that does not end") from None
