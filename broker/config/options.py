"""An option: a typed field of a settings class, with its name, bounds, default and description.

The fields of the class are the table of settings. Names are Kafka's, with `_` in place of `.`; error texts are those of
Kafka's ConfigDef, because tools show them to people. Values are sent and stored as strings, and are parsed here only.

Source: Kafka's ConfigDef, probed on 4.3.1.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import IntEnum
from typing import Any

Value = bool | int | float | str | tuple[str, ...]


class ConfigType(IntEnum):
    """The type ids of DescribeConfigs v3+."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class InvalidOption(ValueError):
    """Raised for a name or value that cannot be set. The text says why. hint: what to do, if known."""

    def __init__(self, text: str, name: str = "", hint: str = "") -> None:
        super().__init__(text)
        self.name = name
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Option:
    """One setting.

    `aliases` are other names, each with the factor that converts its number to the unit of this option (hours to ms).
    `broker`: the broker's setting that is the default of this topic's setting. `dynamic_at_least`: the least value that
    may be set at runtime; with less, clients might not be able to set it back. `no_effect`: it is accepted, stored and
    shown, but has no effect here.
    """

    name: str
    type: ConfigType
    default: Value
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    or_equal: int | None = None
    one_of: tuple[str, ...] = ()
    aliases: Mapping[str, int] = field(default_factory=dict)
    broker: str | None = None
    dynamic: bool = False
    dynamic_at_least: int | None = None
    no_effect: bool = False
    check: Callable[[Value], str | None] | None = None

    @property
    def is_secret(self) -> bool:
        """Whether the value is secret, so that it is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def field_name(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Value:
        """Parse a value. Raises InvalidOption, with Kafka's text, if it is of another type or out of bounds."""
        value = self._parse(text if self.is_secret else text.strip())
        reason = self._out_of_bounds(value) or (self.check(value) if self.check else None)
        if reason:
            shown = self._invalid_part(value)
            raise InvalidOption(f"Invalid value {shown} for configuration {self.name}: {reason}", self.name)
        return value

    def parse_dynamic(self, text: str) -> Value:
        """Parse a value that is set at runtime, which must also be at least dynamic_at_least. Raises InvalidOption."""
        value = self.parse(text)
        least = self.dynamic_at_least
        if least is not None and isinstance(value, int) and value < least:
            raise InvalidOption(
                f"Invalid value {value} for configuration {self.name}: Value must be at least {least} while the broker "
                "runs: with less nobody might be able to set it back",
                self.name,
            )
        return value

    def _parse(self, text: str) -> Value:
        """Parse a value without checking its bounds. Raises InvalidOption if it is of another type."""
        try:
            return _PARSERS[self.type](text)
        except ValueError:
            wanted = (
                "Expected value to be either true or false"
                if self.type is ConfigType.BOOLEAN
                else f"Not a number of type {self.type.name}"
            )
            raise InvalidOption(f"Invalid value {text} for configuration {self.name}: {wanted}", self.name) from None

    def _invalid_part(self, value: Value) -> str:
        """Return the text that an error shows for an invalid value: the first entry of a list that is not allowed, or
        the whole value.
        """
        if not isinstance(value, tuple):
            return text_of(value)
        wrong = [entry for entry in value if self.one_of and entry not in self.one_of]
        return wrong[0] if wrong else f"[{', '.join(value)}]"

    def _out_of_bounds(self, value: Value) -> str | None:
        """Return why the value is not allowed, in Kafka's words; None if it is allowed."""
        if self.one_of:
            entries = value if isinstance(value, tuple) else (value,)
            return None if set(entries) <= set(self.one_of) else f"String must be one of: {', '.join(self.one_of)}"
        if isinstance(value, str | tuple | bool) or value == self.or_equal:
            return None
        below = self.at_least is not None and value < self.at_least
        above = self.at_most is not None and value > self.at_most
        if self.or_equal is not None and (below or above):
            return f"Value must be between {self.at_least} and {self.at_most} or equal to {self.or_equal}"
        if below:
            return f"Value must be at least {self.at_least}"
        return f"Value must be no more than {self.at_most}" if above else None


def _whole_number(bits: int) -> Callable[[str], int]:
    """Return a parser of signed integers with this number of bits."""

    def parse(text: str) -> int:
        """Parse an integer of this many bits. Raises ValueError."""
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
            raise ValueError(text)
        return int(text)

    return parse


def _number(text: str) -> float:
    """Parse a decimal number. Raises ValueError."""
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text):
        raise ValueError(text)
    return float(text)


def _boolean(text: str) -> bool:
    """Parse true or false, in any case. Raises ValueError."""
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse(text)


def _refuse(text: str) -> bool:
    """Raise ValueError. It is a function because a conditional expression cannot contain a raise statement."""
    raise ValueError(text)


def _entries(text: str) -> tuple[str, ...]:
    """Parse a list with commas, without duplicates; empty for an empty text."""
    return tuple(dict.fromkeys(map(str.strip, text.split(",")))) if text else ()


_PARSERS: dict[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _whole_number(32),
    ConfigType.SHORT: _whole_number(16),
    ConfigType.LONG: _whole_number(64),
    ConfigType.DOUBLE: _number,
    ConfigType.LIST: _entries,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def text_of(value: Value) -> str:
    """Return a value as text, as Kafka writes it in responses."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def option(default: Any, doc: str, **row: Any) -> Any:
    """Return a dataclass field for one setting. doc: its description. row: other fields of its Option.

    Its type follows from the default, unless `row` contains a type.
    """
    kinds = {bool: ConfigType.BOOLEAN, float: ConfigType.DOUBLE, str: ConfigType.STRING, tuple: ConfigType.LIST}
    row.setdefault("type", kinds.get(default.__class__, ConfigType.LONG))
    secret = row["type"] is ConfigType.PASSWORD
    return field(default=default, repr=not secret, metadata={"option": {"doc": doc, **row}})


def options_of(settings: type) -> dict[str, Option]:
    """Return the options of a settings class by Kafka's names: its own in their order, then those of its base
    classes.
    """
    table: dict[str, Option] = {}
    for each in sorted(fields(settings), key=lambda each: each.name not in settings.__annotations__):
        if "option" in each.metadata:
            default: Any = each.default
            name = each.name.replace("_", ".")
            table[name] = Option(name=name, default=default, **each.metadata["option"])
    return table


def nearest(name: str, known: list[str]) -> str | None:
    """Return the most similar of the known names; None if none is similar."""
    found = get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else None
