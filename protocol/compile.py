"""Codecs out of schemas: compiled when a class is first read or written in a version, and kept.

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
    """Return a function that decodes an instance of `cls` from (data, position); it returns it and the next position.

    Raises MalformedFrame for bytes that are none; KafkaError for a version that the class does not declare.
    """
    return decoder_source(cls, version, _flexible(cls, version)).compile("decode", _title(cls, version, "decoder"))


@cache
def decoder_in_steps(cls: type, version: int) -> DecoderInSteps:
    """Like decoder(), for a memoryview, in steps: a generator that yields how many list items it has read."""
    source = decoder_in_steps_source(cls, version, _flexible(cls, version))
    return source.compile("decode", _title(cls, version, "decoder in steps"))


@cache
def encoder(cls: type, version: int) -> Encoder:
    """Return a function that encodes an instance of `cls` as buffers to be sent one after another.

    Raises KafkaError for a version that the class does not declare.
    """
    return encoder_source(cls, version, _flexible(cls, version)).compile("encode", _title(cls, version, "encoder"))


@cache
def encoder_in_steps(cls: type, version: int) -> EncoderInSteps:
    """Like encoder(), in steps: a generator that yields how many array items it has written."""
    source = encoder_source(cls, version, _flexible(cls, version), in_steps=True)
    return source.compile("encode", _title(cls, version, "encoder in steps"))


def _flexible(cls: type, version: int) -> bool:
    schema = schema_of(cls)
    if version not in schema.versions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}")
    return version in schema.flexible


def _title(cls: type, version: int, what: str) -> str:
    return f"{what} of {cls.__qualname__} v{version}"
