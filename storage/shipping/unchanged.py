"""Which files of an earlier point are unchanged in a data directory: compared byte by byte, once, when a follower
begins.

The rule: names and sizes prove nothing. A directory that was restored continues with other bytes under the same names,
and another broker's directory may have the same names. So what was shipped counts only if the directory has the same
bytes. If the newest point of a store has nothing in common with the directory, the store belongs to another directory
and is refused.
"""

from collections.abc import Iterable

from crc32c import crc32c

from ...effects.disk import Disk
from .. import store_checkpoint
from ..backup.manifest import BackupRefused
from ..layout import NO_TOPIC_ID
from ..system_errors import MISPLACED
from .names import PARTS
from .point import Extent, Point, ShippedFile
from .shipper import JOURNAL


def keep_unchanged(disk: Disk, directory: str, newest: Point, where: str) -> dict[str, ShippedFile]:
    """Return the files of the newest point that a new point may take over: of each file but those of the journal, the
    beginning that is unchanged in the directory. where: the store.

    Raises BackupRefused if the point is of another directory; OSError.
    """
    kept: dict[str, ShippedFile] = {}
    for path, shipped in newest.files.items():
        if path.startswith(f"{JOURNAL}/"):
            continue
        extents = tuple(_unchanged(disk, f"{directory}/{path}", shipped.extents))
        if extents:
            kept[path] = ShippedFile(sum(extent.length for extent in extents), extents)
    if not kept and not _shares_topics(disk, directory, newest):
        raise BackupRefused(
            f"{where} has the backup of another data directory", "use a prefix of its own for each broker"
        )
    return kept


def _unchanged(disk: Disk, path: str, extents: Iterable[Extent]) -> Iterable[Extent]:
    """Yield the extents at the beginning of a file, up to the first that differs in the file or is not in a part."""
    try:
        file = disk.open(path, read_only=True)
    except MISPLACED:
        return
    try:
        position = 0
        for extent in extents:
            data = file.read(extent.length, position)
            if len(data) < extent.length or crc32c(data) != extent.crc or not extent.object.startswith(PARTS):
                return
            yield extent
            position += extent.length
    finally:
        file.close()


def _shares_topics(disk: Disk, directory: str, newest: Point) -> bool:
    """Return whether the point and the directory have a topic id in common; also if either has no topics."""
    theirs = _topic_ids(store_checkpoint.unpack(newest.content))
    found = store_checkpoint.numbers(disk, directory)
    ours = _topic_ids(store_checkpoint.read(disk, directory, found[0])) if found else set()
    return not theirs or not ours or bool(theirs & ours)


def _topic_ids(content: store_checkpoint.StoreCheckpoint) -> set[bytes]:
    """Return the ids of all topics in a checkpoint."""
    return {entry.topic_id for entry in content.logs if entry.topic_id != NO_TOPIC_ID}
