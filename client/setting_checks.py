"""Checks of clients' settings, each of which raises InvalidConfigurationError. Pure.

The rule: a settings object is a frozen dataclass that checks itself when it is made, so all of them are valid.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from .errors import InvalidConfigurationError
from .serialization import way_of

INT32_MAX = 2**31 - 1


def put(settings: Any, name: str, value: object) -> None:
    """Set a field of frozen settings that are being made."""
    object.__setattr__(settings, name, value)


def is_sendable(value: object) -> bool:
    """Return whether the value is a str that fits a string of the protocol: valid Unicode, at most 32,767 bytes."""
    return isinstance(value, str) and len(value.encode("utf-8", "replace")) <= 32_767 and _is_unicode(value)


def _is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogates, which cannot be encoded."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def check_sendable(settings: Any, names: Iterable[str]) -> None:
    """Raise InvalidConfigurationError unless each of these settings is None or fits a string of the protocol."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not is_sendable(value):
            raise InvalidConfigurationError(f"{name}={value!r:.60} must be a str of at most 32,767 bytes")


def check_positive(settings: Any, names: Iterable[str]) -> None:
    """Raise InvalidConfigurationError unless each of these settings is an int above 0."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= INT32_MAX:
            raise InvalidConfigurationError(f"{name}={value!r} must be an int greater than 0")


def check_not_negative(settings: Any, names: Iterable[str]) -> None:
    """Raise InvalidConfigurationError unless each of these settings is a number of 0 or more."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= INT32_MAX:
            raise InvalidConfigurationError(f"{name}={value!r} must be a number of 0 or more")


def check_true_or_false(settings: Any) -> None:
    """Raise InvalidConfigurationError unless all booleans are True or False: neither None nor the text "false" is
    accepted.
    """
    for each in fields(settings):
        if isinstance(each.default, bool) and not isinstance(value := getattr(settings, each.name), bool):
            raise InvalidConfigurationError(f"{each.name}={value!r} must be True or False")


def check_one_of(settings: Any, name: str, choices: tuple[object, ...]) -> None:
    """Raise InvalidConfigurationError if the setting is none of the choices."""
    value = getattr(settings, name)
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise InvalidConfigurationError(f"{name}={value!r} is not valid", hint=f"use one of {listed}")


def check_callable(settings: Any, names: Iterable[str]) -> None:
    """Raise InvalidConfigurationError unless each of these settings is None or callable."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not callable(value):
            raise InvalidConfigurationError(f"{name}={value!r:.60} is not callable", hint="pass a function")


def check_serializers(settings: Any, method: str) -> None:
    """Raise InvalidConfigurationError unless the key and value (de)serializers can be called. method: "serialize" or
    "deserialize".
    """
    for name in (f"key_{method}r", f"value_{method}r"):
        value = getattr(settings, name)
        try:
            if value is not None:
                way_of(value, method)
        except InvalidConfigurationError as error:
            raise InvalidConfigurationError(f"{name}: {error}", hint=error.hint) from None


def check_name(settings: Any) -> None:
    """Raise InvalidConfigurationError if a named producer's settings are not valid. Sets one request in flight and no
    idempotence, which a name needs.
    """
    if settings.name is None:
        return
    if not settings.name:
        raise InvalidConfigurationError("name is empty")
    check_sendable(settings, ("name",))
    if settings.transactional_id is not None:
        raise InvalidConfigurationError("a producer has a name or a transactional_id", hint="leave out one of them")
    if settings.acks not in (None, "all", -1, "-1"):
        raise InvalidConfigurationError(
            "a named producer waits for the acknowledgement of each record", hint=f"leave out acks={settings.acks!r}"
        )
    put(settings, "enable_idempotence", False)
    put(settings, "max_in_flight", 1)
