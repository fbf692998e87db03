"""Checks of arguments, before anything is sent or awaited. Pure.

Source of the rule for names of topics: Kafka's Topic.validate.
"""

import re

from ..protocol.errors import ErrorCode
from .errors import InvalidConfigurationError, error_of
from .values import OffsetAndMetadata

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic_name(name: object) -> None:
    """Raise TypeError unless the topic name is a str, KafkaError INVALID_TOPIC_EXCEPTION if it is not a legal name."""
    if not isinstance(name, str):
        raise TypeError(f"topic must be a str, not {type(name).__name__}")
    if not _LEGAL.fullmatch(name) or name in (".", ".."):
        raise error_of(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"invalid topic name {name!r:.99}: a name has 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and is not"
            " '.' or '..'",
        )


def positive(number: int, what: str) -> int:
    """Return the number. Raises TypeError, InvalidConfigurationError for one below 1."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{what} must be an int, not {type(number).__name__}")
    if number < 1:
        raise InvalidConfigurationError(f"{what}={number} must be greater than 0")
    return number


def offset_of(given: OffsetAndMetadata | int) -> OffsetAndMetadata:
    """Return an offset to commit as an OffsetAndMetadata; an int is the offset of the next record to read. Raises
    TypeError, ValueError for one below 0.
    """
    made = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
    if not isinstance(made.offset, int) or isinstance(made.offset, bool):
        raise TypeError(f"offset must be an int, not {type(made.offset).__name__}")
    if made.offset < 0:
        raise ValueError(f"offset={made.offset} must be 0 or more")
    return made
