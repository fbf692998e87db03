"""The manifest that lists the files of a backup: it reads back as it was written, or is reported as damaged."""

import msgpack
import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.backup import manifest
from fencepost.storage.backup.manifest import BackupFile, Contents
from fencepost.storage.checkpoints import Damaged, write_file

FIELDS = {"made_by": "0.1", "taken_ms": 1, "running": False, "checkpoint": 1, "last_unit": 5, "warnings": []}


@pytest.fixture
def disk():
    disk = SimulatedDisk()
    disk.make_directory("/backup")
    return disk


def test_a_backup_manifest_survives_a_round_trip(disk):
    contents = Contents("0.1", 1_000, True, 1, 50, ["a warning"], {"checkpoint-1": BackupFile(100, 7)})
    manifest.write(disk, "/backup", contents)
    assert manifest.read(disk, "/backup") == contents


@pytest.mark.parametrize(
    "fields",
    [
        7,
        [],
        FIELDS,
        FIELDS | {"files": [1]},
        FIELDS | {"files": None},
        FIELDS | {"files": {"a": [1]}},
        FIELDS | {"files": {"a": ["1", 2]}},
        FIELDS | {"files": {7: [1, 2]}},
        FIELDS | {"files": {}, "more": 1},
    ],
)
def test_reading_a_backup_manifest_with_wrong_fields_raises_damaged(disk, fields):
    write_file(disk, "/backup/manifest", manifest.KIND, manifest.VERSION, msgpack.packb(fields))
    with pytest.raises(Damaged):
        manifest.read(disk, "/backup")
