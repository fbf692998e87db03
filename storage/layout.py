"""Where things stand in a data directory. Pure: names only, nothing is opened here.

DIR/lock                                 held while a broker serves from here
DIR/checkpoint-<n>                       what is on disk for certain; the last two are kept
DIR/journal/                             units not yet in segments
DIR/logs/<topic>-<partition>.<log id>/   segments, indexes and producer snapshots of one log
"""

CATALOGUE_LOG_ID = 0
CATALOGUE_TOPIC = "__catalogue"

LONGEST_NAME = 200  # of a topic, in a folder's name: file systems take 255 bytes, topics have up to 249

_CHECKPOINT = "checkpoint-"


def lock_path(directory: str) -> str:
    """The file whose lock says that a broker serves from this directory."""
    return f"{directory}/lock"


def journal_directory(directory: str) -> str:
    """Where the journal's files are."""
    return f"{directory}/journal"


def logs_directory(directory: str) -> str:
    """Where each log has a folder of its own."""
    return f"{directory}/logs"


def log_directory_name(topic: str, partition: int, log_id: int) -> str:
    """A log's folder. The id makes it unique for ever: a recreated topic gets another. Long names are cut short."""
    return f"{topic[:LONGEST_NAME]}-{partition}.{log_id}"


def log_directory(directory: str, topic: str, partition: int, log_id: int) -> str:
    """The whole path of a log's folder."""
    return f"{logs_directory(directory)}/{log_directory_name(topic, partition, log_id)}"


def checkpoint_path(directory: str, number: int) -> str:
    """The checkpoint of that number."""
    return f"{directory}/{_CHECKPOINT}{number}"


def checkpoint_number(name: str) -> int | None:
    """The number in a checkpoint's file name, or None if the name is no checkpoint's."""
    digits = name.removeprefix(_CHECKPOINT)
    return int(digits) if name.startswith(_CHECKPOINT) and digits.isdigit() else None
