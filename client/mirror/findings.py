"""Problems of a mirror, as they are shown to people: a line with the cause, and one with what to do. Pure.

A Finding is of a look at both clusters, before a mirror or a cutover does anything. A StoppedError ends the copying of
one topic while the others go on.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ..errors import IllegalStateError

ANEW = "delete the copied topic on the target, and start the mirror again, which copies it anew"
"""What to do about a topic that the mirror has stopped, as a hint."""

NAMED = 5
"""Of many members, topics or partitions so many are named in a line."""


class Finding(NamedTuple):
    """A cause and a hint, one line each. is_fatal: the mirror or cutover must not begin; else it is only a remark."""

    is_fatal: bool
    text: str
    hint: str = ""


def fatal(text: str, hint: str) -> Finding:
    """Return a finding that prevents the start."""
    return Finding(True, text, hint)


class StoppedError(IllegalStateError):
    """The mirror of a topic cannot go on without skipping or repeating records. topic: its name. why: the cause, and
    what to do about it.
    """

    def __init__(self, topic: str, text: str, *, hint: str = "") -> None:
        super().__init__(f"{topic}: {text}", hint=hint)
        self.topic = topic
        self.why = f"{text} ({hint})" if hint else text


def named(names: Iterable[str]) -> str:
    """Return a text with the first few names, and how many more there are."""
    found = sorted(set(names))
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more
