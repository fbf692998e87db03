"""Texts of counts and lists in messages. Nothing slow is imported here: `fencepost COMMAND --help` imports it too."""

from collections.abc import Sequence

NAMED = 5  # how many names of a list a message contains


def count_text(count: int, one: str, more: str = "") -> str:
    """Return a count with its noun: 1 record, 2 records. more: the plural, if it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def list_text(names: Sequence[str], one: str) -> str:
    """Return names as `a, b, c`; of a long list the first ones and how many follow. one: the noun for one of them."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f", and {count_text(more, one)} more" if more > 0 else "")
