"""Parameters of a request: their names, types and limits, for reading them and for describing them. Pure.

The rule: one table is used both for checks and for /openapi.json, so the two cannot differ.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .problems import BAD_PARAMETER, Problem

LONGEST_TEXT = 200
LONGEST_NAME = 32_767  # of a path: what the length of a string in Kafka's protocol allows
_DOTS = re.compile(r"\.{1,2};*")
MAX_MS = (1 << 53) - 1  # what JSON's readers keep exact


class Parameter(NamedTuple):
    """A query parameter of a route. kind: "text", "number", "flag" or "choice". doc: its description in the OpenAPI
    document. low, high: least and greatest value of a number, or length of a text. choices: the values that a "choice"
    may have.
    """

    name: str
    kind: str
    doc: str
    default: Any = None
    low: int = 0
    high: int = MAX_MS
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Return the parameter's JSON schema."""
        default = {} if self.default is None else {"default": self.default}
        if self.kind == "number":
            return {"type": "integer", "minimum": self.low, "maximum": self.high, **default}
        if self.kind == "flag":
            return {"type": "boolean", **default}
        if self.kind == "choice":
            return {"type": "string", "enum": list(self.choices), **default}
        return {"type": "string", "minLength": self.low, "maxLength": self.longest, **default}

    @property
    def longest(self) -> int:
        """Return the greatest length of a text: LONGEST_TEXT unless `high` is given."""
        return LONGEST_TEXT if self.high == MAX_MS else self.high  # the default of `high`, MAX_MS, is for numbers


PAGE_SIZE = Parameter("page_size", "number", "How many items a page has.", 100, 1, 1_000)
PAGE_TOKEN = Parameter("page_token", "text", "From `metadata.next` of the page before.", high=64_000)
PAGING = (PAGE_SIZE, PAGE_TOKEN)
CONTAINS = Parameter("contains", "text", "Only items with this in their name; upper and lower case are the same.")


def segment_of(name: str) -> str:
    """Return the name as a segment of a path, not percent-encoded yet. `.` and `..` get a `;`, because browsers take
    them for folders.
    """
    return f"{name};" if _DOTS.fullmatch(name) else name


def name_of(segment: str) -> str:
    """Return the name that a decoded segment of a path stands for: the inverse of segment_of()."""
    return segment[:-1] if segment.endswith(";") and _DOTS.fullmatch(segment) else segment


def parse(parameters: Iterable[Parameter], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters' values by name, converted and with defaults. given: the query as it was sent. Raises
    Problem for a value that is not allowed, and for a name that the route does not know.
    """
    parameters = tuple(parameters)
    for name in given:
        if all(name != each.name for each in parameters):
            known = ", ".join(each.name for each in parameters)
            hint = f"there are {known}" if known else "this address takes none"
            raise Problem(BAD_PARAMETER, f"there is no parameter {name[:50]!r}", hint)
    return {each.name: _value(each, given[each.name]) if each.name in given else each.default for each in parameters}


def _value(parameter: Parameter, text: str) -> Any:
    """Convert a parameter's text to its value: int, bool or str. Raises Problem if the text is not allowed."""
    if parameter.kind == "number":
        return _number(parameter, text)
    if parameter.kind == "flag":
        if text not in ("true", "false"):
            raise _refused(parameter, "true or false")
        return text == "true"
    if parameter.kind == "choice":
        if text not in parameter.choices:
            raise _refused(parameter, "one of " + ", ".join(parameter.choices))
        return text
    longest = parameter.longest
    if not parameter.low <= len(text) <= longest:
        raise _refused(parameter, f"of {parameter.low} to {longest} characters")
    return text


def _number(parameter: Parameter, text: str) -> int:
    """Convert a parameter's text to an int. Raises Problem if it is no number or outside the parameter's limits."""
    digits = text.removeprefix("-")
    if len(digits) <= 19 and digits.isascii() and digits.isdigit() and parameter.low <= int(text) <= parameter.high:
        return int(text)
    raise _refused(parameter, f"a number from {parameter.low} to {parameter.high}")


def _refused(parameter: Parameter, wanted: str) -> Problem:
    """Return the problem for a parameter with a wrong value. wanted: what it must be, as words for the message."""
    return Problem(BAD_PARAMETER, f"{parameter.name} must be {wanted}")
