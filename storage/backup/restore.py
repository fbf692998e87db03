"""Restores a backup to an empty directory: compares every byte with its checksum, and writes the checkpoint last.

The rule: until then the directory has a journal and no checkpoint, and no broker starts on it. So a restore that was
killed is noticed; one that finds a wrong checksum removes what it wrote. A mark file records that the directory was
restored: the next start of a broker fences clients that know a state newer than the backup
(broker/upkeep/restored.py), and removes the mark.
"""

from collections.abc import Callable

from ...effects.disk import AlreadyLocked, Disk
from .. import checkpoints, layout, store_checkpoint
from ..leftovers import holds_anything
from ..recovery import make_directory
from . import manifest
from .copying import EMPTY, OnBytes, Unreadable, checksum, copy_range, remove_contents, sync_tree
from .manifest import BackupFile, BackupRefused, Contents

LOST_AND_FOUND = "lost+found"  # in the root of a file system
MARK = layout.RESTORED
MARK_VERSION = 1
_ANOTHER = "use another backup; `fencepost restore --check` lists all that is damaged in this one"

Report = Callable[[int, int], None]


def mark_path(directory: str) -> str:
    """Return the path of the file that marks a directory as restored until a broker has started on it."""
    return f"{directory}/{MARK}"


def read_contents(disk: Disk, backup: str) -> Contents:
    """Read the manifest of a backup. Raises: BackupRefused; checkpoints.Damaged, NewerFormat, OSError."""
    try:
        contents = manifest.read(disk, backup)
    except (FileNotFoundError, NotADirectoryError):
        raise BackupRefused(
            f"{backup} is no backup, or one that was cut short: it has no manifest",
            "name a folder that `fencepost backup` has finished",
        ) from None
    for name in contents.files:
        if name.startswith("/") or ".." in name.split("/"):
            raise checkpoints.Damaged(manifest.manifest_path(backup), f"it names {name!r}")
    return contents


def check_backup(disk: Disk, backup: str, report: Report = lambda done, of: None) -> tuple[Contents, list[str]]:
    """Compare every file with its checksum. Returns the contents and the errors found. Raises like read_contents()."""
    contents = read_contents(disk, backup)
    problems: list[str] = []
    on_bytes = _counting(report, contents.size_bytes)
    for name, expected in sorted(contents.files.items()):
        path = f"{manifest.data_path(backup)}/{name}"
        try:
            file = disk.open(path, read_only=True)
            try:
                found = checksum(file, on_bytes)
            finally:
                file.close()
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
            continue
        if found != expected:
            problems.append(_difference(path, found, expected))
    return contents, problems


def restore_backup(disk: Disk, backup: str, directory: str, report: Report = lambda done, of: None) -> Contents:
    """Make a data directory from a backup. Returns the contents of the backup.

    Raises: BackupRefused; checkpoints.Damaged, NewerFormat; DiskFull, OSError. What was written is removed before one
    of them is raised.
    """
    contents = read_contents(disk, backup)
    check_empty(disk, directory)
    make_directory(disk, directory)
    try:
        lock = disk.lock(layout.lock_path(directory))
    except AlreadyLocked as locked:
        raise BackupRefused(f"{directory} is in use by process {locked.pid}", "name another folder") from None
    done = False
    try:
        check_empty(disk, directory, besides="lock")
        _copy_all(disk, manifest.data_path(backup), directory, contents, _counting(report, contents.size_bytes))
        checkpoints.write_file(disk, mark_path(directory), MARK, MARK_VERSION, b"")
        _copy_checkpoint(disk, manifest.data_path(backup), directory, contents)
        done = True
        return contents
    finally:
        if not done:
            remove_contents(disk, directory, keep=LOST_AND_FOUND)
        lock.release()


