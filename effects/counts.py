"""Counts in messages. Nothing is imported here, for `fencepost COMMAND --help` needs it too."""


def count_text(count: int, one: str, more: str = "") -> str:
    """1 record, 2 records. more: the plural, where it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"
