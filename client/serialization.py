"""What turns keys and values into bytes and back: functions of one argument, or those of confluent-kafka's clients.

The rule: a function that has to be given a second argument, or that calls it `ctx`, is given a SerializationContext, as
confluent's SerializingProducer and DeserializingConsumer do; any other is called with the value alone. An optional
second argument of another name (`str.encode`, `json.dumps`) is not taken for one.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

Pairs = Iterable[tuple[str, bytes | None]]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class MessageField:
    """Which part of a record is serialized."""

    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """topic: its name. field: MessageField.KEY or VALUE. headers: the record's, as a list of (name, bytes or None).

    What a serializer adds to `headers` is sent with the record.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: str, headers: list[tuple[str, bytes | None]] | None = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


def takes_context(function: Callable[..., Any] | None) -> bool:
    """Whether it is called with (value, SerializationContext)."""
    if function is None:
        return False
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    if len(parameters) < 2 or parameters[1].kind not in _POSITIONAL:
        return False
    return parameters[1].default is inspect.Parameter.empty or parameters[1].name == "ctx"


class Serializers:
    """A producer's two serializers. A key or value of None is not serialized."""

    __slots__ = ("_key", "_key_takes_context", "_takes_context", "_value", "_value_takes_context")

    def __init__(self, key: Callable[..., Any] | None, value: Callable[..., Any] | None) -> None:
        self._key, self._value = key, value
        self._key_takes_context, self._value_takes_context = takes_context(key), takes_context(value)
        self._takes_context = self._key_takes_context or self._value_takes_context

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def __call__(self, topic: str, key: Any, value: Any, headers: Any) -> tuple[Any, Any, Any]:
        """Key, value and headers as they are to be sent. Raises what a serializer raises."""
        if self._takes_context:
            headers = list(cast("Pairs", headers.items() if isinstance(headers, Mapping) else headers or ()))
        if self._key is not None and key is not None:
            given = (SerializationContext(topic, MessageField.KEY, headers),) if self._key_takes_context else ()
            key = self._key(key, *given)
        if self._value is not None and value is not None:
            given = (SerializationContext(topic, MessageField.VALUE, headers),) if self._value_takes_context else ()
            value = self._value(value, *given)
        return key, value, headers


class Deserializer:
    """One deserializer, for a field of records."""

    __slots__ = ("_field", "_function", "_takes_context")

    def __init__(self, function: Callable[..., Any], field: str) -> None:
        self._function, self._field = function, field
        self._takes_context = takes_context(function)

    def __call__(self, found: bytes, topic: str, headers: Pairs) -> Any:
        if not self._takes_context:
            return self._function(found)
        return self._function(found, SerializationContext(topic, self._field, list(headers)))


def deserializer_of(function: Callable[..., Any] | None, field: str) -> Deserializer | None:
    return None if function is None else Deserializer(function, field)
