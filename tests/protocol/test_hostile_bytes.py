"""Bytes that nobody should send: cut short, changed, invented, with counts and lengths that lie, with unknown tags."""

import random
import tracemalloc
from functools import cache
from typing import Any

import pytest
from every_message import of_every_message
from fencepost.protocol import encoding
from fencepost.protocol.apis import APIS, decode_request, decode_response
from fencepost.protocol.compile import decoder, encoder
from fencepost.protocol.errors import MalformedFrame
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest
from fencepost.protocol.primitives import tagged_section
from fencepost.protocol.schema import Array, Nested, schema_of
from hypothesis import HealthCheck, Phase, given, settings
from wire_values import messages, plain

LIES = [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x00\x00\x00",
    b"\xff" * 11,
    b"\x00\x00\x00\x00",
]
TAG = 900


@cache
def samples(cls: type, version: int) -> list[Any]:
    """Return generated messages of this class and version, the same in every run."""
    found: list[Any] = []

    def keep(message: Any) -> None:
        found.append(message)

    collect = settings(
        max_examples=max(2, settings.default.max_examples // 20),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    collect(given(messages(cls, version))(keep))()
    return found


def encoded(message: Any, version: int) -> bytes:
    return b"".join(encoder(type(message), version)(message))


@pytest.mark.slow
@of_every_message(others_are_long=True)
def test_a_message_truncated_at_any_byte_raises_malformed_frame(cls: type, version: int) -> None:
    decode = decoder(cls, version)
    for message in samples(cls, version):
        data = encoded(message, version)
        for end in {*range(min(len(data), 300)), *range(0, len(data), 997), *range(max(0, len(data) - 40), len(data))}:
            assert refused(decode, data[:end]), end
            assert refused(decode, memoryview(data)[:end]), end


@pytest.mark.slow
@of_every_message(others_are_long=True)
def test_modified_and_random_bytes_raise_only_malformed_frame(cls: type, version: int) -> None:
    decode = decoder(cls, version)
    rng = random.Random(version)
    for message in samples(cls, version):
        data = bytearray(encoded(message, version)[:400])
        for _ in range(20):
            changed = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                if changed:
                    changed[rng.randrange(len(changed))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            refused(decode, bytes(changed))
    for _ in range(40):
        refused(decode, rng.randbytes(rng.randrange(80)))


def refused(decode: Any, data: Any) -> bool:
    """Return whether decoding the data raises MalformedFrame. Any other error is passed on."""
    try:
        decode(data, 0)
    except MalformedFrame:
        return True
    return False


@pytest.mark.slow
@of_every_message(others_are_long=True)
def test_decoding_false_lengths_and_counts_takes_less_than_150_kb_of_memory(cls: type, version: int) -> None:
    decode = decoder(cls, version)
    frames = []
    for message in samples(cls, version)[:3]:
        data = encoded(message, version)[:2000]
        for position in range(min(len(data), 30)):
            frames += [data[:position] + lie + data[position + len(lie) :] for lie in LIES]
    refused(decode, b"")
    tracemalloc.start()
    try:
        for frame in frames:
            refused(decode, frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 150_000


def smallest_instance(cls: type, version: int) -> Any:
    """Return a message of this class that takes the fewest bytes in this version."""
    values = {}
    for f in schema_of(cls).fields:
        if f.required:
            nullable = version in f.nullable
            values[f.name] = None if nullable else smallest_value(f.kind, version)
    return cls(**values)


def smallest_value(kind: Any, version: int) -> Any:
    if isinstance(kind, Nested):
        return smallest_instance(kind.cls, version)
    return (
        []
        if isinstance(kind, Array)
        else getattr(kind, "zero", "" if type(kind).__name__ == "Text" else memoryview(b""))
    )


@pytest.mark.slow
@of_every_message(others_are_long=True)
def test_a_decoded_message_takes_at_most_a_small_multiple_of_its_bytes(cls: type, version: int) -> None:
    """Each item of an array is a Python object; its memory is bounded per byte of the message."""
    decode = decoder(cls, version)
    for f in schema_of(cls).fields:
        if isinstance(f.kind, Array) and version in f.versions:
            message = smallest_instance(cls, version)
            setattr(message, f.name, [smallest_value(f.kind.item, version)] * 500)
            data = encoded(message, version)
            tracemalloc.start()
            try:
                decode(data, 0)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 60 * len(data) + 10_000


class ChattyWriter(encoding._EncoderSource):
    """An encoder of a version to come: it adds a tagged field that we do not know to every tagged section."""

    def _tags(self, known: list[Any], name: str) -> None:
        self.flush()
        source = self._source
        tags, outer = source.fresh("tags"), source.fresh("outer")
        source.line(f"{tags}, {outer} = [], parts")
        for f in known:
            with source.block(f"if {self._differs(f, f'{name}.{f.name}')}:"):
                source.line("parts = []")
                self.value(f.kind, f"{name}.{f.name}", self._version in f.nullable)
                self.flush()
                source.line(f"{tags}.append(({f.tag}, b''.join(parts)))")
        source.line(f"parts = {outer}")
        source.line(f"parts.append(tagged_section([*{tags}, ({TAG}, b'from the future')]))")


@pytest.mark.slow
@of_every_message(others_are_long=True)
def test_unknown_tagged_fields_are_skipped_in_every_message(cls: type, version: int) -> None:
    if version not in schema_of(cls).flexible:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_EncoderSource", ChattyWriter)
        encode = encoding.encoder_source(cls, version, True).compile("encode", f"chatty {cls.__name__} v{version}")
    for message in samples(cls, version):
        data = b"".join(encode(message))
        assert b"from the future" in data
        read, end = decoder(cls, version)(data, 0)
        assert (plain(read), end) == (plain(message), len(data))


@pytest.mark.parametrize(
    "section",
    [
        b"\x01",  # a tag is announced and none comes
        b"\x01\x05",  # no size
        b"\x01\x05\x03ab",  # shorter than its size
        b"\xff\xff\xff\xff\x0f",  # four billion tags
        b"\xff\xff\xff\xff\xff\x01\x05\x00",  # a count of six bytes
        tagged_section([(0, b"\x00\x01")]),  # a known field that is longer than it says
    ],
)
def test_a_request_with_a_broken_section_of_tagged_fields_raises_malformed_frame(section: bytes) -> None:
    request = encoded(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12)[:-1]
    assert decode_request(APIS[1], 12, request + b"\x00", 0).cluster_id is None
    with pytest.raises(MalformedFrame):
        decode_request(APIS[1], 12, request + section, 0)


def test_a_null_in_a_field_that_is_not_nullable_is_malformed() -> None:
    topic = b"\x00\x00\x00\x01" + b"\xff\xff" + bytes(14)
    with pytest.raises(MalformedFrame, match="name is null"):
        decoder(CreateTopicsRequest, 2)(topic + bytes(20), 0)
    with pytest.raises(MalformedFrame, match="the count -1 is negative"):
        decoder(CreateTopicsRequest, 2)(b"\xff\xff\xff\xff" + bytes(20), 0)


def test_text_that_is_not_utf_8_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        decode_request(APIS[18], 3, b"\x03\xff\xfe\x01\x00", 0)


def test_a_string_above_the_maximum_string_length_is_malformed() -> None:
    name = b"a" * 32768
    with pytest.raises(MalformedFrame, match="a string has 32768 bytes"):
        decode_request(APIS[18], 3, b"\x81\x80\x02" + name + b"\x01\x00", 0)
    longest = decode_request(APIS[18], 3, b"\x80\x80\x02" + name[1:] + b"\x01\x00", 0)
    assert len(longest.client_software_name) == 32767


def test_bytes_after_a_request_are_ignored_as_kafka_does_and_librdkafka_needs() -> None:
    as_librdkafka_sends_it = b"\0\0\0\0" + b"\x01\0\0"  # the null list in four bytes instead of one
    request = decode_request(APIS[3], 13, as_librdkafka_sends_it, 0)
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=False)


def test_bytes_after_a_response_are_malformed() -> None:
    with pytest.raises(MalformedFrame, match="2 bytes follow the response"):
        decode_response(APIS[22], 0, bytes(4 + 16 + 2))


@pytest.mark.parametrize("size", range(10))
def test_a_truncated_request_header_raises_malformed_frame(size: int) -> None:
    with pytest.raises(MalformedFrame):
        read_request_header(bytes(10)[:size])


def test_random_headers_raise_nothing_but_malformed_frame() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        refused(
            lambda data, _: read_request_header(data),
            bytes((0, rng.randrange(80), 0, rng.randrange(15))) + rng.randbytes(rng.randrange(40)),
        )


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1", b"\0\0\0\1\1\0\x7f"])
def test_a_truncated_response_raises_malformed_frame(frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_response(APIS[3], 9, frame)
