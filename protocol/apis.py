"""The APIs: their keys, messages and versions, and how whole frames are decoded and encoded.

The rule: an API is described by its message classes and nowhere else; this is their index. A request may be followed by
bytes that mean nothing, a response may not. The header of an ApiVersions response is always of version 0, so that a
client can read it before the two have agreed on anything (KIP-511).
"""

import struct
from collections.abc import Callable, Generator
from typing import Any

from .compile import decoder, decoder_in_steps, encoder, encoder_in_steps
from .decoding import Decoder, DecoderInSteps
from .encoding import Encoder, EncoderInSteps
from .errors import ErrorCode, KafkaError, MalformedFrame
from .messages import (
    acls,
    cluster,
    configs,
    consumer_groups,
    fetch,
    groups,
    ledger,
    monitoring,
    named_producers,
    offsets,
    produce,
    quotas,
    replicas,
    scram_users,
    security,
    share_fetch,
    share_groups,
    share_offsets,
    share_transactions,
    topics,
    transactions,
)
from .primitives import Buffer, Readable, skip_tags
from .schema import Versions, schema_of

API_VERSIONS = 18
NEVER = 1 << 15
"""A version that is above all versions."""

_MODULES = (
    produce,
    fetch,
    offsets,
    cluster,
    replicas,
    topics,
    configs,
    groups,
    consumer_groups,
    transactions,
    security,
    scram_users,
    quotas,
    acls,
    share_groups,
    share_fetch,
    share_transactions,
    share_offsets,
    ledger,
    monitoring,
    named_producers,
)

_INT32 = struct.Struct(">i").unpack_from
_RESPONSE_HEAD = struct.Struct(">ii").pack  # length, correlation id
_FLEXIBLE_RESPONSE_HEAD = struct.Struct(">iix").pack  # and no tagged fields
_REQUEST_HEAD = struct.Struct(">hhih").pack  # api key, version, correlation id, length of the client id


def _compile_late(versions: Versions, compiled: Callable[[int], Callable[..., Any]]) -> dict[int, Callable[..., Any]]:
    """Return a codec for each version, in a plain dict, which is the fastest to look up. Each is compiled at its first
    use.
    """
    codecs: dict[int, Callable[..., Any]] = {}

    def late(version: int) -> Callable[..., Any]:
        """Return a function that compiles the codec of this version, puts it into the dict, and calls it."""

        def first(*arguments: Any) -> Any:
            """Compile the codec, put it into the dict, and call it."""
            codec = codecs[version] = compiled(version)
            return codec(*arguments)

        return first

    codecs.update((version, late(version)) for version in versions)
    return codecs


class Api:
    """One API: its key and name, its request and response, and its versions.

    Versions from `min` to `max` are answered; `advertised_min` is the lowest in the answer to ApiVersions; `declared`
    are those that can be decoded and encoded. From `flexible_from` on, headers and bodies have tagged fields.
    `since` is 0, or of an API of our own the lowest version of fencepost.version that has it.
    """

    __slots__ = (
        "advertised_min",
        "declared",
        "flexible_from",
        "flexible_responses_from",
        "key",
        "max",
        "min",
        "name",
        "request",
        "request_decoders",
        "request_decoders_in_steps",
        "request_encoders",
        "response",
        "response_decoders",
        "response_encoders",
        "response_encoders_in_steps",
        "since",
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
        self.since: int = schema.since
        flexible = schema.flexible
        self.flexible_from: int = flexible.low if flexible.low <= flexible.high else NEVER
        self.flexible_responses_from: int = NEVER if self.key == API_VERSIONS else self.flexible_from
        self.request_decoders: dict[int, Decoder] = _compile_late(self.declared, lambda v: decoder(request, v))
        self.request_decoders_in_steps: dict[int, DecoderInSteps] = _compile_late(
            self.declared, lambda v: decoder_in_steps(request, v)
        )
        self.request_encoders: dict[int, Encoder] = _compile_late(self.declared, lambda v: encoder(request, v))
        self.response_decoders: dict[int, Decoder] = _compile_late(self.declared, lambda v: decoder(response, v))
        self.response_encoders: dict[int, Encoder] = _compile_late(self.declared, lambda v: encoder(response, v))
        self.response_encoders_in_steps: dict[int, EncoderInSteps] = _compile_late(
            self.declared, lambda v: encoder_in_steps(response, v)
        )

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, {self.min}-{self.max})"

    def serves(self, version: int) -> bool:
        """Return whether a request of this version is answered."""
        return self.min <= version <= self.max

    def undeclared(self, version: int) -> KafkaError:
        """Return the error for a version that cannot be decoded or encoded."""
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{self.name} has no version {version}")