def check_empty(disk: Disk, directory: str, besides: str = "") -> None:
    """Raise BackupRefused unless a directory is missing or empty. besides: the one name that may be there."""
    if not disk.exists(directory):
        return
    if not disk.is_directory(directory):
        raise BackupRefused(f"{directory} is a file", "name a folder that does not exist or is empty")
    names = [name for name in disk.list(directory) if name not in (LOST_AND_FOUND, besides)]
    if names and not store_checkpoint.numbers(disk, directory) and holds_anything(disk, directory):
        raise BackupRefused(
            f"{directory} has files of a broker and no checkpoint, as a restore that was cut short leaves them",
            "name another folder, or remove these files if they are of such a restore",
        )
    if names:
        raise BackupRefused(f"{directory} is not empty", "name a folder that does not exist or is empty")


def _copy_all(disk: Disk, source: str, directory: str, contents: Contents, on_bytes: OnBytes) -> None:
    """Copy all files except the checkpoint, the journal first. Raises: BackupRefused, OSError."""
    journal, logs = (folder("") for folder in (layout.journal_directory, layout.logs_directory))
    for folder in (journal, logs):
        disk.make_directory(f"{directory}{folder}")
    last = _checkpoint_name(contents)
    if last not in contents.files:
        raise checkpoints.Damaged(source, f"the manifest does not name {last}")
    names = sorted(contents.files.keys() - {last}, key=lambda name: (not f"/{name}".startswith(journal), name))
    folders: set[str] = set()
    for name in names:
        folder = name.rpartition("/")[0]
        if folder not in folders:
            disk.make_directory(f"{directory}/{folder}")
            folders.add(folder)
        _copy(disk, f"{source}/{name}", f"{directory}/{name}", contents.files[name], on_bytes)
    sync_tree(disk, directory, names)


def _copy(disk: Disk, path: str, to: str, expected: BackupFile, on_bytes: OnBytes) -> None:
    """Copy one file and check its size and checksum. Raises BackupRefused if the file is missing or they differ from
    the backup's list.
    """
    try:
        source = disk.open(path, read_only=True)
    except FileNotFoundError:
        raise BackupRefused(f"{path} is missing", _ANOTHER) from None
    target = None
    try:
        if source.size() != expected.size_bytes:
            raise BackupRefused(f"{path} has {source.size()} bytes instead of {expected.size_bytes}", _ANOTHER)
        target = disk.open(to, create=True)
        found = copy_range(source, target, EMPTY, expected.size_bytes, on_bytes)
    except Unreadable as problem:
        raise BackupRefused(f"{path} cannot be read {problem}", _ANOTHER) from None
    finally:
        source.close()
        if target is not None:
            target.close()
    if found != expected:
        raise BackupRefused(_difference(path, found, expected), _ANOTHER)


def _copy_checkpoint(disk: Disk, source: str, directory: str, contents: Contents) -> None:
    """Copy the checkpoint, which completes the data directory. Raises: BackupRefused; checkpoints.Damaged, OSError."""
    name = _checkpoint_name(contents)
    temporary = f"{directory}/{name}{checkpoints.UNFINISHED}"
    _copy(disk, f"{source}/{name}", temporary, contents.files[name], lambda count: None)
    start = store_checkpoint.read(disk, source, contents.checkpoint)
    store_checkpoint.write(disk, directory, contents.checkpoint, start)


def _checkpoint_name(contents: Contents) -> str:
    """Return the file name of the backup's checkpoint."""
    return f"{layout.CHECKPOINT}{contents.checkpoint}"


def _difference(path: str, found: BackupFile, expected: BackupFile) -> str:
    """Return an error message that says how the file differs from the backup's list, in size or checksum."""
    if found.size_bytes != expected.size_bytes:
        return f"{path} has {found.size_bytes} bytes instead of {expected.size_bytes}"
    return f"{path} fails its checksum"


def _counting(report: Report, total: int) -> OnBytes:
    """Return a function to be called with the size of each copied piece; it adds them up and reports the progress."""
    done = 0

    def on_bytes(count: int) -> None:
        """Count bytes that were copied, and report the progress."""
        nonlocal done
        done += count
        report(done, max(done, total))

    return on_bytes
