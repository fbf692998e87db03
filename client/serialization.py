"""Serializers and deserializers of keys and values: functions, and the objects of other clients. Pure.

The rule: `way_of` decides with which arguments one is called, once, when the client is created; an ambiguous one is an
error. An optional second parameter (`str.encode`, `json.dumps`) gets a context only if its name is `ctx`.
Source: confluent-kafka's SerializingProducer, kafka-python's Serializer.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import CoroutineType
from typing import Any, Protocol, cast

from .errors import InvalidConfigurationError

Pairs = Iterable[tuple[str, bytes | None]]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CONFLUENTS = [("confluent_kafka.serialization", name) for name in ("Serializer", "Deserializer")]


class MessageField:
    """The part of a record that is serialized."""

    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """What a serializer or deserializer is told of the record.

    topic: its name. field: MessageField.KEY or VALUE. headers: of the record, as a list of (name, bytes or None).
    Headers that a serializer adds to the list are sent with the record.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: str, headers: list[tuple[str, bytes | None]] | None = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class HasSerialize(Protocol):
    """A serializer of kafka-python."""

    @property
    def serialize(self) -> Callable[..., bytes | None]:
        """kafka-python's method: turns a topic and a value into bytes; None for a tombstone."""
        ...


class HasDeserialize(Protocol):
    """A deserializer of kafka-python."""

    @property
    def deserialize(self) -> Callable[..., Any]:
        """kafka-python's method: turns a topic and bytes into a value."""
        ...


class Way(Enum):
    """The arguments with which a (de)serializer is called."""

    VALUE = "(value)"
    CONTEXT = "(value, context)"  # of confluent-kafka
    METHOD = "(topic, headers, value)"  # the method of kafka-python 3
    OLD_METHOD = "(topic, value)"  # the method of kafka-python 2


def way_of(function: Any, method: str = "serialize") -> Way:
    """Return with which arguments a (de)serializer is to be called: a function, or an object with this method. Raises
    InvalidConfigurationError if that is not clear.
    """
    named = getattr(function, method, None)
    if isinstance(function, type):
        if callable(named) or any("__call__" in one.__dict__ for one in function.__mro__):
            raise _refusal(function, "is a class", f"pass an instance: {function.__name__}(…)")
    elif callable(named) and callable(function):
        raise _refusal(function, f"is callable and also has {method}", "pass a function of one argument")
    elif callable(named):
        required = _count_required(named)
        if required in (2, 3):
            return Way.METHOD if required == 3 else Way.OLD_METHOD
        raise _refusal(function, f"has a {method} that takes neither (topic, headers, value) nor (topic, value)")
    if not callable(function):
        raise _refusal(function, "is not callable", f"pass a function, or an object with {method}")
    if any(inspect.iscoroutinefunction(one) for one in (function, type(function).__call__)):
        raise _refusal(function, "is asynchronous", "pass one that returns its result")
    if any((one.__module__, one.__name__) in _CONFLUENTS for one in cast("type", type(function)).__mro__):
        return Way.CONTEXT
    required = _count_required(function)
    if required not in (1, 2):
        raise _refusal(function, "takes neither (value) nor (value, context)")
    return Way.CONTEXT if required == 2 else Way.VALUE


def _count_required(function: Callable[..., Any]) -> int:
    """Return the number of required positional arguments; an optional second one named `ctx` counts as required. For a
    builtin without signature returns 1.

    -1 if it is not clear: the function takes any number, or requires keyword arguments.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return 1
    positional = [one for one in parameters if one.kind in _POSITIONAL]
    by_name = any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters)
    if by_name or not positional:
        return -1
    required = sum(one.default is one.empty for one in positional)
    if required < 2 and len(positional) > 1 and positional[1].name == "ctx":
        return 2
    return required or 1


def _refusal(function: Any, why: str, hint: str = "wrap it in a function of one argument") -> InvalidConfigurationError:
    return InvalidConfigurationError(f"{function!r:.80} {why}", hint=hint)


class Converter:
    """A serializer (method: "serialize") or deserializer ("deserialize") of one field of records."""

    __slots__ = ("_call", "_field", "_way", "wants_headers")

    def __init__(self, function: Any, field: str, method: str) -> None:
        self._field = field
        self._way = way_of(function, method)
        self._call: Callable[..., Any] = function if callable(function) else getattr(function, method)
        self.wants_headers = self._way in (Way.CONTEXT, Way.METHOD)

    def __call__(self, value: Any, topic: str, headers: Any) -> Any:
        """Return the converted key or value. headers: if wants_headers, a list that the function may change. Raises
        TypeError if the function is asynchronous, and what it raises.
        """
        way = self._way
        if way is Way.VALUE:
            made = self._call(value)
        elif way is Way.CONTEXT:
            made = self._call(value, SerializationContext(topic, self._field, headers))
        elif way is Way.METHOD:
            made = self._call(topic, headers, value)
        else:
            made = self._call(topic, value)
        if made.__class__ is CoroutineType:
            made.close()
            raise TypeError("a (de)serializer must not be asynchronous: pass one that returns its result")
        return made


class Serializers:
    """A producer's two serializers. A key or value of None is not serialized."""

    __slots__ = ("_key", "_value", "_wants_headers")

    def __init__(self, key: Any, value: Any) -> None:
        self._key = None if key is None else Converter(key, MessageField.KEY, "serialize")
        self._value = None if value is None else Converter(value, MessageField.VALUE, "serialize")
        self._wants_headers = any(one is not None and one.wants_headers for one in (self._key, self._value))

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def __call__(self, topic: str, key: Any, value: Any, headers: Any) -> tuple[Any, Any, Any]:
        """Return the key, value and headers to be sent. Raises the error of a serializer, with a
        note about the topic.
        """
        if self._wants_headers:
            headers = list(cast("Pairs", headers.items() if isinstance(headers, Mapping) else headers or ()))
        field = MessageField.KEY
        try:
            if self._key is not None and key is not None:
                key = self._key(key, topic, headers)
            field = MessageField.VALUE
            if self._value is not None and value is not None:
                value = self._value(value, topic, headers)
        except Exception as error:
            error.add_note(f"raised for the {field} of a record for topic {topic!r}, which is not sent")
            raise
        return key, value, headers


class Deserializer:
    """A deserializer of one field of records."""

    __slots__ = ("_convert",)

    def __init__(self, function: Any, field: str) -> None:
        self._convert = Converter(function, field, "deserialize")

    def __call__(self, content: bytes, topic: str, headers: Pairs) -> Any:
        return self._convert(content, topic, list(headers) if self._convert.wants_headers else headers)


def deserializer_of(function: Any, field: str) -> Deserializer | None:
    return None if function is None else Deserializer(function, field)
