"""The names of files and folders in a data directory. Pure: nothing is opened here.

DIR/lock                                 locked while a broker serves from DIR
DIR/coordinators-<n>                     state of groups and transactions; broker/upkeep/coordinator_snapshots.py
DIR/checkpoint-<n>                       what is on disk for certain; the last two are kept
DIR/journal/                             units not yet in segments
DIR/logs/<topic>-<partition>.<log id>/   segments, indexes and producer snapshots of one log
DIR/journal-parts/                       what the journal had for logs that could not be opened
DIR/store                                marks a directory whose journal is in a store of objects; store_mark.py
DIR/restored                             marks a restored directory until its clients were fenced; backup/restore.py
"""

import re
from collections.abc import Iterable

CATALOGUE_LOG_ID = 0
CATALOGUE_TOPIC = "__catalogue"
SECURITY_TOPIC = "__security"
NO_TOPIC_ID = bytes(16)  # of the broker's own logs, which are no topic's: a start reads each of them whole

LONGEST_NAME = 200  # of a topic, in a folder's name: file systems take 255 bytes, topics have up to 249

CHECKPOINT = "checkpoint-"
COORDINATORS = "coordinators-"
RESTORED = "restored"
MAX_NAMED = 5  # foreign files of one folder
_LOG_DIRECTORY = re.compile(rf"([a-zA-Z0-9._-]{{1,{LONGEST_NAME}}})-(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")


def lock_path(directory: str) -> str:
    """Return the path of the file that a broker locks while it serves from this directory."""
    return f"{directory}/lock"


def journal_directory(directory: str) -> str:
    """Return the directory of the journal's files."""
    return f"{directory}/journal"


def logs_directory(directory: str) -> str:
    """Return the directory in which each log has a folder."""
    return f"{directory}/logs"


def log_directory_name(topic: str, partition: int, log_id: int) -> str:
    """Return the name of a log's folder. The id makes it unique: a recreated topic gets another. Long names are cut."""
    return f"{topic[:LONGEST_NAME]}-{partition}.{log_id}"


def log_directory(directory: str, topic: str, partition: int, log_id: int) -> str:
    """Return the path of a log's folder."""
    return f"{logs_directory(directory)}/{log_directory_name(topic, partition, log_id)}"


def parse_log_directory_name(name: str) -> tuple[str, int, int] | None:
    """Parse a log's folder name: (topic, cut if long; partition; log id). None for another name."""
    found = _LOG_DIRECTORY.fullmatch(name)
    return (found[1], int(found[2]), int(found[3])) if found else None


def kept_parts_directory(directory: str) -> str:
    """Return the directory of kept parts, for logs that could not be opened. It is created when needed."""
    return f"{directory}/journal-parts"


def checkpoint_path(directory: str, number: int) -> str:
    """Return the path of the checkpoint with this number."""
    return f"{directory}/{CHECKPOINT}{number}"


def checkpoint_number(name: str) -> int | None:
    """Return the number in a checkpoint's file name; None for another name."""
    return parse_number(name, CHECKPOINT)


def parse_number(name: str, prefix: str) -> int | None:
    """Return the number in a name of the form `<prefix><number>`; None if it is not written exactly as fencepost writes
    it.
    """
    digits = name.removeprefix(prefix)
    is_ours = name.startswith(prefix) and digits.isascii() and digits.isdecimal() and str(int(digits)) == digits
    return int(digits) if is_ours else None


def foreign_warnings(folder: str, names: Iterable[str]) -> list[str]:
    """Return a list with one warning that names the foreign files of a folder, which are left alone; an empty list
    without such files.
    """
    found = sorted(names)
    if not found:
        return []
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return [f"{folder}: not made by fencepost, left alone: {', '.join(found[:MAX_NAMED])}{more}"]
