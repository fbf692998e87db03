"""Files in our folders that are not ours: they are left alone, and named. Pure."""

from collections.abc import Iterable

MOST_NAMED = 5  # of one folder


def warnings_of(folder: str, names: Iterable[str]) -> list[str]:
    """One warning for a folder that holds such files, none for others."""
    found = sorted(names)
    if not found:
        return []
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return [f"{folder}: not made by fencepost, left alone: {', '.join(found[:MOST_NAMED])}{more}"]
