"""Codecs, compiled from schemas when a class is first decoded or encoded in a version, and kept.

The rule: a codec knows one class in one version, and nothing of it is decided while it runs. A class without versions
of its own (a `struct`) is compiled in the old encoding. Costs about half a millisecond each, once.
"""

from functools import cache

from .decoding import Decoder, DecoderInSteps, decoder_in_steps_source, decoder_source
from .encoding import Encoder, EncoderInSteps, encoder_source
from .errors import ErrorCode, KafkaError
from .schema import schema_of


@cache
def decoder(cls: type, version: int) -> Decoder:
    """Return a function of (data, position) that decodes an instance of `cls`, and returns it and the position after
    it.

    That function raises MalformedFrame for invalid bytes. Raises KafkaError for a version that the class does not
    declare.
    """
    return decoder_source(cls, version, _is_flexible(cls, version)).compile("decode", _title(cls, version, "decoder"))


@cache
def decoder_in_steps(cls: type, version: int) -> DecoderInSteps:
    """Like decoder(), for a memoryview, in steps: a generator that yields how many list items it has decoded."""
    source = decoder_in_steps_source(cls, version, _is_flexible(cls, version))
    return source.compile("decode", _title(cls, version, "decoder in steps"))


@cache
def encoder(cls: type, version: int) -> Encoder:
    """Return a function that encodes an instance of `cls`, and returns buffers to be sent one after another.

    Raises KafkaError for a version that the class does not declare.
    """
    return encoder_source(cls, version, _is_flexible(cls, version)).compile("encode", _title(cls, version, "encoder"))


@cache
def encoder_in_steps(cls: type, version: int) -> EncoderInSteps:
    """Like encoder(), but in steps: a generator that yields how many array items it has encoded, and returns the
    buffers.
    """
    source = encoder_source(cls, version, _is_flexible(cls, version), in_steps=True)
    return source.compile("encode", _title(cls, version, "encoder in steps"))


def _is_flexible(cls: type, version: int) -> bool:
    """Return whether this version has the flexible encoding. Raises UNSUPPORTED_VERSION if it is not declared."""
    schema = schema_of(cls)
    if version not in schema.versions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}")
    return version in schema.flexible


def _title(cls: type, version: int, what: str) -> str:
    """Return the name of a codec for tracebacks, such as "decoder of FetchRequest v12"."""
    return f"{what} of {cls.__qualname__} v{version}"
