"""The schema notation: what a class may say, and what it becomes."""

import traceback
from typing import Any

import pytest
from fencepost.protocol.compile import decoder, encoder
from fencepost.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from fencepost.protocol.schema import (
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    Uint16,
    Uint32,
    Uuid,
    Versions,
    field,
    request,
    response,
    schema_of,
    struct,
    versions_of,
)


@request(api=3000, versions="0-3", flexible="2+", serves="1-2", listed_from=0)
class EverythingRequest:
    """A field of each type."""

    @struct
    class Part:
        number: Int8
        name: String | None = None

    flag: Boolean
    small: Int16
    unsigned: Uint16
    wide: Uint32
    large: Int64
    real: Float64
    id: Uuid
    blob: Bytes
    nullable_blob: Bytes | None = field(nullable="1+", default=b"")
    names: list[String] = field(factory=list)
    parts: list[Part] | None = None
    later: list[Int32] | None = field("2+", nullable="3+", factory=list)
    tagged: Int32 = field("2+", tag=3, default=7)
    tagged_names: list[String] = field("2+", tag=1, factory=list)
    tagged_part: Part | None = field("3+", tag=0, default=None)


@response(to=EverythingRequest)
class EverythingResponse:
    answer: String = "yes"


def everything(**changes: Any) -> EverythingRequest:
    values: dict[str, Any] = {
        "flag": True,
        "small": -2,
        "unsigned": 65535,
        "wide": 4294967295,
        "large": -(1 << 63),
        "real": 1.5,
        "id": bytes(range(16)),
        "blob": b"\0\1",
        "names": ["", "ä"],
        "parts": [EverythingRequest.Part(number=-128, name="n"), EverythingRequest.Part(number=1)],
    }
    return EverythingRequest(**values | changes)


@pytest.mark.parametrize("version", range(4))
def test_a_value_of_each_field_type_survives_a_round_trip(version: int) -> None:
    message = everything(
        later=[1, -1] if version >= 2 else [],
        tagged=-9 if version >= 2 else 7,
        tagged_names=["x"] if version >= 2 else [],
        tagged_part=EverythingRequest.Part(number=3) if version >= 3 else None,
    )
    data = b"".join(encoder(EverythingRequest, version)(message))
    assert decoder(EverythingRequest, version)(data, 0) == (message, len(data))
    assert decoder(EverythingRequest, version)(b"before" + data + b"after", 6) == (message, 6 + len(data))
    for end in range(len(data)):
        with pytest.raises(MalformedFrame):
            decoder(EverythingRequest, version)(data[:end], 0)


def test_fields_missing_from_a_version_are_not_encoded_and_decode_as_defaults() -> None:
    message = everything(later=[1], tagged=8, tagged_names=["x"])
    read, _ = decoder(EverythingRequest, 1)(b"".join(encoder(EverythingRequest, 1)(message)), 0)
    assert (read.later, read.tagged, read.tagged_names, read.tagged_part) == ([], 7, [], None)


def test_default_lists_are_not_shared_between_messages() -> None:
    decode, data = decoder(EverythingRequest, 0), b"".join(encoder(EverythingRequest, 0)(everything()))
    first, second = decode(data, 0)[0], decode(data, 0)[0]
    first.later.append(1)
    assert second.later == []
    assert everything().later is not everything().later


def test_decoding_null_in_a_version_that_does_not_allow_it_raises() -> None:
    data = b"".join(encoder(EverythingRequest, 2)(everything(nullable_blob=None)))
    assert decoder(EverythingRequest, 2)(data, 0)[0].nullable_blob is None
    at_zero = b"".join(encoder(EverythingRequest, 1)(everything(nullable_blob=None)))
    with pytest.raises(MalformedFrame, match="nullable_blob is null"):
        decoder(EverythingRequest, 0)(at_zero, 0)


def test_messages_have_equality_a_repr_and_no_undeclared_attributes() -> None:
    part = EverythingRequest.Part(number=1)
    assert part == EverythingRequest.Part(number=1, name=None)
    assert part != EverythingRequest.Part(number=2)
    assert part != 1
    assert repr(part) == "EverythingRequest.Part(number=1, name=None)"
    with pytest.raises(AttributeError):
        part.nunber = 3  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="number"):
        EverythingRequest.Part()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        hash(part)


def test_a_response_is_declared_for_the_versions_of_its_request() -> None:
    schema = schema_of(EverythingResponse)
    assert (schema.api, schema.versions, schema.answers) == (3000, Versions(0, 3), EverythingRequest)
    assert b"".join(encoder(EverythingResponse, 2)(EverythingResponse())) == b"\x04yes\0"


def test_a_decoder_of_an_undeclared_message_version_raises_unsupported_version() -> None:
    for version in (-1, 4):
        with pytest.raises(KafkaError) as refused:
            decoder(EverythingRequest, version)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_struct_encoded_outside_a_message_has_no_compact_fields_and_no_tags() -> None:
    assert encoder(EverythingRequest.Part, 0)(EverythingRequest.Part(number=5, name="x")) == [b"\x05\0\x01x"]


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3+", Versions(3, 32767)), ("0-12", Versions(0, 12)), ("5", Versions(5, 5)), ("none", Versions(1, 0))],
)
def test_versions_of_parses_version_ranges_as_kafkas_schemas_write_them(text: str, versions: Versions) -> None:
    assert versions_of(text) == versions


def test_a_field_limited_to_some_versions_needs_a_default() -> None:
    with pytest.raises(TypeError, match="late: a field that some versions do not carry needs a default"):

        @struct
        class Wrong:
            late: Int32 = field("2+")


def test_declaring_a_field_of_a_type_that_the_protocol_lacks_raises_type_error() -> None:
    with pytest.raises(TypeError, match="no type of the protocol"):

        @struct
        class Wrong:
            number: int

    with pytest.raises(TypeError, match="can be joined to a type"):

        @struct
        class WrongToo:
            number: Int32 | String


@pytest.mark.parametrize(("api", "since"), [(20_000, 0), (19_999, 1)])
def test_since_is_required_for_api_keys_from_20000_on_and_refused_below(api: int, since: int) -> None:
    with pytest.raises(TypeError, match=f"API {api}: since= belongs to keys from 20000 on, and to each of them"):
        request(api=api, versions="0", flexible="0+", since=since)


def test_a_traceback_shows_the_source_line_of_a_generated_encoder() -> None:
    encode = encoder(EverythingRequest, 1)
    try:
        encode(everything(names=None))
    except TypeError as error:
        shown = "".join(traceback.format_exception(error))
    assert "<fencepost encoder of EverythingRequest v1>" in shown
    assert "parts.append(pack_i(len(v5)))" in shown
