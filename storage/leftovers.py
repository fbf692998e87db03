"""What a start removes from a data directory, and what it leaves there and reports.

The rule: a file is removed only if its name is exactly one that fencepost gives and no checkpoint needs it; a log's
folder only if all files in it have such names. People keep notes, copies and links in these folders: nothing of theirs
is removed, and nothing of theirs keeps a broker from starting.
"""

from collections.abc import Callable, Collection

from ..effects.disk import Disk
from . import layout, store_checkpoint
from .checkpoints import UNFINISHED
from .journal import kept_parts
from .journal.preparing import PREPARING, file_sequence
from .log.opening import offset_in_name
from .log.partition_log import PartitionLog


def remove_leftovers(disk: Disk, directory: str, logs: Collection[PartitionLog], keep: Collection[int]) -> list[str]:
    """Remove folders of deleted logs, kept parts that were applied, and all checkpoints except those in `keep`.

    Returns a warning for each file that is not fencepost's, and for each that could not be removed: the start goes on.
    """
    warnings: list[str] = []
    folder = layout.logs_directory(directory)
    named = {log.directory.rsplit("/", 1)[-1] for log in logs}
    others = [name for name in disk.list(folder) if name not in named]
    gone = [name for name in others if layout.parse_log_directory_name(name) and _is_log(disk, f"{folder}/{name}")]
    warnings += _remove(disk, folder, gone, disk.remove_tree)
    warnings += layout.foreign_warnings(folder, [name for name in others if name not in gone])
    old = [number for number in store_checkpoint.numbers(disk, directory) if number not in keep]
    warnings += _remove(disk, directory, [f"checkpoint-{number}" for number in old], disk.unlink)
    return warnings + _remove_kept_parts(disk, directory, logs)


def _is_log(disk: Disk, path: str) -> bool:
    """Return whether the path is a folder with only files of a log, or a link to one."""
    return disk.is_directory(path) and all(
        (offset_in_name(name) is not None or kept_parts.parse_name(name) is not None)
        and not disk.is_directory(f"{path}/{name}")
        for name in disk.list(path)
    )


def _remove_kept_parts(disk: Disk, directory: str, logs: Collection[PartitionLog]) -> list[str]:
    """Remove kept parts that were applied, and those of dropped logs. Returns a warning for each failed removal."""
    folder = layout.kept_parts_directory(directory)
    known = {log.log_id for log in logs}
    files, _ = kept_parts.list_files(disk, directory)
    gone = [f"{folder}/{found.name}" for found in files if found.log_id not in known]
    for log in logs:
        if log.offline is None and log.kept_parts:
            gone += log.kept_parts
            log.kept_parts = []
    warnings: list[str] = []
    for path in gone:
        parent, _, name = path.rpartition("/")
        warnings += _remove(disk, parent, [name], disk.unlink)
    return warnings


def name_foreign_files(disk: Disk, directory: str) -> list[str]:
    """Return warnings for foreign files beside the checkpoints, and in the folders of the journal and of kept parts."""
    beside = [
        name
        for name in disk.list(directory)
        if name.startswith(layout.CHECKPOINT) and layout.checkpoint_number(name.removesuffix(UNFINISHED)) is None
    ]
    journal = layout.journal_directory(directory)
    found = layout.foreign_warnings(directory, beside)
    found += layout.foreign_warnings(
        journal, [name for name in disk.list(journal) if file_sequence(name.removesuffix(PREPARING)) is None]
    )
    parts = layout.kept_parts_directory(directory)
    if disk.exists(parts):
        found += layout.foreign_warnings(
            parts, [name for name in disk.list(parts) if kept_parts.parse_name(name) is None]
        )
    return found


def holds_anything(disk: Disk, directory: str) -> bool:
    """Return whether the directory holds logs or a journal."""
    journal, logs = layout.journal_directory(directory), layout.logs_directory(directory)
    if disk.exists(journal) and any(file_sequence(name) is not None for name in disk.list(journal)):
        return True
    return disk.exists(logs) and any(layout.parse_log_directory_name(name) for name in disk.list(logs))


def _remove(disk: Disk, folder: str, names: list[str], remove: Callable[[str], None]) -> list[str]:
    """Remove names from a folder and sync it. Returns warnings for failed removals. Raises OSError of the sync only."""
    warnings: list[str] = []
    for name in names:
        try:
            remove(f"{folder}/{name}")
        except FileNotFoundError:
            pass
        except OSError as error:
            warnings.append(f"{folder}/{name} is not needed any more and cannot be removed: {error.strerror or error}")
    if names:
        disk.sync_directory(folder)
    return warnings
