"""Problems of a mirror, as they are shown to people: a line with the cause, and one with what to do. Pure."""

from typing import NamedTuple


class Finding(NamedTuple):
    """A cause and a hint, one line each. is_fatal: the mirror or cutover must not begin; else it is only a remark."""

    is_fatal: bool
    text: str
    hint: str = ""


def fatal(text: str, hint: str) -> Finding:
    """Return a finding that prevents the start."""
    return Finding(True, text, hint)
