"""Targets: streams of frames, headers, and every request and response in every version.

The rule: bytes, a view and steps give the same value or all refuse; a value that was read is written, by both encoders
alike, as bytes that read as the same value.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

from fencepost.broker.net.request_limits import _LOOKED_INTO
from fencepost.protocol.apis import (
    APIS,
    decode_request,
    decode_request_in_steps,
    decode_response,
    encode_request,
    encode_response,
)
from fencepost.protocol.compile import decoder, decoder_in_steps, encoder, encoder_in_steps
from fencepost.protocol.errors import KafkaError, MalformedFrame
from fencepost.protocol.framing import PREFIX_BYTES, Framer
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.schema import Array, Blob, Fixed, Nested, Text, schema_of
from fuzz.target import REFUSED, Target, outcome

REQUESTS = [(api.request, version) for api in APIS.values() for version in api.declared]
RESPONSES = [(api.response, version) for api in APIS.values() for version in api.declared]
LARGEST_FRAME = 300


def filled(cls: type, version: int, number: int) -> Any:
    """Return an instance in which every field has a value of its own. number: 0 for one with as little as possible."""
    values = {}
    for f in schema_of(cls).fields:
        if version not in f.versions:
            continue
        if not number and (f.tag is not None or not f.required):
            continue
        if not number and version in f.nullable:
            values[f.name] = None
        else:
            values[f.name] = _value(f.kind, version, number)
    return cls(**values)


def _value(kind: Any, version: int, number: int) -> Any:
    match kind:
        case Fixed(format="?"):
            return bool(number)
        case Fixed(format="16s"):
            return bytes([number]) * 16
        case Fixed(format="d"):
            return float(number)
        case Fixed():
            return number
        case Text():
            return "text"[: number + 1]
        case Blob(of="slices"):
            return [memoryview(b"records")] if number else []
        case Blob(of="view"):
            return memoryview(b"records")
        case Blob():
            return b"bytes"
        case Array():
            return [_value(kind.item, version, number)] * number
        case Nested():
            return filled(kind.cls, version, number)
    raise AssertionError(kind)


def result_of(steps: Iterator[int]) -> Any:
    """Run all steps and return the result."""
    results = []

    def run() -> Iterator[int]:
        results.append((yield from steps))

    for _ in run():
        pass
    return results[0]


def look_at_body(cls: type, version: int, body: bytes) -> None:
    decode, encode = decoder(cls, version), encoder(cls, version)
    found = outcome(lambda: decode(body, 0), MalformedFrame)
    viewed = outcome(lambda: decode(memoryview(body), 0), MalformedFrame)
    stepped = outcome(lambda: result_of(decoder_in_steps(cls, version)(memoryview(body), 0)), MalformedFrame)
    if found is REFUSED:
        assert (viewed, stepped) == (REFUSED, REFUSED), "bytes are refused, and a view or steps are not"
        return
    value, end = found
    assert 0 <= end <= len(body)
    written = b"".join(encode(value))
    for other in (viewed, stepped):
        assert other is not REFUSED, "bytes are read, and a view or steps are refused"
        assert other[1] == end
        assert b"".join(encode(other[0])) == written, "a view or steps give another value"
    again, end = decode(written, 0)
    assert end == len(written)
    assert b"".join(encode(again)) == written, "the value does not read back"
    assert b"".join(result_of(encoder_in_steps(cls, version)(value))) == written


def _bodies(pairs: list[tuple[type, int]]) -> Callable[[bytes], None]:
    def look(data: bytes) -> None:
        cls, version = pairs[int.from_bytes(data[:2], "big") % len(pairs)]
        look_at_body(cls, version, data[2:])

    return look


def _body_seeds(pairs: list[tuple[type, int]]) -> Callable[[], Iterator[bytes]]:
    def seeds() -> Iterator[bytes]:
        for index, (cls, version) in enumerate(pairs):
            for number in range(3):
                message = filled(cls, version, number)
                yield index.to_bytes(2, "big") + b"".join(encoder(cls, version)(message))

    return seeds


def look_at_request_frame(data: bytes) -> None:
    """Read header and body as a connection does."""
    header = outcome(lambda: read_request_header(data), MalformedFrame)
    viewed = outcome(lambda: read_request_header(memoryview(data)), MalformedFrame)
    assert repr(header) == repr(viewed)
    if header is REFUSED:
        return
    assert 0 <= header.position <= len(data)
    api = APIS.get(header.api_key)
    if api is None:
        return
    version, position = header.api_version, header.position
    extent = _LOOKED_INTO.get(header.api_key, lambda *_: None)
    looked = outcome(lambda: extent(data, position, version), MalformedFrame, IndexError, struct.error)
    refusals = MalformedFrame, KafkaError
    found = outcome(lambda: decode_request(api, version, data, position), *refusals)
    stepped = outcome(lambda: result_of(decode_request_in_steps(api, version, memoryview(data), position)), *refusals)
    assert (found is REFUSED) == (stepped is REFUSED)
    if found is not REFUSED:
        assert looked is not REFUSED, "a small request is refused for its extent"
        frame = b"".join(encode_request(api, version, header.correlation_id, header.client_id, found))[PREFIX_BYTES:]
        again = read_request_header(frame)
        assert (again.client_id, again.correlation_id) == (header.client_id, header.correlation_id)
        assert b"".join(encode_request(api, version, 0, "", decode_request(api, version, frame, again.position))) == (
            b"".join(encode_request(api, version, 0, "", found))
        )


def request_frames(number: int) -> Iterator[bytes]:
    """Yield a frame of every request in every version, without its length."""
    for api in APIS.values():
        for version in api.declared:
            message = filled(api.request, version, number)
            yield b"".join(encode_request(api, version, 7, "client", message))[PREFIX_BYTES:]


def look_at_response_frame(data: bytes) -> None:
    """Read a response as a client does, which knows API and version from its request."""
    apis = list(APIS.values())
    api, version = apis[int.from_bytes(data[:1], "big") % len(apis)], int.from_bytes(data[1:2], "big")
    found = outcome(lambda: decode_response(api, version, data[2:]), MalformedFrame, KafkaError)
    viewed = outcome(lambda: decode_response(api, version, memoryview(data)[2:]), MalformedFrame, KafkaError)
    assert (found is REFUSED) == (viewed is REFUSED)
    if found is not REFUSED:
        correlation_id, response = found
        frame = b"".join(encode_response(api, version, correlation_id, response))[PREFIX_BYTES:]
        again = decode_response(api, version, frame)
        assert again[0] == correlation_id
        assert b"".join(encode_response(api, version, correlation_id, again[1]))[PREFIX_BYTES:] == frame


def _response_frames() -> Iterator[bytes]:
    for index, api in enumerate(APIS.values()):
        for version in api.declared:
            message = filled(api.response, version, 1)
            yield bytes((index, version)) + b"".join(encode_response(api, version, 7, message))[PREFIX_BYTES:]


def look_at_frames(data: bytes) -> None:
    """A stream gives the same frames however it is cut into chunks, and at most one frame is buffered."""
    step, stream = int.from_bytes(data[:1], "big") % 64 + 1, data[1:]
    expected, is_sound = _frames_of(stream)
    framer = Framer(LARGEST_FRAME)
    found: list[bytes] = []
    try:
        for at in range(0, len(stream), step):
            found += map(bytes, framer.feed(stream[at : at + step]))
            assert framer.held_bytes <= LARGEST_FRAME + PREFIX_BYTES + step
        assert is_sound
        assert found == expected
    except MalformedFrame:
        assert not is_sound
        assert found == expected[: len(found)]
    if len(stream) >= PREFIX_BYTES and Framer(LARGEST_FRAME).is_one_small_frame(stream):
        assert Framer(LARGEST_FRAME).feed(stream) == [stream[PREFIX_BYTES:]]


def _frames_of(stream: bytes) -> tuple[list[bytes], bool]:
    """Split a stream into frames in the simplest way. Returns them and whether all were well formed."""
    frames, at = [], 0
    while len(stream) - at >= PREFIX_BYTES:
        (length,) = struct.unpack_from(">i", stream, at)
        if not 0 < length <= LARGEST_FRAME:
            return frames, False
        at += PREFIX_BYTES
        if at + length > len(stream):
            break
        frames.append(stream[at : at + length])
        at += length
    return frames, True


def _streams() -> Iterator[bytes]:
    frames = [bytes((0, 0, size >> 8, size & 255)) + bytes(size) for size in (1, 2, 200, 299, 300)]
    for step in (0, 1, 4, 63):
        yield bytes([step]) + b"".join(frames)
    for frame in frames:
        yield b"\x09" + frame
    yield b"\x05" + b"".join(frames)[:-7]


TARGETS = [
    Target("frames", look_at_frames, _streams),
    Target("request-frames", look_at_request_frame, lambda: [*request_frames(0), *request_frames(1)]),
    Target("response-frames", look_at_response_frame, _response_frames),
    Target("requests", _bodies(REQUESTS), _body_seeds(REQUESTS)),
    Target("responses", _bodies(RESPONSES), _body_seeds(RESPONSES)),
]