def _index() -> dict[int, Api]:
    """Return all APIs of the message modules, by key."""
    messages = [found for module in _MODULES for found in vars(module).values() if hasattr(found, "__schema__")]
    answers = {schema_of(cls).answers: cls for cls in messages if schema_of(cls).answers}
    apis = [Api(cls, answers[cls]) for cls in messages if cls in answers]
    return {api.key: api for api in sorted(apis, key=lambda api: api.key)}


APIS: dict[int, Api] = _index()
"""Every API that has messages here, by key."""


def decode_request(api: Api, version: int, frame: Readable, position: int) -> Any:
    """Decode the request whose body begins at `position` of a frame. Its records are views of the frame, not copies.

    Bytes after it are ignored, as Kafka does: librdkafka 2.16 leaves three after its Metadata v13 of all topics. Raises
    MalformedFrame; KafkaError for a version that is not declared.
    """
    try:
        decode = api.request_decoders[version]
    except KeyError:
        raise api.undeclared(version) from None
    request, _ = decode(frame, position)
    return request


def decode_request_in_steps(api: Api, version: int, frame: memoryview, position: int) -> Generator[int, None, Any]:
    """Like decode_request(), but in steps, so that other work can run in between: yields how many list items were
    decoded since the last yield; returns the request.
    """
    try:
        decode = api.request_decoders_in_steps[version]
    except KeyError:
        raise api.undeclared(version) from None
    request, _ = yield from decode(frame, position)
    return request


def encode_response(api: Api, version: int, correlation_id: int, response: Any) -> list[Buffer]:
    """Return the whole frame, with its length prefix, as buffers to send one after another. Records are not copied.
    Raises KafkaError for a version that is not declared.
    """
    try:
        encode = api.response_encoders[version]
    except KeyError:
        raise api.undeclared(version) from None
    return _with_head(api, version, correlation_id, encode(response))


def encode_response_in_steps(
    api: Api, version: int, correlation_id: int, response: Any
) -> Generator[int, None, list[Buffer]]:
    """Like encode_response(), but in steps, so that other work can run in between: yields how many array items were
    encoded since the last yield; returns the buffers.

    Items of a Lazy are made while they are encoded.
    """
    try:
        encode = api.response_encoders_in_steps[version]
    except KeyError:
        raise api.undeclared(version) from None
    return _with_head(api, version, correlation_id, (yield from encode(response)))


def _with_head(api: Api, version: int, correlation_id: int, buffers: list[Buffer]) -> list[Buffer]:
    """Put the length and the header in front of an encoded response, and return its buffers."""
    size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
    if version >= api.flexible_responses_from:
        buffers[0] = _FLEXIBLE_RESPONSE_HEAD(size + 5, correlation_id) + buffers[0]
    else:
        buffers[0] = _RESPONSE_HEAD(size + 4, correlation_id) + buffers[0]
    return buffers


def encode_request(api: Api, version: int, correlation_id: int, client_id: str, request: Any) -> list[Buffer]:
    """Return the whole frame, with its length prefix, as buffers to send one after another. Records are not copied.
    Raises KafkaError for a version that is not declared.
    """
    try:
        encode = api.request_encoders[version]
    except KeyError:
        raise api.undeclared(version) from None
    buffers = encode(request)
    client = client_id.encode()  # not compact in any version, so that a broker can always read it
    tags = b"\x00" if version >= api.flexible_from else b""
    head = _REQUEST_HEAD(api.key, version, correlation_id, len(client)) + client + tags
    size = len(head) + sum(map(len, buffers))
    buffers[0] = size.to_bytes(4, "big") + head + buffers[0]
    return buffers


def decode_response(api: Api, version: int, frame: Readable) -> tuple[int, Any]:
    """Return the correlation id and the response in a frame without its length. Its records are views of the frame.

    Raises MalformedFrame; KafkaError for a version that is not declared.
    """
    try:
        decode = api.response_decoders[version]
    except KeyError:
        raise api.undeclared(version) from None
    correlation_id, position = _read_response_header(frame, version >= api.flexible_responses_from)
    response, end = decode(frame, position)
    if end != len(frame):
        raise MalformedFrame(f"{api.name} v{version}: {len(frame) - end} bytes follow the response")
    return correlation_id, response


def _read_response_header(frame: Readable, flexible: bool) -> tuple[int, int]:
    """Return the correlation id, and the position at which the body begins. Raises MalformedFrame."""
    try:
        (correlation_id,) = _INT32(frame)
        return correlation_id, skip_tags(frame, 5, frame[4]) if flexible else 4
    except (IndexError, struct.error) as error:
        raise MalformedFrame(f"response header: {error}") from error
