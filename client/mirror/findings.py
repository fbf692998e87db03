"""What stands in the way of a mirror, as people read it: one line of cause, one of what to do. Pure."""

from typing import NamedTuple


class Finding(NamedTuple):
    """A cause and a hint, one line each. is_fatal: nothing may begin with it; else it is only said."""

    is_fatal: bool
    text: str
    hint: str = ""


def fatal(text: str, hint: str) -> Finding:
    """Return a finding that prevents the start."""
    return Finding(True, text, hint)
